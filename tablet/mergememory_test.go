package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// TestCompactionMemory (I13): a compaction of files with huge values takes as many at once as its
// memory allows, at least two, also after a restart. A major one still leaves one file with all
// entries.
func TestCompactionMemory(t *testing.T) {
	const value, files = 1 << 20, 5
	for _, test := range []struct {
		memory int64
		merges int64
	}{
		{64 << 20, 1},
		{3*(2*value+64) + 3*readAheadBytes, 2}, // three, and then their result and two
		{1, 4},
	} {
		t.Run(fmt.Sprint(test.memory), func(t *testing.T) {
			e := newEnv(t, Config{CompactionMemory: test.memory, FilesMerge: 20, FilesMax: 40}, "f:compression=none")
			for i := range files {
				e.mustApply(fmt.Sprint("row", i), table.Set("f", nil, 1, make([]byte, value+i)))
				if err := e.Compact(t.Context(), testTable, false); err != nil {
					t.Fatal(err)
				}
			}
			e.crash()
			e.open()
			before := e.Stats().MergingCompactions
			if err := e.Compact(t.Context(), testTable, true); err != nil {
				t.Fatal(err)
			}
			if n := e.Stats().MergingCompactions - before; n != test.merges {
				t.Errorf("%d merges, want %d", n, test.merges)
			}
			for i := range files {
				if got := e.read(fmt.Sprint("row", i), nil); len(got) != 1 {
					t.Errorf("row%d has %d cells", i, len(got))
				}
			}
			for _, x := range e.served.all() {
				v, _, err := x.views.acquire()
				if err != nil {
					t.Fatal(err)
				}
				if n := len(v.groups[0].files); n != 1 {
					t.Errorf("%d files", n)
				}
				v.release()
			}
		})
	}
}

// TestMergeableRangeIsCheap: if only two files of huge values may be read at once, large ones are
// not rewritten for every new file.
func TestMergeableRangeIsCheap(t *testing.T) {
	s := &Server{cfg: Config{CompactionMemory: 1}}
	const size, joined = 10 << 20, 100 // a tablet of 1 GiB
	var files []*file
	written := int64(0)
	for range joined {
		files = append(files, &file{bytes: size, largest: size})
		for {
			var sizes []int64
			for _, f := range files {
				sizes = append(sizes, f.bytes)
			}
			from, to := pickMerge(sizes, 6)
			if from == to {
				break
			}
			less, end := mergeableRange(files[from:to], s.cfg.CompactionMemory)
			if end-less != 2 {
				t.Fatalf("files %d to %d of %d", less, end, to-from)
			}
			from, to = from+less, from+end
			sum := files[from].bytes + files[from+1].bytes
			written += sum
			files = slices.Replace(files, from, to, &file{bytes: sum, largest: size})
		}
	}
	if times := written / size / joined; times > 12 {
		t.Errorf("each byte is written %d times by merges", times)
	}
}

// TestCompactionsWaitForMemory (I13): a compaction that gets no memory waits without blocking
// writes or minor compactions. It ends with its context, and when a tablet is to be split or
// unloaded.
func TestCompactionsWaitForMemory(t *testing.T) {
	e := newEnv(t, Config{FilesMerge: 20, FilesMax: 40}, "f:compression=none")
	x := e.served.all()[0]
	fill := func() {
		for i := range 3 {
			e.mustApply(fmt.Sprint("row", i), table.Set("f", nil, 1, make([]byte, 1<<20)))
			if err := x.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	releaseAll, err := e.compactionMemory.Merge(t.Context(), e.Server.cfg.CompactionMemory)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Compact(ctx, testTable, true) }()
	for x.merge.mu.TryLock() {
		x.merge.mu.Unlock()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	fill()
	x.merge.stop()
	x.merge.mu.Unlock()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if n := e.Stats().MergingCompactions; n != 0 {
		t.Errorf("%d merges without memory", n)
	}
	releaseAll()
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if n := e.Stats().MergingCompactions; n != 1 {
		t.Errorf("%d merges with memory", n)
	}
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := e.compactionMemory.Merge(within, e.Server.cfg.CompactionMemory); err != nil {
		t.Errorf("memory is reserved without compactions: %v", err)
	}
}

// TestMoveMemory (I13): a compaction that moves families between groups reads the files of all
// groups. If memory does not suffice, some are merged before.
func TestMoveMemory(t *testing.T) {
	const value = 64 << 10
	for _, test := range []struct{ memory, merges int64 }{
		{64 << 20, 1}, {1 << 20, 2}, {1, 4},
	} {
		t.Run(fmt.Sprint(test.memory), func(t *testing.T) {
			e := newEnv(t, Config{CompactionMemory: test.memory, FilesMerge: 20, FilesMax: 40}, "f:compression=none", "other:compression=none")
			put := func(i int) {
				e.mustApply(fmt.Sprint("row", i), table.Set("f", nil, 1, make([]byte, value)), table.Set("other", nil, 1, make([]byte, value)))
				if err := e.Compact(t.Context(), testTable, false); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 {
				put(i)
			}
			e.move("f", "new")
			put(3)
			if err := e.Compact(t.Context(), testTable, true); err != nil {
				t.Fatal(err)
			}
			if n := e.Stats().MergingCompactions; n != test.merges {
				t.Errorf("%d merges, want %d", n, test.merges)
			}
			for i := range 4 {
				if got := e.read(fmt.Sprint("row", i), nil); len(got) != 2 {
					t.Errorf("row%d has %d cells", i, len(got))
				}
			}
		})
	}
}

// TestRewriteKeepsLittle (I13): a compaction holds as many large values of its files as its memory
// allows, at least one, and gets all of them.
func TestRewriteKeepsLittle(t *testing.T) {
	const value, files, rows = 1 << 20, 4, 5
	for _, memory := range []int64{1, 8 << 20, 1 << 30} {
		for _, compression := range []string{"none", "zstd"} {
			t.Run(fmt.Sprint(memory, compression), func(t *testing.T) {
				e := newEnv(t, Config{FilesMerge: 20, FilesMax: 40}, "f:compression="+compression)
				for range files {
					for i := range rows {
						e.mustApply(fmt.Sprint("row", i), table.Set("f", nil, table.ServerTimestamp, make([]byte, value)))
					}
					if err := e.Compact(t.Context(), testTable, false); err != nil {
						t.Fatal(err)
					}
				}
				v, _, err := e.served.all()[0].views.acquire()
				if err != nil {
					t.Fatal(err)
				}
				defer v.release()
				old := v.groups[0].files
				takes, budget := rewriteBytes(old, memory)
				if len(old) != files || takes > max(memory, 4*value+files*readAheadBytes+1<<10) || budget < value {
					t.Fatalf("%d files take %d, and keep %d", len(old), takes, budget)
				}
				sources, large := rewriteSources(old, budget, func(int) {})
				defer large.close()
				var m merge
				m.reset(sources)
				most, n := 0, 0
				for m.first(); m.valid(); m.next() {
					if len(m.value()) != value {
						t.Fatalf("a value of %d bytes, %v", len(m.value()), m.err)
					}
					n++
					held := 0
					for _, it := range large.iters {
						held += it.LargeBytes()
					}
					most = max(most, held)
				}
				// A compressed value is known to be large only once it is read, and is held beside
				// the others.
				if m.err != nil || n != files*rows || int64(most) > budget+value {
					t.Errorf("%d entries, %d bytes of values at a time, of %d; %v", n, most, budget, m.err)
				}
				if memory == 1<<30 && most < files*value {
					t.Errorf("%d bytes were kept, and there was memory for all", most)
				}
			})
		}
	}
}

// TestCacheShrinks (I13): the block cache shrinks by what a compaction or a load uses beyond its
// share.
func TestCacheShrinks(t *testing.T) {
	const cache, share = 64 << 20, 4 << 20
	e := newEnv(t, Config{CacheBytes: cache, CompactionMemory: share, RecoveryMemory: share}, "f")
	before := e.readMemory.Cache().Stats().Budget
	for _, c := range []struct {
		name        string
		acquire     func(context.Context, int64) (func(), error)
		bytes, less int64
	}{
		{"a small compaction", e.compactionMemory.Merge, share, 0},
		{"a large compaction", e.compactionMemory.Merge, 5 * share, 4 * share},
		{"a load", e.compactionMemory.Recover, share / 2, share / 2},
		{"a large load", e.compactionMemory.Recover, 5 * share, 5 * share},
	} {
		release, err := c.acquire(t.Context(), c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if less := before - e.readMemory.Cache().Stats().Budget; less != c.less {
			t.Errorf("%s: the cache shrinks by %d bytes, want %d", c.name, less, c.less)
		}
		if c.bytes >= share { // another waits
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.acquire(ctx, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: another beside it: %v", c.name, err)
			}
		}
		release()
		if now := e.readMemory.Cache().Stats().Budget; now != before {
			t.Errorf("%s: the cache has %d bytes afterwards, want %d", c.name, now, before)
		}
	}
}

// createsWatched calls created for each file of a minor compaction.
type createsWatched struct {
	storage.Blobs
	created func()
}

func (b createsWatched) CreateHighPriority(ctx context.Context, bytes int64) (storage.BlobWriter, error) {
	b.created()
	return b.Blobs.CreateHighPriority(ctx, bytes)
}

// TestMinorMemory (I13): a minor compaction reserves memory for the block of the largest value and
// its compressed form.
func TestMinorMemory(t *testing.T) {
	const value = 4 << 20
	e := newEnv(t, Config{CacheBytes: 64 << 20}, "f")
	var least atomic.Int64
	least.Store(64 << 20)
	e.mustApply("row", table.Set("f", nil, 1, make([]byte, value)))
	e.mustApply("small", table.Set("f", nil, 1, []byte("x")))
	before := e.readMemory.Cache().Stats().Budget
	e.Server.useBlobs(createsWatched{e.Server.cfg.Blobs, func() { least.Store(min(least.Load(), e.readMemory.Cache().Stats().Budget)) }})
	if err := e.Compact(t.Context(), testTable, false); err != nil {
		t.Fatal(err)
	}
	if less := before - least.Load(); less != 2*value {
		t.Errorf("the cache shrinks by %d bytes, want %d", less, 2*value)
	}
	if now := e.readMemory.Cache().Stats().Budget; now > before || now < before-1<<20 {
		t.Errorf("the cache has %d bytes afterwards, and had %d", now, before)
	}
}
