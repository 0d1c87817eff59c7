package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/table"
)

// TestOneRead verifies the paper's §4 and §6: an open table answers a lookup with one read, from
// the cache with none, and with none if the filter excludes the key.
func TestOneRead(t *testing.T) {
	var entries []kv
	for i := range 20_000 {
		entries = append(entries, kv{benchKey(nil, 2*i), make([]byte, 100)})
	}
	file, m := build(t, Options{BlockBytes: 1 << 10, FilterPrefixes: benchPrefixes}, nil, entries)
	src := &countingSource{Source: bytesSource(file)}
	tab := open(t, src, OpenOptions{Cache: NewCache(1 << 30)})
	if !tab.index.deep {
		t.Fatal("want a deep index")
	}
	if n := src.reads.Load(); n > 4 {
		t.Errorf("%d reads to open", n)
	}
	src.reads.Store(0)
	it := tab.NewIter(IterOptions{})
	defer it.Close()
	for i := 0; i < len(entries); i += 100 {
		before := src.reads.Load()
		for range 2 {
			if !it.SeekGE(entries[i].key[:benchColumnLen]) || !bytes.Equal(it.Key(), entries[i].key) {
				t.Fatal(it.Err())
			}
			it.SeekGE(nil)
		}
		if n := src.reads.Load() - before; n > 2 { // one is of the first block
			t.Fatalf("%d reads for a look-up", n)
		}
	}
	src.reads.Store(0)
	passed := 0
	for i := range 10_000 {
		if tab.MayContain(benchKey(nil, 2*i+1)[:benchRowLen]) {
			passed++
		}
	}
	if passed > 80 || src.reads.Load() != 0 {
		t.Errorf("the filter let %d of 10000 absent rows pass, with %d reads", passed, src.reads.Load())
	}
	if tab.MemoryBytes() < int64(m.IndexBytes+m.FilterBytes) || tab.MemoryBytes() > 3*int64(m.IndexBytes+m.FilterBytes) {
		t.Errorf("%d bytes of memory for %d of index and %d of filter", tab.MemoryBytes(), m.IndexBytes, m.FilterBytes)
	}
}

// TestNoAllocations verifies that lookups and steps in cached blocks do not allocate.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		return // the race detector's pools allocate on purpose
	}
	for _, size := range []int{1 << 10, 64 << 10} {
		var entries []kv
		for i := range 20_000 {
			entries = append(entries, kv{benchKey(nil, i), make([]byte, 100)})
		}
		file, _ := build(t, Options{BlockBytes: size, Compression: table.CompressionNone, FilterPrefixes: benchPrefixes}, nil, entries)
		for _, max := range []int64{0, -1} {
			tab := open(t, bytesSource(file), OpenOptions{Cache: NewCache(1 << 30), IndexBytesMax: max})
			if _, err := entriesOf(tab, IterOptions{}); err != nil {
				t.Fatal(err)
			}
			i := 0
			if n := testing.AllocsPerRun(1000, func() {
				i = (i + 7919) % len(entries)
				if !tab.MayContain(entries[i].key[:benchRowLen]) {
					t.Fatal("filter")
				}
				it := tab.NewIter(IterOptions{Upper: entries[len(entries)-1].key})
				it.SeekGE(entries[i].key)
				it.Close()
			}); n > 0.01 {
				t.Errorf("block %d, index %d: %v allocations a look-up", size, max, n)
			}
			it := tab.NewIter(IterOptions{})
			it.First()
			if n := testing.AllocsPerRun(10_000, func() { it.Next() }); n > 0.01 {
				t.Errorf("block %d, index %d: %v allocations a step", size, max, n)
			}
			it.Close()
			// Nor do iterators that do not fill the cache.
			it = tab.NewIter(IterOptions{NoCacheFill: true, ReadAheadBytes: 1 << 20})
			it.First()
			if n := testing.AllocsPerRun(10_000, func() { it.Next() }); n > 0.01 {
				t.Errorf("block %d, index %d: %v allocations a step without fill", size, max, n)
			}
			it.Close()
		}
	}
}

// TestCacheBudget verifies S8, Resize and NoCacheFill.
func TestCacheBudget(t *testing.T) {
	file, m := build(t, Options{BlockBytes: 4 << 10, Compression: table.CompressionNone}, nil, bigEntries(5000))
	cache := NewCache(1 << 20)
	tab := open(t, bytesSource(file), OpenOptions{Cache: cache})
	if _, err := entriesOf(tab, IterOptions{NoCacheFill: true}); err != nil {
		t.Fatal(err)
	}
	if s := cache.Stats(); s.Blocks != 0 || s.Misses != 0 || s.Hits != 0 {
		t.Errorf("after a scan that does not fill: %+v", s)
	}
	if _, err := entriesOf(tab, IterOptions{}); err != nil {
		t.Fatal(err)
	}
	within := func(budget int64) {
		t.Helper()
		cache.blocks.CleanUp()
		if s := cache.Stats(); s.Bytes > budget || s.Budget != budget {
			t.Errorf("%+v, want at most %d bytes", s, budget)
		}
	}
	within(1 << 20)
	if s := cache.Stats(); s.Bytes < 1<<19 || s.Evictions == 0 {
		t.Errorf("little was kept: %+v", s)
	}
	cache.Resize(100 << 10)
	within(100 << 10)
	cache.Resize(0)
	within(0)
	if _, err := entriesOf(tab, IterOptions{}); err != nil {
		t.Fatal(err)
	}
	within(0)
	cache.Resize(64 << 20)
	for range 2 {
		if _, err := entriesOf(tab, IterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	within(64 << 20)
	s := cache.Stats()
	if s.Blocks != int(m.DataBlocks) || s.Bytes < int64(m.DataBytes) {
		t.Errorf("after growth: %+v, want %d blocks of %d bytes", s, m.DataBlocks, m.DataBytes)
	}
	tab.DropCached()
	if s := cache.Stats(); s.Blocks != 0 {
		t.Errorf("after DropCached: %+v", s)
	}
}

func bigEntries(n int) []kv {
	var es []kv
	for i := range n {
		es = append(es, kv{benchKey(nil, i), make([]byte, 1000)})
	}
	return es
}

// TestHugeBlockIsNotCached verifies that one value does not evict everything else.
func TestHugeBlockIsNotCached(t *testing.T) {
	es := []kv{{[]byte("a"), make([]byte, 1<<20)}, {[]byte("b"), []byte("small")}}
	file, _ := build(t, Options{}, nil, es)
	cache := NewCache(2 << 20)
	tab := open(t, bytesSource(file), OpenOptions{Cache: cache})
	for range 2 {
		if got, err := entriesOf(tab, IterOptions{}); err != nil || !equalEntries(got, es) {
			t.Fatal(err)
		}
	}
	if s := cache.Stats(); s.Blocks != 1 {
		t.Errorf("%+v", s)
	}
}

// TestDropCachedDeep drops a table whose index is in the cache too.
func TestDropCachedDeep(t *testing.T) {
	file, _ := build(t, Options{BlockBytes: 1 << 10}, nil, bigEntries(5000))
	cache := NewCache(1 << 30)
	a := open(t, bytesSource(file), OpenOptions{Cache: cache, IndexBytesMax: -1})
	b := open(t, bytesSource(file), OpenOptions{Cache: cache, FileNum: 7})
	for _, tab := range []*Table{a, b} {
		if _, err := entriesOf(tab, IterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	blocks := cache.Stats().Blocks
	a.DropCached()
	left := cache.Stats().Blocks
	if left != 5000 || blocks <= 10_000 {
		t.Errorf("%d blocks, %d after one of two tables was dropped", blocks, left)
	}
	b.DropCached()
	if s := cache.Stats(); s.Blocks != 0 {
		t.Errorf("%+v", s)
	}
}

// slowSource waits before each read, and can panic.
type slowSource struct {
	countingSource
	gate  chan struct{}
	panic atomic.Bool
}

func (s *slowSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if s.gate != nil {
		<-s.gate
	}
	if s.panic.Load() {
		panic("source broke")
	}
	return s.countingSource.ReadChecked(p, off, ok)
}

// TestMissesShareOneRead makes many iterators miss one block at the same time.
func TestMissesShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, _ := build(t, Options{}, nil, bigEntries(10))
		src := &slowSource{countingSource: countingSource{Source: bytesSource(file)}}
		tab := open(t, src, OpenOptions{Cache: NewCache(1 << 20)})
		src.reads.Store(0)
		src.gate = make(chan struct{})
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				it := tab.NewIter(IterOptions{})
				defer it.Close()
				if !it.First() {
					t.Error(it.Err())
				}
			})
		}
		synctest.Wait() // until one is in the source and the rest wait for it
		close(src.gate)
		wg.Wait()
		if n := src.reads.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}

// TestPanicInRead verifies that a panic in a source does not block waiters for ever.
func TestPanicInRead(t *testing.T) {
	file, _ := build(t, Options{}, nil, bigEntries(10))
	src := &slowSource{countingSource: countingSource{Source: bytesSource(file)}}
	tab := open(t, src, OpenOptions{Cache: NewCache(1 << 20)})
	src.panic.Store(true)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		it := tab.NewIter(IterOptions{})
		it.First()
	}()
	src.panic.Store(false)
	if got, err := entriesOf(tab, IterOptions{}); err != nil || len(got) != 10 {
		t.Error(len(got), err)
	}
	for i := range tab.cache.flights {
		if len(tab.cache.flights[i].calls) > 0 {
			t.Error("a read is still under way")
		}
	}
	if errFlight == nil || errors.Is(errFlight, ErrCorrupt) {
		t.Error("waiters get a corruption error")
	}
}

// TestManyReaders runs iterators of several tables on a small cache that is resized and dropped
// concurrently. It is for the race detector.
func TestManyReaders(t *testing.T) {
	cache := NewCache(256 << 10)
	var tables []*Table
	var all [][]kv
	for i, c := range benchCompressions {
		es := compatEntries(400)
		file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: c.c, FilterPrefixes: someLens}, nil, es)
		tables = append(tables, open(t, bytesSource(file), OpenOptions{Cache: cache, IndexBytesMax: int64(-(i % 2))}))
		all = append(all, es)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			kept := [][]byte{}
			for i := range 300 {
				n := (g + i) % len(tables)
				tab, es := tables[n], all[n]
				it := tab.NewIter(IterOptions{NoCacheFill: i%5 == 0, ReadAheadBytes: 4096 * (i % 2)})
				at := (g*131 + i*17) % len(es)
				for ok := it.SeekGE(es[at].key); ok && at%20 != 19; ok = it.Next() {
					if !bytes.Equal(it.Key(), es[at].key) || !bytes.Equal(it.Value(), es[at].value) {
						t.Errorf("at %q, want %q", it.Key(), es[at].key)
					}
					kept = append(kept, it.Value())
					at++
				}
				if err := it.Close(); err != nil {
					t.Error(err)
				}
				if !tab.MayContain(es[at%len(es)].key) {
					t.Error("filter")
				}
				switch {
				case g == 0 && i%50 == 0:
					cache.Resize(int64(i) << 10)
				case g == 1 && i%40 == 0:
					tab.DropCached()
				case g == 2:
					cache.Stats()
				}
			}
			for _, v := range kept {
				if len(v) > 0 && (v[0] != v[len(v)-1]) {
					t.Error("a value that was kept has changed")
				}
			}
		})
	}
	wg.Wait()
}

// A single full scan does not evict frequently read blocks, even if they became hot before the
// cache was full.
func TestCacheOutlastsScan(t *testing.T) {
	const blocks, hot = 500, 40
	var entries []kv
	for i := range blocks {
		entries = append(entries, kv{fmt.Appendf(nil, "key%06d", i), bytes.Repeat([]byte{byte(i)}, 8<<10)})
	}
	file, _ := build(t, Options{BlockBytes: 8 << 10, Compression: table.CompressionNone}, nil, entries)
	src := &countingSource{Source: bytesSource(file)}
	cache := NewCache(1 << 20) // of 4 MB
	tab := open(t, src, OpenOptions{Cache: cache})
	read := func() int64 {
		before := src.reads.Load()
		for i := range hot {
			it := tab.NewIter(IterOptions{})
			if key := entries[i*(blocks/hot)].key; !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
				t.Fatalf("%s is not there: %v", key, it.Err())
			}
			it.Close()
			cache.blocks.CleanUp() // by itself it hears of hits late, and not of all
		}
		return src.reads.Load() - before
	}
	for range 10 {
		read()
	}
	if n := read(); n > 0 {
		t.Fatalf("%d reads of %d hot blocks before the scan", n, hot)
	}
	it := tab.NewIter(IterOptions{})
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
		cache.blocks.CleanUp()
	}
	if err := it.Close(); err != nil || n != blocks {
		t.Fatalf("%d entries, %v", n, err)
	}
	if n := read(); n > hot/4 {
		t.Errorf("%d reads of %d hot blocks after a scan of all", n, hot)
	}
}
