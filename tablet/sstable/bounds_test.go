package sstable

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestHandleBounds: a handle is valid if it fills its bytes, is after the header and ends at or
// before the limit.
func TestHandleBounds(t *testing.T) {
	const limit = 100_000
	for name, c := range map[string]struct {
		h    handle
		good bool
	}{
		"behind the header":   {handle{headerBytes, 300, true}, true},
		"in the header":       {handle{headerBytes - 1, 300, true}, false},
		"empty":               {handle{headerBytes, 0, false}, true},
		"to the limit":        {handle{limit - 300 - trailerBytes, 300, false}, true},
		"beyond the limit":    {handle{limit - 299 - trailerBytes, 300, false}, false},
		"begins at the limit": {handle{limit, 0, false}, false},
		"begins beyond it":    {handle{limit + 1, 0, false}, false},
	} {
		p := appendHandle(nil, c.h)
		if h, ok := decodeHandle(p, limit); ok != c.good || ok && h != c.h {
			t.Errorf("%s: %+v is read as %+v, %v", name, c.h, h, ok)
		}
		for n := range p {
			if _, ok := decodeHandle(p[:n], limit); ok {
				t.Errorf("%s: %d of %d bytes are read", name, n, len(p))
			}
		}
		if _, ok := decodeHandle(append(p, 0), limit); ok {
			t.Errorf("%s: a byte more is read", name)
		}
	}
	for stored, want := range map[int]bool{blockRawMax: true, blockRawMax + 1: false} {
		if _, ok := decodeHandle(appendHandle(nil, handle{off: headerBytes, stored: stored}), 1<<50); ok != want {
			t.Errorf("a block of %d bytes is read: %v", stored, ok)
		}
	}
	for _, endless := range []string{strings.Repeat("\xff", 11) + "\x01\x02", "\x20" + strings.Repeat("\xff", 11)} {
		if _, ok := decodeHandle([]byte(endless), 1<<50); ok {
			t.Errorf("a number of more than 64 bits is read: %x", endless)
		}
	}
}

// TestRunsAreBounded: blocks are read together if they are contiguous and have at most the limit in
// bytes.
func TestRunsAreBounded(t *testing.T) {
	hs := []handle{{off: 100, stored: 50}}
	for range 3 {
		hs = append(hs, handle{off: hs[len(hs)-1].end(), stored: 50})
	}
	const one = 50 + trailerBytes
	apart := append(append([]handle(nil), hs...), handle{off: hs[3].end() + 1, stored: 50})
	for _, c := range []struct {
		hs    []handle
		limit int64
		want  int
	}{
		{hs[:1], 0, 1}, {hs, 0, 1}, {hs, 2*one - 1, 1}, {hs, 2 * one, 2}, {hs, 3*one - 1, 2}, {hs, 4 * one, 4}, {hs, 1 << 40, 4}, {apart, 1 << 40, 4},
		{apart[3:], 1 << 40, 1},
	} {
		if got := runLen(c.hs, c.limit); got != c.want {
			t.Errorf("of %d blocks %d are read in %d bytes, want %d", len(c.hs), got, c.limit, c.want)
		}
	}
}

// TestBlockSizesAreExact: the predicted size with an entry is the block's size after adding it,
// also at restarts.
func TestBlockSizesAreExact(t *testing.T) {
	for _, interval := range []int{1, 2, 3, 16} {
		b := blockBuilder{interval: interval}
		key := []byte("key000")
		for i := range 40 {
			want := b.sizeWith(len(key), 5, 3*i)
			b.add(key, 5, make([]byte, 3*i))
			if got := b.size(); got != want {
				t.Errorf("interval %d: with entry %d the block has %d bytes, foreseen were %d", interval, i, got, want)
			}
			if restarts := len(b.restarts) / restartBytes; restarts != (i+interval)/interval {
				t.Errorf("interval %d: %d restarts after %d entries", interval, restarts, i+1)
			}
		}
		if n := b.size(); len(b.finish()) != n {
			t.Errorf("interval %d: the block has another size than %d", interval, n)
		}
	}
}

// TestNextRestart: it is the first restart at or after the next entry.
func TestNextRestart(t *testing.T) {
	b := blockBuilder{interval: 2}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		b.add([]byte(key), 0, nil)
	}
	var it blockIter
	if err := it.reset(b.finish()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 1, 1, 2, 2, 3} {
		fresh := it
		fresh.restart = 0
		if got := fresh.nextRestart(); got != want {
			t.Errorf("after %d entries the next restart is %d, want %d", i, got, want)
		}
		it.next()
	}
}

// TestSmallBuffersAreKept: a buffer of up to 4 MiB is reused.
func TestSmallBuffersAreKept(t *testing.T) {
	for n, want := range map[int]bool{100: true, 4 << 20: true, 4<<20 + 1: false} {
		if got := reuse(make([]byte, 1, n)); (cap(got) == n) != want || len(got) != 0 {
			t.Errorf("a buffer of %d bytes is kept: %v", n, cap(got) == n)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"two-pass": "two-pass", "": "", "a b": `"a b"`, "~!": "~!", "\x7f": `"\x7f"`, `a"`: `"a\""`, "é": `"é"`, "\x1f": `"\x1f"`, "\x80": `"\x80"`,
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("%q is printed as %s, want %s", in, got, want)
		}
	}
}

// TestFooterBounds: the directory in a footer must extend to the footer, and start after the
// header.
func TestFooterBounds(t *testing.T) {
	file, _ := build(t, Options{}, nil, []kv{{[]byte("a"), []byte("v")}})
	size := int64(len(file))
	version := binary.LittleEndian.Uint32(file[size-footerBytes+24:])
	limit := size - footerBytes
	for _, c := range []struct {
		off  int64
		good bool
	}{
		{headerBytes, true}, {headerBytes - 1, false}, {0, false}, {limit - trailerBytes, true}, {limit - trailerBytes + 1, false}, {limit, false}, {limit + 1, false},
	} {
		p := appendFooter(nil, handle{off: c.off, stored: int(limit - c.off - trailerBytes)}, size, version)
		if h, err := decodeFooter(p, size); (err == nil) != c.good || c.good && h.off != c.off {
			t.Errorf("a directory at %d of %d: %v", c.off, limit, err)
		}
	}
}
