package tablet

import (
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// waitLingering waits until some memtables that are written out are still held, or none are.
func (e *env) waitLingering(some bool) {
	e.t.Helper()
	for end := time.Now().Add(10 * time.Second); e.writeMemory.Lingering() > 0 != some; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("%d bytes of memtables that are written out are held, and %d of others", e.writeMemory.Lingering(), e.writeMemory.Memtables())
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
		held := e.writeMemory.Lingering()
		if held < 2*size || e.writeMemory.Memtables() != 0 {
			t.Fatalf("split %v: %d bytes that the read holds count, and %d of memtables", split, held, e.writeMemory.Memtables())
		}
		if tab := e.served.all()[0]; e.writes.tryCharge(tab, memory-held+1) {
			t.Errorf("split %v: memory that the read holds is available", split)
		}
		close(end)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if n := e.writeMemory.Lingering(); n != 0 {
			t.Errorf("split %v: %d bytes count when the read is over", split, n)
		}
		if tab := e.served.all()[0]; !e.writes.tryCharge(tab, memory) {
			t.Errorf("split %v: memory is not available after the read", split)
		}
		e.writeMemory.Release(memory)
	}
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
	tab, compacted := e.served.all()[0], make(chan error, 1)
	go func() { compacted <- tab.merge.major(e.life.ctx) }()
	<-b.called
	e.mustApply("b", set("f", "q", 1, "v"))
	if err := tab.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitLingering(false)
	e.life.cancel() // the compaction waits for that
	if err := <-compacted; err == nil {
		t.Error("the compaction did not wait")
	}
}
