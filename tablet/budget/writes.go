package budget

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/internal/invariant"
)

// Writes bounds the memory of memtables and of mutations that are not in a memtable yet.
//
// The memory of a memtable counts as active until it is written out, and then as lingering until
// the last read releases it.
type Writes struct {
	max    int64
	wakeUp func() // the goroutine that writes out memtables

	memtables atomic.Int64 // bytes of memtables that are not written out yet
	lingering atomic.Int64 // bytes of memtables that are written out but still held by reads
	charged   atomic.Int64 // bytes of mutations that are not in a memtable yet
	waiters   atomic.Int64 // writers that wait for memory
	pressed   atomic.Bool  // a writer found no memory

	freed struct {
		sync.Mutex
		c chan struct{} // closed when memory may have become free
	}
}

// NewWrites returns a budget of max bytes. wakeUp is called, and must not block, when memtables
// should be written out.
func NewWrites(max int64, wakeUp func()) *Writes {
	w := &Writes{max: max, wakeUp: wakeUp}
	w.freed.c = make(chan struct{})
	return w
}

// Max returns the bound, in bytes.
func (w *Writes) Max() int64 { return w.max }

// TryCharge charges n bytes if they are free. Otherwise it requests that a memtable be written out.
// A charge larger than the bound is admitted when nothing else is charged.
func (w *Writes) TryCharge(n int64) bool {
	// At most half, so that writes continue however long a read takes.
	lingering := min(w.lingering.Load(), w.max/2)
	used := w.memtables.Load() + w.charged.Load() + lingering
	if used > 0 && used+n > w.max {
		w.pressed.Store(true)
		w.wakeUp()
		return false
	}
	w.charged.Add(n)
	return true
}

// Charge charges n bytes whether or not they are free.
func (w *Writes) Charge(n int64) { w.charged.Add(n) }

// Release releases a charge.
func (w *Writes) Release(n int64) {
	left := w.charged.Add(-n)
	invariant.Check(left >= 0, "writes are charged %d bytes after a release of %d", left, n)
	w.signalWaiters()
}

// Charged returns the bytes of mutations that are not in a memtable yet.
func (w *Writes) Charged() int64 { return w.charged.Load() }

// BeginWait counts a writer that waits for memory until it calls EndWait.
func (w *Writes) BeginWait() { w.waiters.Add(1) }

// EndWait ends BeginWait.
func (w *Writes) EndWait() { w.waiters.Add(-1) }

// Freed returns a channel that is closed when memory may have become free. A caller that has called
// BeginWait takes the channel first and then tries again.
func (w *Writes) Freed() <-chan struct{} {
	w.freed.Lock()
	defer w.freed.Unlock()
	return w.freed.c
}

// Signal wakes the writers that wait for memory, or for anything else that their next attempt
// depends on.
func (w *Writes) Signal() {
	w.freed.Lock()
	close(w.freed.c)
	w.freed.c = make(chan struct{})
	w.freed.Unlock()
}

func (w *Writes) signalWaiters() {
	if w.waiters.Load() > 0 {
		w.Signal()
	}
}

// Grow adds n bytes to the memory of memtables. Above FlushAt it requests that the largest memtable
// be written out.
func (w *Writes) Grow(n int64) {
	if n > 0 && w.memtables.Add(n) > w.FlushAt() {
		w.wakeUp()
	}
}

// FlushAt is the memory of memtables above which the largest is written out: five eighths of the
// bound, so that the remaining memory fills while the disk works.
func (w *Writes) FlushAt() int64 { return w.max * 5 / 8 }

// Pressed reports whether memtables must be written out: a writer has found no memory since the last
// call, or they exceed FlushAt.
func (w *Writes) Pressed() bool { return w.pressed.Swap(false) || w.memtables.Load() > w.FlushAt() }

// HalfUsed reports whether memtables and charges use more than half of the bound.
func (w *Writes) HalfUsed() bool { return w.memtables.Load()+w.charged.Load() > w.max/2 }

// HalfMemtables reports whether memtables alone use at least half of the bound.
func (w *Writes) HalfMemtables() bool { return w.memtables.Load() >= w.max/2 }

// Linger records that n bytes of memtables are written out, but may still be held by reads.
func (w *Writes) Linger(n int64) {
	w.lingering.Add(n)
	left := w.memtables.Add(-n)
	invariant.Check(left >= 0, "memtables use %d bytes without one of %d", left, n)
}

// Drop releases n lingering bytes.
func (w *Writes) Drop(n int64) {
	left := w.lingering.Add(-n)
	invariant.Check(left >= 0, "reads hold %d bytes of memtables without one of %d", left, n)
	w.signalWaiters()
}

// Memtables returns the bytes of memtables that are not written out yet.
func (w *Writes) Memtables() int64 { return w.memtables.Load() }

// Lingering returns the bytes of memtables that are written out but still held by reads.
func (w *Writes) Lingering() int64 { return w.lingering.Load() }

// String describes the use of the memory, for the error of a writer that found none.
func (w *Writes) String() string {
	return fmt.Sprintf("memtables use %d of %d bytes and are being written out, and reads hold %d bytes of written ones",
		w.memtables.Load(), w.max, w.lingering.Load())
}
