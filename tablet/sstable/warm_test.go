package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/table"
)

// rewritten copies a table like a compaction, and opens the copy.
func rewritten(t *testing.T, tab *Table, cache *Cache, opts Options) *Table {
	t.Helper()
	var out bytes.Buffer
	opts.Cache = cache
	w := NewWriter(&out, opts)
	it := tab.NewIter(IterOptions{NoCacheFill: true, ReadAheadBytes: 1 << 20})
	for ok := it.First(); ok; ok = it.Next() {
		if err := w.Add(it.Key(), it.Value()); err != nil {
			t.Fatal(err)
		}
		if it.Cached() {
			w.WasCached(len(it.Key()) + len(it.Value()))
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	n := open(t, &countingSource{Source: bytesSource(out.Bytes())}, OpenOptions{Cache: cache, FileNum: w.FileNum()})
	if err := n.Warm(t.Context(), w.Warm(), 64<<10, tab.DropCachedIn, func([]byte, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// lookUp reads entries and returns how many reads of the file that took.
func lookUp(t *testing.T, tab *Table, entries []kv) int64 {
	t.Helper()
	src := tab.file.src.(*countingSource)
	before := src.reads.Load()
	for _, e := range entries {
		it := tab.NewIter(IterOptions{})
		if !it.SeekGE(e.key) || !bytes.Equal(it.Key(), e.key) || !bytes.Equal(it.Value(), e.value) {
			t.Fatalf("%q: %q, %v", e.key, it.Key(), it.Err())
		}
		it.Close()
	}
	return src.reads.Load() - before
}

// In a rewritten file, the blocks whose entries were cached before are cached, and no others.
func TestBlocksStayCached(t *testing.T) {
	for _, c := range []table.Compression{table.CompressionNone, table.CompressionS2, table.CompressionZstd, table.CompressionTwoPass} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var entries []kv
			for i := range 4000 {
				entries = append(entries, kv{fmt.Appendf(nil, "row%06d", i), bytes.Repeat(fmt.Appendf(nil, "value %d, ", i), 10+i%7)})
			}
			opts := Options{BlockBytes: 4 << 10, Compression: c, learnMin: 16 << 10, LearnBytes: 64 << 10}
			file, _ := build(t, opts, nil, entries)
			cache := NewCache(64 << 20)
			old := open(t, &countingSource{Source: bytesSource(file)}, OpenOptions{Cache: cache})
			hot, cold := entries[1000:2000], entries[2100:3000]
			if lookUp(t, old, hot) == 0 {
				t.Fatal("no reads to fill the cache")
			}
			tab := rewritten(t, old, cache, Options{BlockBytes: 8 << 10, Compression: c, learnMin: 16 << 10, LearnBytes: 64 << 10})
			if n := lookUp(t, tab, hot); n > 2 { // the first and the last block are shared with others
				t.Errorf("%d reads of what was in memory before", n)
			}
			if n := lookUp(t, tab, cold); n < 15 {
				t.Errorf("%d reads of what was not", n)
			}
			old.DropCached()
			tab.DropCached()
			cache.blocks.CleanUp()
			if n := cache.Stats().Blocks; n != 0 {
				t.Errorf("%d blocks of files that are gone", n)
			}
		})
	}
}

// Most blocks of a rewritten file stay in a cache that is full of other blocks, which are read as
// well.
func TestBlocksStayCachedInFullCache(t *testing.T) {
	const blockBytes, tables, blocks = 2 << 10, 16, 400
	r := newRand(t)
	cache := NewCache(tables * blocks / 4 * blockBytes * rowShare / (rowShare - 1)) // capacity for a quarter of all blocks
	opts := Options{BlockBytes: blockBytes, Compression: table.CompressionNone}
	var tabs []*Table
	var all [][]kv
	for n := range tables {
		var entries []kv
		for i := range blocks {
			entries = append(entries, kv{fmt.Appendf(nil, "table%02d row%06d", n, i), bytes.Repeat([]byte{byte(i)}, blockBytes-200)})
		}
		file, _ := build(t, opts, nil, entries)
		tabs = append(tabs, open(t, &countingSource{Source: bytesSource(file)}, OpenOptions{Cache: cache}))
		all = append(all, entries)
	}
	order := r.Perm(tables * blocks)
	zipf := rand.NewZipf(r, 1.01, 20, tables*blocks-1)
	// misses makes times lookups in all tables and returns the miss rate of those in table of.
	misses := func(times, of int) float64 {
		var reads, lookups int64
		for range times {
			at := order[zipf.Uint64()]
			n, row := at/blocks, at%blocks
			miss := lookUp(t, tabs[n], all[n][row:row+1])
			if n == of {
				reads, lookups = reads+miss, lookups+1
			}
		}
		return float64(reads) / float64(lookups)
	}
	misses(50_000, 0)
	var before, after float64
	for n := range tables {
		before += misses(10_000, n) / tables
		tab := rewritten(t, tabs[n], cache, opts)
		tabs[n].DropCached()
		tabs[n] = tab
		after += misses(2000, n) / tables
	}
	t.Logf("misses per lookup: %.2f before the rewrite of a file, %.2f after", before, after)
	if after > before+0.25 { // 0.4 more if nothing of it is in the cache
		t.Errorf("misses per lookup: %.2f before the rewrite of a file, %.2f after", before, after)
	}
	if s := cache.Stats(); s.Bytes > s.Budget {
		t.Errorf("%d bytes in a cache of %d", s.Bytes, s.Budget)
	}
}
