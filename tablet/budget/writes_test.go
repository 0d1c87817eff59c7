package budget

import "testing"

const bound = 8 << 20

// memoryOf returns a budget of max bytes, and a function that returns how often a memtable was
// requested to be written out since its last call.
func memoryOf(max int64) (w *Writes, requests func() int) {
	n := 0
	w = NewWrites(max, func() { n++ })
	return w, func() int { defer func() { n = 0 }(); return n }
}

// TestWritesAdmitUpToTheBound: mutations are charged up to the bound, and one that exceeds it when
// nothing else is charged. A rejected one has a memtable written out and is woken when memory is free.
func TestWritesAdmitUpToTheBound(t *testing.T) {
	w, requests := memoryOf(bound)
	if !w.TryCharge(bound*2) || w.TryCharge(1) {
		t.Error("one mutation larger than the bound must be admitted, and nothing else then")
	}
	w.BeginWait()
	defer w.EndWait()
	freed := w.Freed()
	w.Release(bound * 2)
	select {
	case <-freed:
	default:
		t.Error("a waiting writer is not woken")
	}
	if requests() != 1 || !w.Pressed() || w.Pressed() {
		t.Error("a rejected writer must request once that a memtable be written out")
	}
	if !w.TryCharge(bound) || w.TryCharge(1) {
		t.Error("the bound is not what is charged at most")
	}
	w.Charge(bound)
	if n := w.Charged(); n != 2*bound || !w.HalfUsed() {
		t.Errorf("%d bytes charged, want %d", n, 2*bound)
	}
}

// TestMemtablesAreWrittenOut: above five eighths of the bound memtables are to be written out.
// Afterwards their memory is free once no read holds it.
func TestMemtablesAreWrittenOut(t *testing.T) {
	w, requests := memoryOf(bound)
	if w.Grow(bound * 5 / 8); requests() != 0 || w.Pressed() {
		t.Error("a memtable is written out too early")
	}
	if w.Grow(1); requests() != 1 || !w.Pressed() {
		t.Error("no memtable is written out")
	}
	w.Linger(w.Memtables())
	if n := w.Lingering(); n != bound*5/8+1 || w.Memtables() != 0 || w.Pressed() {
		t.Errorf("%d bytes linger, and %d do not", n, w.Memtables())
	}
	w.Drop(w.Lingering())
	if !w.TryCharge(bound) {
		t.Error("memory is not free")
	}
}

// TestReadsHoldHalfAtMost: however much reads hold, half of the memory for memtables is for writes.
func TestReadsHoldHalfAtMost(t *testing.T) {
	w, _ := memoryOf(bound)
	w.Grow(10 * bound)
	w.Linger(10 * bound)
	if !w.TryCharge(bound/2) || w.TryCharge(1) {
		t.Error("not just half is left")
	}
}
