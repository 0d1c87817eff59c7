package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// TestCompactionMemory (I13): a compaction of files with huge values takes as many at once as its memory is for, two at least, also
// after a restart, and a major one still leaves one file with all that there was.
func TestCompactionMemory(t *testing.T) {
	const value, files = 1 << 20, 5
	for _, test := range []struct {
		memory int64
		merges int64
	}{
		{64 << 20, 1},
		{3*(2*value+64) + 3*readAheadBytes, 2}, // three, and then these and two
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
			for _, x := range e.allTablets() {
				v, _, err := x.acquire()
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

// TestTogetherIsCheap: where only two files of huge values may be read at once, what is large is not written again
// whenever a file joins.
func TestTogetherIsCheap(t *testing.T) {
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
			less, end := s.together(files[from:to])
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

// TestCompactionsWaitForMemory (I13): a compaction that finds no memory waits, in the way of neither writes nor minor compactions;
// it ends with its context, and when a tablet is to be split or unloaded.
func TestCompactionsWaitForMemory(t *testing.T) {
	e := newEnv(t, Config{FilesMerge: 20, FilesMax: 40}, "f:compression=none")
	x := e.allTablets()[0]
	fill := func() {
		for i := range 3 {
			e.mustApply(fmt.Sprint("row", i), table.Set("f", nil, 1, make([]byte, 1<<20)))
			if err := x.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	all, memory := e.merging, e.Server.cfg.CompactionMemory
	if err := all.Acquire(t.Context(), memory); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Compact(ctx, testTable, true) }()
	for x.mergeMu.TryLock() {
		x.mergeMu.Unlock()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	fill()
	x.stopMerging()
	x.mergeMu.Unlock()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("given up: %v", err)
	}
	if n := e.Stats().MergingCompactions; n != 0 {
		t.Errorf("%d merges without memory", n)
	}
	all.Release(memory)
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if n := e.Stats().MergingCompactions; n != 1 {
		t.Errorf("%d merges with memory", n)
	}
	if !all.TryAcquire(memory) {
		t.Error("memory is taken, and nothing is compacted")
	}
}

// TestMoveMemory (I13): a compaction that moves families between groups reads the files of all groups, which are fewer before
// if there is no memory for them all.
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
