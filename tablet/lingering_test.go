package tablet

import (
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// waitLingering waits until some memtables that are written out are still held, or none are.
func (e *env) waitLingering(some bool) {
	e.t.Helper()
	for end := time.Now().Add(10 * time.Second); e.lingering.Load() > 0 != some; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("%d bytes of memtables that are written out are held, and %d of others", e.lingering.Load(), e.memtables.Load())
		}
	}
}

// TestMemtablesThatReadsHoldCount (I13): memtables that are written out count within the memory for
// them, up to half of it, until the reads that hold them end; also those that a split has shared.
func TestMemtablesThatReadsHoldCount(t *testing.T) {
	const memory, size = 8 << 20, 1 << 20
	for _, split := range []bool{false, true} {
		e := newEnv(t, Config{MemtablesBytesMax: memory, MemtableBytes: memory}, "f")
		for _, row := range []string{"a", "c"} {
			e.mustApply(row, table.Set("f", nil, 1, make([]byte, size)))
		}
		reads, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- e.ReadRow(t.Context(), testTable, []byte("a"), nil, func([]byte, []table.Cell) error {
				close(reads)
				<-end
				return nil
			})
		}()
		<-reads
		if split {
			if _, _, err := e.Split(t.Context(), lastTablet, []byte("b")); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Compact(t.Context(), testTable, false); err != nil {
			t.Fatal(err)
		}
		held := e.lingering.Load()
		if held < 2*size || e.memtables.Load() != 0 {
			t.Fatalf("split %v: %d bytes that the read holds count, and %d of memtables", split, held, e.memtables.Load())
		}
		if tab := e.allTablets()[0]; e.tryCharge(tab, memory-held+1) {
			t.Errorf("split %v: memory that the read holds is available", split)
		}
		close(end)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if n := e.lingering.Load(); n != 0 {
			t.Errorf("split %v: %d bytes count when the read is over", split, n)
		}
		if tab := e.allTablets()[0]; !e.tryCharge(tab, memory) {
			t.Errorf("split %v: memory is not available after the read", split)
		}
		e.uncharge(memory)
	}
}

// TestReadsHoldHalfAtMost: however much reads hold, half of the memory for memtables is for writes.
func TestReadsHoldHalfAtMost(t *testing.T) {
	const memory = 8 << 20
	e := newEnv(t, Config{MemtablesBytesMax: memory}, "f")
	e.lingering.Add(10 * memory)
	if tab := e.allTablets()[0]; !e.tryCharge(tab, memory/2) || e.tryCharge(tab, 1) {
		t.Error("not just half is left")
	}
	e.uncharge(memory / 2)
	e.lingering.Add(-10 * memory)
}

// TestCompactionsHoldNoMemtables (I13): memtables that are written out during a compaction of files
// are released.
func TestCompactionsHoldNoMemtables(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", set("f", "q", 1, "v"))
	if err := e.Compact(t.Context(), testTable, false); err != nil {
		t.Fatal(err)
	}
	b := &heldBlobs{Blobs: e.Server.cfg.Blobs, armed: make(chan struct{}), called: make(chan struct{})}
	e.Server.useBlobs(b)
	close(b.armed)
	tab, compacted := e.allTablets()[0], make(chan error, 1)
	go func() { compacted <- tab.major(e.ctx) }()
	<-b.called
	e.mustApply("b", set("f", "q", 1, "v"))
	if err := tab.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitLingering(false)
	e.cancel() // the compaction waits for that
	if err := <-compacted; err == nil {
		t.Error("the compaction did not wait")
	}
}
