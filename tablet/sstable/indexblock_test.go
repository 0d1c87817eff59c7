package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// rawEntry is an entry of a map block as encoded, with lengths that may be wrong.
type rawEntry struct {
	shared, unshared, value int
	key, bytes              []byte
}

// rawBlock encodes a map block in which every key is a restart.
func rawBlock(entries []rawEntry) []byte {
	var values, keys, restarts []byte
	for _, e := range entries {
		restarts = binary.LittleEndian.AppendUint64(restarts, uint64(len(keys))|uint64(len(values))<<32)
		for _, n := range []int{e.shared, e.unshared, e.value} {
			keys = binary.AppendUvarint(keys, uint64(n))
		}
		keys = append(keys, e.key...)
		values = append(values, e.bytes...)
	}
	p := append(append(bytes.Clone(values), keys...), restarts...)
	for _, n := range []int{len(entries), len(entries), len(values)} {
		p = binary.LittleEndian.AppendUint32(p, uint32(n))
	}
	return p
}

// rawIndex encodes an index block.
func rawIndex(seps []string, hs []handle) []byte {
	var entries []rawEntry
	for i, sep := range seps {
		value := appendHandle(nil, hs[i])
		entries = append(entries, rawEntry{0, len(sep), len(value), []byte(sep), value})
	}
	return rawBlock(entries)
}

// TestPreparedIndex: an index is accepted only if its blocks are contiguous and its separators
// ascend, and lookups then equal those without the arrays.
func TestPreparedIndex(t *testing.T) {
	const limit = 1000
	at := func(off, stored int) handle {
		return handle{off: int64(headerBytes - 10 + off), stored: stored, compressed: stored%2 == 1}
	}
	next := trailerBytes
	for _, c := range []struct {
		name string
		seps []string
		hs   []handle
		good bool
	}{
		{"none", nil, nil, true},
		{"one", []string{"a"}, []handle{at(10, 20)}, true},
		{"three", []string{"", "ab", "ac"}, []handle{at(10, 20), at(30+next, 5), at(35+2*next, 7)}, true},
		{"to the limit", []string{"a"}, []handle{at(10, limit-headerBytes-next)}, true},
		{"beyond the limit", []string{"a"}, []handle{at(10, limit-headerBytes-next+1)}, false},
		{"a gap", []string{"a", "b"}, []handle{at(10, 20), at(31+next, 5)}, false},
		{"an overlap", []string{"a", "b"}, []handle{at(10, 20), at(29+next, 5)}, false},
		{"separators out of order", []string{"", "xb", "xa", "xc"}, []handle{at(10, 20), at(30+next, 5), at(35+2*next, 7), at(42+3*next, 1)}, false},
		{"a prefix that not all have", []string{"", "xa", "y", "xc"}, []handle{at(10, 20), at(30+next, 5), at(35+2*next, 7), at(42+3*next, 1)}, false},
	} {
		p := rawIndex(c.seps, c.hs)
		var x, plain indexBlock
		if err := errors.Join(x.parse(p, limit), plain.parse(p, limit)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := x.prepare(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.good || len(c.seps) == 0 {
			continue
		}
		n := len(c.seps)
		if got, want := x.memory(), int64(len(p)+trailerBytes+8*(2*n+1)+160); got != want {
			t.Errorf("%s: holds %d bytes, want %d", c.name, got, want)
		}
		hs, ok := x.handles()
		if !ok || fmt.Sprint(hs) != fmt.Sprint(c.hs) {
			t.Errorf("%s: the handles are %v, want %v", c.name, hs, c.hs)
		}
		for _, target := range []string{"", "a", "aa", "ab", "abx", "ac", "acz", "b"} {
			i, ok1 := x.find([]byte(target))
			j, ok2 := plain.find([]byte(target))
			if i != j || !ok1 || !ok2 {
				t.Errorf("%s: %q is found at %d (%v), without arrays at %d (%v)", c.name, target, i, ok1, j, ok2)
			}
		}
	}
}

// TestMalformedEntries: an entry whose lengths or offsets are outside its block is invalid.
func TestMalformedEntries(t *testing.T) {
	good := []rawEntry{{0, 1, 2, []byte("a"), []byte("vv")}, {0, 1, 1, []byte("b"), []byte("w")}}
	for name, change := range map[string]func(e *rawEntry){
		"good": func(*rawEntry) {}, "shared": func(e *rawEntry) { e.shared = 1 }, "key beyond the block": func(e *rawEntry) { e.unshared = 2 },
		"value beyond the block": func(e *rawEntry) { e.value = 2 }, "value beyond all": func(e *rawEntry) { e.value = blockRawMax + 1 },
	} {
		entries := append([]rawEntry(nil), good...)
		change(&entries[1])
		var b block
		if err := b.parse(rawBlock(entries)); err != nil {
			t.Fatal(err)
		}
		if key, value, ok := b.at(0); !ok || string(key) != "a" || string(value) != "vv" {
			t.Errorf("%s: the first entry is %q, %q, %v", name, key, value, ok)
		}
		if key, value, ok := b.at(1); ok != (name == "good") || ok && (string(key) != "b" || string(value) != "w") {
			t.Errorf("%s: the second entry is %q, %q, %v", name, key, value, ok)
		}
	}
	var b block
	if err := b.parse(rawBlock(good)); err != nil {
		t.Fatal(err)
	}
	for valueOff, want := range map[uint64]bool{2: true, 3: false, 4: false} {
		binary.LittleEndian.PutUint64(b.restarts[8:], uint64(4)|valueOff<<32)
		if _, _, ok := b.at(1); ok != want {
			t.Errorf("a value of a byte at %d of 3: %v", valueOff, ok)
		}
	}
	long := binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, 300), 2), 20_000)
	long = append(long, "xy"...)
	for n := range len(long) + 1 {
		if e, ok := decodeEntrySlow(long[:n], 0); ok != (n == len(long)) || ok && e != (entry{300, 2, 20_000, len(long) - 2}) {
			t.Errorf("%d of %d bytes of an entry are read as %+v, %v", n, len(long), e, ok)
		}
	}
	for n, want := range map[uint64]bool{blockRawMax: true, blockRawMax + 1: false} {
		p := binary.AppendUvarint([]byte{0, 0}, n)
		if _, ok := decodeEntrySlow(p, 0); ok != want {
			t.Errorf("a length of %d is read: %v", n, ok)
		}
	}
}

// TestMemoryIsCounted: properties and filters are counted completely.
func TestMemoryIsCounted(t *testing.T) {
	entries := []kv{{[]byte("b"), make([]byte, 450)}, {[]byte("c"), nil}, {[]byte("d"), nil}}
	memory := func(opts Options, props map[string][]byte) (int64, *Table) {
		file, _ := build(t, opts, props, entries)
		tab := open(t, bytesSource(file), OpenOptions{})
		return tab.MemoryBytes(), tab
	}
	bare, _ := memory(Options{}, nil)
	if got, _ := memory(Options{}, map[string][]byte{"name": make([]byte, 100), "x": nil}); got != bare+104+64+1+64 {
		t.Errorf("two properties of 105 bytes count for %d", got-bare)
	}
	got, tab := memory(Options{FilterPrefixes: someLens}, nil)
	parts := len(tab.filter.parts)
	want := bare + tab.filter.memory + tab.filter.seps.memory() + 56*int64(parts)
	if got != want || parts == 0 || tab.filter.memory < int64(parts*trailerBytes) {
		t.Errorf("a filter of %d parts counts for %d bytes, want %d", parts, got-bare, want-bare)
	}
}

// TestKeysAreCounted: the first and the last key are counted in a table's memory.
func TestKeysAreCounted(t *testing.T) {
	memory := func(first, last int) int64 {
		file, _ := build(t, Options{}, nil, []kv{{bytes.Repeat([]byte("a"), first), nil}, {bytes.Repeat([]byte("b"), last), nil}})
		return open(t, bytesSource(file), OpenOptions{}).MemoryBytes()
	}
	bare := memory(1, 1)
	if long, both := memory(1, 101), memory(51, 101); long != bare+100 || both != bare+150 {
		t.Errorf("a last key of 100 bytes more counts for %d, and a first of 50 for %d", long-bare, both-long)
	}
}

// TestPropertyBound: properties of 1 MiB in total are accepted, and not one byte more.
func TestPropertyBound(t *testing.T) {
	for extra, good := range map[int]bool{0: true, 1: false} {
		props := map[string][]byte{"ab": make([]byte, 1000), "c": make([]byte, PropertyBytesMax-1003+extra)}
		var large *TooLargeError
		err := checkProps(props)
		if (err == nil) != good || !good && (!errors.As(err, &large) || large.Got != PropertyBytesMax+1) {
			t.Errorf("%d bytes of properties: %v", PropertyBytesMax+extra, err)
		}
	}
	if err := checkProps(map[string][]byte{ownPrefix + "x": nil}); !errors.Is(err, ErrBadOption) {
		t.Errorf("a property of the table's own: %v", err)
	}
}

// TestCorruptBlockIsLocated: the error of a malformed block has its offset, and its length with the
// trailer.
func TestCorruptBlockIsLocated(t *testing.T) {
	var bad *CorruptError
	err := (&file{name: "f"}).corrupt(handle{off: 10, stored: 20}, kindIndex)
	if !errors.As(err, &bad) || bad.Offset != 10 || bad.Length != 20+trailerBytes || bad.File != "f" || !strings.Contains(err.Error(), kindIndex.String()) {
		t.Errorf("the error is %v", err)
	}
}
