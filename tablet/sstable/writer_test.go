package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/steledb/stele/table"
)

func TestKeyOrder(t *testing.T) {
	for _, c := range []struct{ first, second string }{
		{"a", "a"}, {"b", "a"}, {"ab", "a"}, {"a", ""}, {"", ""}, {"\xff", "\x00"}, {"aaaaaaaab", "aaaaaaaaab"},
	} {
		w := NewWriter(io.Discard, Options{})
		if err := w.Add([]byte(c.first), nil); err != nil {
			t.Fatal(err)
		}
		err := w.Add([]byte(c.second), nil)
		var order *KeyOrderError
		if !errors.As(err, &order) || !errors.Is(err, ErrKeyOrder) ||
			string(order.Prev) != c.first || string(order.Key) != c.second || order.Entry != 1 {
			t.Errorf("%q after %q: %v", c.second, c.first, err)
		}
		// The error is sticky: a table with a missing entry must not be finished.
		if again := w.Add([]byte("\xff\xff"), nil); again != err {
			t.Errorf("next Add: %v", again)
		}
		if _, again := w.Finish(nil); again != err {
			t.Errorf("Finish: %v", again)
		}
	}
}

func TestLimits(t *testing.T) {
	w := NewWriter(io.Discard, Options{})
	var large *TooLargeError
	if err := w.Add(make([]byte, KeyBytesMax+1), nil); !errors.As(err, &large) || !errors.Is(err, ErrTooLarge) ||
		large.Limit != KeyBytesMax || large.Got != KeyBytesMax+1 {
		t.Error(err)
	}
	w = NewWriter(io.Discard, Options{})
	if err := w.Add(make([]byte, KeyBytesMax), nil); err != nil {
		t.Error(err)
	}
	w = NewWriter(io.Discard, Options{})
	if err := w.Add([]byte("k"), make([]byte, EntryBytesMax)); !errors.As(err, &large) || large.What != "entry" {
		t.Error(err)
	}
	w = NewWriter(io.Discard, Options{})
	if _, err := w.Finish(map[string][]byte{"p": make([]byte, PropertyBytesMax)}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := w.Finish(map[string][]byte{"sstable.x": nil}); !errors.Is(err, ErrBadOption) {
		t.Error(err)
	}
	// Neither wrote anything, so the writer is still usable.
	if _, err := w.Finish(nil); err != nil {
		t.Error(err)
	}
	if _, err := w.Finish(nil); !errors.Is(err, ErrFinished) {
		t.Error(err)
	}
	if err := w.Add([]byte("k"), nil); !errors.Is(err, ErrFinished) {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{BlockBytes: 1023}, {BlockBytes: 1<<20 + 1}, {BlockBytes: -1}, {Compression: 99},
		{RestartInterval: -1}, {RestartInterval: 1025}, {FilterName: string(make([]byte, 256))},
	} {
		if err := o.Validate(); !errors.Is(err, ErrBadOption) {
			t.Errorf("%+v: %v", o, err)
		}
		w := NewWriter(io.Discard, o)
		if err := w.Add([]byte("k"), nil); !errors.Is(err, ErrBadOption) {
			t.Errorf("%+v: Add: %v", o, err)
		}
	}
	for _, n := range []int{-1, 0, 2} {
		w := NewWriter(io.Discard, Options{FilterPrefixes: func(_ []byte, dst []int) []int { return append(dst, n) }})
		if err := w.Add([]byte("k"), nil); !errors.Is(err, ErrBadOption) {
			t.Errorf("prefix of %d bytes: %v", n, err)
		}
	}
}

// brokenPipe accepts some writes and then fails, or writes less than it should.
type brokenPipe struct {
	good  int
	short bool
}

func (p *brokenPipe) Write(b []byte) (int, error) {
	if p.good--; p.good >= 0 {
		return len(b), nil
	}
	if p.short {
		return len(b) - 1, nil
	}
	return 0, errDisk
}

func TestWriteErrors(t *testing.T) {
	value := make([]byte, 1000)
	for good := range 12 {
		for _, short := range []bool{false, true} {
			w := NewWriter(&brokenPipe{good: good, short: short}, Options{Compression: table.CompressionNone})
			var err error
			for i := 0; i < 1500 && err == nil; i++ {
				if i == 700 { // one that is written on its own
					err = w.Add(benchKey(nil, i), make([]byte, 600<<10))
					continue
				}
				err = w.Add(benchKey(nil, i), value)
			}
			if err == nil {
				_, err = w.Finish(nil)
			}
			want := errDisk
			if short {
				want = io.ErrShortWrite
			}
			if err != nil && !errors.Is(err, want) {
				t.Fatalf("after %d writes: %v", good, err)
			}
			if err == nil && good < 5 {
				t.Fatalf("after %d writes: no error", good)
			}
			if _, again := w.Finish(nil); again == nil {
				t.Fatal("Finish after an error")
			}
		}
	}
}

// TestBlocksAreCut verifies that a frame is at most the block size unless it has a single entry.
func TestBlocksAreCut(t *testing.T) {
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		for _, value := range []int{0, 100, 1000, 5000, 70_000} {
			var entries []kv
			for i := range 300 {
				entries = append(entries, kv{benchKey(nil, i), make([]byte, value)})
			}
			file, m := build(t, Options{BlockBytes: size, Compression: table.CompressionNone}, nil, entries)
			tab := open(t, bytesSource(file), OpenOptions{})
			hs, ok := tab.index.root.handles()
			if !ok || uint64(len(hs)) != m.DataBlocks {
				t.Fatal("index")
			}
			for i, h := range hs {
				p, err := tab.file.read(h, kindData, 0)
				if err != nil {
					t.Fatal(err)
				}
				var b block
				if err := b.parse(p); err != nil {
					t.Fatal(err)
				}
				if n := h.stored + trailerBytes; n > size && b.entries > 1 {
					t.Fatalf("%d bytes in a block of %d", n, size)
				} else if i < len(hs)-1 && b.entries > 1 && n+value+100 < size {
					t.Fatalf("block of %d cut at %d", size, n)
				}
			}
		}
	}
}

// TestEstimatedSize verifies that the estimate is close while the table grows.
func TestEstimatedSize(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, Options{FilterPrefixes: benchPrefixes, Compression: table.CompressionNone})
	for i := range 5000 {
		if err := w.Add(benchKey(nil, i), make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	guess := w.EstimatedSize()
	m, err := w.Finish(nil)
	if err != nil {
		t.Fatal(err)
	}
	if guess < m.Size*95/100 || guess > m.Size*105/100 || w.EstimatedSize() != m.Size {
		t.Errorf("estimated %d, then %d, is %d", guess, w.EstimatedSize(), m.Size)
	}
	if w.Entries() != 5000 {
		t.Error(w.Entries())
	}
}

// TestIncompressibleIsRaw verifies that blocks that do not shrink are stored raw and read without a
// copy.
func TestIncompressibleIsRaw(t *testing.T) {
	for _, c := range benchCompressions {
		file := rowTable(t, 200, Options{Compression: c.c})
		tab := open(t, bytesSource(file), OpenOptions{})
		hs, _ := tab.index.root.handles()
		for _, h := range hs {
			if h.compressed {
				t.Fatalf("%s: random bytes were compressed", c.name)
			}
		}
		file = textTable(t, Options{Compression: c.c})
		tab = open(t, bytesSource(file), OpenOptions{})
		h, _ := tab.index.root.handle(0)
		if h.compressed != (c.c != table.CompressionNone) {
			t.Fatalf("%s: text compressed: %v", c.name, h.compressed)
		}
	}
}

// TestSameInputSameBytes verifies that a table depends only on the entries added.
func TestSameInputSameBytes(t *testing.T) {
	var first []byte
	for range 3 {
		file, _ := build(t, Options{BlockBytes: 1 << 10, FilterPrefixes: manyLens},
			map[string][]byte{"a": nil, "b": nil, "c": nil, "d": nil}, compatEntries(500))
		if first == nil {
			first = file
		}
		if !bytes.Equal(file, first) {
			t.Fatal("two files of the same entries differ")
		}
	}
}

func ExampleWriter() {
	var file bytes.Buffer
	w := NewWriter(&file, Options{})
	for _, word := range []string{"column", "row", "tablet"} {
		if err := w.Add([]byte(word), []byte{byte(len(word))}); err != nil {
			panic(err)
		}
	}
	meta, err := w.Finish(map[string][]byte{"language": []byte("en")})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d entries from %s to %s\n", meta.Entries, meta.FirstKey, meta.LastKey)
	// Output: 3 entries from column to tablet
}
