package sstable

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/steledb/stele/table"
)

// recordingGate is a Gate that admits every block and records the sizes.
type recordingGate []int

func (g *recordingGate) Enter(bytes int) error {
	*g = append(*g, bytes)
	return nil
}

// valueFor returns the length of the value for which a block with one entry and a key of one byte
// has raw bytes.
func valueFor(raw int) int {
	const near = 100_000 // as many bytes of length as all that are asked for
	b := blockBuilder{interval: defaultRestartInterval}
	return raw - (b.sizeWith(1, 0, near) - near)
}

// TestGateIsEntered: a gate is entered for each block larger than its limit, with the stored size
// before the block is read and again with a larger raw size, and for no other block.
func TestGateIsEntered(t *testing.T) {
	random := make([]byte, 4*GateBytes)
	randomBytes(newRand(t), random)
	const large = 3 * GateBytes
	for name, c := range map[string]struct {
		compression table.Compression
		value       []byte
		stored, raw int // that are asked for
	}{
		"at the bound":              {table.CompressionNone, random[:valueFor(GateBytes)], 0, 0},
		"above the bound":           {table.CompressionNone, random[:valueFor(GateBytes+1)], GateBytes + 1, 0},
		"at the bound, compressed":  {table.CompressionS2, make([]byte, valueFor(GateBytes)), 0, 0},
		"above it, compressed":      {table.CompressionS2, make([]byte, valueFor(GateBytes+1)), 0, GateBytes + 1},
		"large, and stored as much": {table.CompressionS2, append(make([]byte, valueFor(2*large)-large), random[:large]...), large, 2 * large},
	} {
		file, _ := build(t, Options{Compression: c.compression}, nil, []kv{{[]byte("k"), c.value}})
		for how, opts := range map[string]IterOptions{"cached": {}, "no fill": {NoCacheFill: true}, "read ahead": {NoCacheFill: true, ReadAheadBytes: 1 << 20}} {
			tab := open(t, bytesSource(file), OpenOptions{Cache: NewCache(64 << 20)})
			h, _ := tab.index.root.handle(0)
			var want recordingGate
			if c.stored > 0 {
				if h.stored < c.stored || h.stored > c.stored+c.stored/100 {
					t.Fatalf("%s: %d bytes are stored, not about %d", name, h.stored, c.stored)
				}
				want = append(want, h.stored)
			}
			if c.raw > 0 {
				want = append(want, c.raw)
			}
			for range 2 { // the second time it may be in the cache
				var gate recordingGate
				opts.Gate = &gate
				it := tab.NewIter(opts)
				if !it.First() || !bytes.Equal(it.Value(), c.value) || !slices.Equal(gate, want) {
					t.Errorf("%s, %s: the gate was entered with %v, want %v", name, how, gate, want)
				}
				it.Close()
			}
		}
	}
}

// TestLargeBytes: for an iterator with a gate, a block is large if it exceeds the gate's limit and
// has one entry.
func TestLargeBytes(t *testing.T) {
	big := make([]byte, 2*GateBytes)
	for name, c := range map[string]struct {
		gate   Gate
		values [][]byte
		want   int
	}{
		"at the bound":    {openGate{}, [][]byte{big[:valueFor(GateBytes)]}, 0},
		"above the bound": {openGate{}, [][]byte{big[:valueFor(GateBytes+1)]}, GateBytes + 1},
		"no gate":         {nil, [][]byte{big}, 0},
		"small":           {openGate{}, [][]byte{big[:10]}, 0},
		"small, no gate":  {nil, [][]byte{big[:10]}, 0},
		"two entries":     {openGate{}, [][]byte{big[:GateBytes], big[:GateBytes]}, 0},
	} {
		var entries []kv
		for i, v := range c.values {
			entries = append(entries, kv{[]byte{byte('a' + i)}, v})
		}
		file, m := build(t, Options{BlockBytes: 1 << 20, Compression: table.CompressionNone}, nil, entries)
		if m.DataBlocks != 1 {
			t.Fatalf("%s: %d blocks", name, m.DataBlocks)
		}
		it := open(t, bytesSource(file), OpenOptions{}).NewIter(IterOptions{Gate: c.gate})
		if it.First(); it.LargeBytes() != c.want {
			t.Errorf("%s: %d bytes are large, want %d", name, it.LargeBytes(), c.want)
		}
		if it.ReleaseValue(); it.LargeBytes() != 0 || !bytes.Equal(it.Value(), c.values[0]) || it.LargeBytes() != c.want {
			t.Errorf("%s: after a block was let go of its value has %d bytes, %d are large", name, len(it.Value()), it.LargeBytes())
		}
		it.Close()
	}
}

// movingSource is a source whose bytes change.
type movingSource struct{ bytesSource }

// TestLetGoAndReplaced: a released block that has other entries when it is read again is corrupt,
// though its checksum is valid.
func TestLetGoAndReplaced(t *testing.T) {
	key, value := []byte("key1"), bytes.Repeat([]byte("v"), 2*GateBytes)
	opts := Options{Compression: table.CompressionNone}
	file, _ := build(t, opts, nil, []kv{{key, value}})
	other, _ := build(t, opts, nil, []kv{{[]byte("key2"), value}})
	src := &movingSource{file}
	tab := open(t, src, OpenOptions{Name: "f"})
	h, _ := tab.index.root.handle(0)
	replaced := func(stored []byte) []byte {
		p := bytes.Clone(file)
		copy(p[h.off:h.end()], appendTrailer(bytes.Clone(stored), stored, kindData, table.CompressionNone, len(stored), h.off))
		return p
	}
	empty := make([]byte, h.stored) // no entries, and all of it values
	for i := range 4 {
		empty[h.stored-4+i] = byte((h.stored - blockTailBytes) >> (8 * i))
	}
	for name, p := range map[string][]byte{
		"another key": other, "no entry": replaced(empty), "no block": replaced(bytes.Repeat([]byte{0xff}, h.stored)),
	} {
		it := tab.NewIter(IterOptions{Gate: openGate{}})
		if !it.SeekGE(key) {
			t.Fatal(it.Err())
		}
		it.ReleaseValue()
		src.bytesSource = p
		var bad *CorruptError
		if v := it.Value(); v != nil || !errors.As(it.Err(), &bad) || bad.Offset != h.off || bad.File != "f" || it.Valid() {
			t.Errorf("%s: a value of %d bytes, %v", name, len(v), it.Err())
		}
		src.bytesSource = file
		if !it.SeekGE(key) || !bytes.Equal(it.Value(), value) {
			t.Errorf("%s: later the entry is not found: %v", name, it.Err())
		}
		it.Close()
	}
}

// TestReadAheadNeedsNoCacheFill: an iterator that fills the cache ignores ReadAheadBytes, and one
// that reads block by block does not report cached blocks.
func TestReadAheadNeedsNoCacheFill(t *testing.T) {
	file, m := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone}, nil, bigEntries(300))
	for name, c := range map[string]struct {
		opts         IterOptions
		fills, tells bool
	}{
		"fills":              {IterOptions{}, true, false},
		"fills, reads ahead": {IterOptions{ReadAheadBytes: 64 << 10}, true, false},
		"leaves":             {IterOptions{NoCacheFill: true}, false, false},
		"leaves, ahead":      {IterOptions{NoCacheFill: true, ReadAheadBytes: 64 << 10}, false, true},
	} {
		tab := open(t, bytesSource(file), OpenOptions{Cache: NewCache(64 << 20)})
		if _, err := entriesOf(tab, c.opts); err != nil {
			t.Fatal(err)
		}
		tab.cache.blocks.CleanUp()
		if n := tab.cache.Stats().Blocks; n != 0 && !c.fills || c.fills && n < int(m.DataBlocks) {
			t.Errorf("%s: %d of %d blocks are cached", name, n, m.DataBlocks)
		}
		if _, err := entriesOf(tab, IterOptions{}); err != nil {
			t.Fatal(err)
		}
		it := tab.NewIter(c.opts)
		if it.First(); it.Cached() != c.tells {
			t.Errorf("%s: the block was cached: %v", name, it.Cached())
		}
		it.Close()
	}
}
