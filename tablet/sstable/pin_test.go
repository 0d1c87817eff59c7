package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
)

func pinEntries(n int) []kv {
	var all []kv
	for i := range n {
		all = append(all, kv{fmt.Appendf(nil, "key%06d", i), bytes.Repeat(fmt.Appendf(nil, "%d.", i), 30)})
	}
	return all
}

// Pinned blocks are read without the source by every reader, and leave the cache.
func TestPin(t *testing.T) {
	entries := pinEntries(12_000)
	for _, c := range []struct {
		name     string
		opts     Options
		indexMax int64
	}{
		{"compressed", Options{BlockBytes: 2 << 10, Compression: table.CompressionS2}, 0},
		{"as it is", Options{BlockBytes: 2 << 10, Compression: table.CompressionNone}, 0},
		{"deep index", Options{BlockBytes: 1 << 10, Compression: table.CompressionZstd}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, _ := build(t, c.opts, nil, entries)
			src := &countingSource{Source: bytesSource(file)}
			cache := NewCache(64 << 20)
			tab := open(t, src, OpenOptions{Cache: cache, IndexBytesMax: c.indexMax})
			if deep := tab.index.deep && tab.index.leaves == nil; deep != (c.indexMax == 1) {
				t.Fatalf("the index is read block by block: %v", deep)
			}
			if _, err := entriesOf(tab, IterOptions{}); err != nil || cache.Stats().Blocks == 0 {
				t.Fatalf("%v, %d blocks cached", err, cache.Stats().Blocks)
			}
			granted := int64(0)
			if err := tab.Pin(t.Context(), nil, nil, func(n int64) bool { granted += n; return true }); err != nil {
				t.Fatal(err)
			}
			if granted != tab.PinnedBytes() || granted < int64(len(file)) && c.opts.Compression == table.CompressionNone {
				t.Errorf("%d bytes granted, %d pinned, of a file of %d", granted, tab.PinnedBytes(), len(file))
			}
			cache.blocks.CleanUp()
			if n := cache.Stats().Blocks; n > 0 {
				t.Errorf("%d blocks are in the cache as well", n)
			}
			before := src.reads.Load()
			for _, opts := range []IterOptions{{}, {NoCacheFill: true}, {NoCacheFill: true, ReadAheadBytes: 1 << 20}} {
				got, err := entriesOf(tab, opts)
				if err != nil || len(got) != len(entries) {
					t.Fatalf("%+v: %d entries, %v", opts, len(got), err)
				}
				for i := range got {
					if !bytes.Equal(got[i].key, entries[i].key) || !bytes.Equal(got[i].value, entries[i].value) {
						t.Fatalf("%+v: entry %d is %q", opts, i, got[i].key)
					}
				}
			}
			if n := src.reads.Load() - before; n != 0 {
				t.Errorf("%d reads of what is pinned", n)
			}
			tab.Unpin()
			if _, err := entriesOf(tab, IterOptions{}); err != nil || src.reads.Load() == before || tab.PinnedBytes() != 0 {
				t.Errorf("unpinned: %v, %d reads, %d bytes", err, src.reads.Load()-before, tab.PinnedBytes())
			}
		})
	}
}

// Only blocks with keys within the bounds are pinned.
func TestPinBounds(t *testing.T) {
	entries := pinEntries(4000)
	file, _ := build(t, Options{BlockBytes: 2 << 10, Compression: table.CompressionNone}, nil, entries)
	for _, c := range []struct{ from, to int }{{0, 1000}, {1000, 3000}, {3999, 4000}, {0, 4000}} {
		src := &countingSource{Source: bytesSource(file)}
		tab := open(t, src, OpenOptions{})
		lower, upper := fmt.Appendf(nil, "key%06d", c.from), fmt.Appendf(nil, "key%06d", c.to)
		if err := tab.Pin(t.Context(), lower, upper, func(int64) bool { return true }); err != nil {
			t.Fatal(err)
		}
		before := src.reads.Load()
		got, err := entriesOf(tab, IterOptions{Lower: lower, Upper: upper})
		if want := c.to - c.from; err != nil || len(got) != want || src.reads.Load() != before {
			t.Errorf("%+v: %d entries, %v, %d reads", c, len(got), err, src.reads.Load()-before)
		}
		share := int64(0)
		for _, e := range got {
			share += int64(len(e.key) + len(e.value))
		}
		if n := tab.PinnedBytes(); n < share*7/8 || n > share*9/8+8<<10 {
			t.Errorf("%+v: %d bytes pinned, of about %d", c, n, share)
		}
	}
}

// Without memory, or with an unreadable block, nothing is pinned, and the granted bytes are known.
func TestPinFails(t *testing.T) {
	file, _ := build(t, Options{BlockBytes: 2 << 10, Compression: table.CompressionNone}, nil, pinEntries(4000))
	tab := open(t, bytesSource(file), OpenOptions{})
	granted := int64(0)
	err := tab.Pin(t.Context(), nil, nil, func(n int64) bool {
		if granted+n > 100<<10 {
			return false
		}
		granted += n
		return true
	})
	if !errors.Is(err, ErrNoGrant) || tab.PinnedBytes() != 0 {
		t.Errorf("%v, %d bytes pinned", err, tab.PinnedBytes())
	}
	file[len(file)/2] ^= 1
	var bad *CorruptError
	if err := tab.Pin(t.Context(), nil, nil, func(int64) bool { return true }); !errors.As(err, &bad) || tab.PinnedBytes() != 0 {
		t.Errorf("a corrupt block: %v, %d bytes pinned", err, tab.PinnedBytes())
	}
}
