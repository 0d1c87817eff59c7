package tablet

import (
	"context"
	"errors"

	"github.com/steledb/stele/tablet/sstable"
)

// Enter implements sstable.Gate for a read. If several files have a large entry next, they hold as
// many in memory as fit the reservation for the largest. The others keep only the key, and load the
// entry again when its turn comes.
func (r *rows) Enter(bytes int) error {
	if err := r.hold(bytes); err != nil {
		return err
	}
	if int64(bytes)+r.largeBytes() > r.reserved {
		for _, it := range r.iters {
			it.ReleaseValue()
		}
	}
	return nil
}

// largeBytes returns the memory of the blocks of large entries that the iterators hold.
func (r *rows) largeBytes() (held int64) {
	for _, it := range r.iters {
		held += int64(it.LargeBytes())
	}
	return held
}

// hold extends the reservation to that of a read of the given bytes. Errors: errNoMemory, those of
// reserve.
func (r *rows) hold(bytes int) (err error) {
	more := r.gate.Needs(bytes) - r.reserved
	switch {
	case more <= 0:
	case r.gate.TryReserve(more):
		r.reserved += more
	case r.yields:
		r.lacking = bytes
		return errNoMemory
	default:
		// two reads that held a part each would wait for each other
		r.releaseMemory()
		if r.turns != nil {
			r.turns.End() // reads that hold the memory may wait for a turn
		}
		if r.reserved, err = r.gate.Reserve(r.ctx, bytes); err != nil {
			return err
		}
	}
	r.covered = max(r.covered, int64(bytes))
	return nil
}

// holdRow is hold for a row of which the given bytes are kept. Up to the size of a usual block it
// reserves nothing.
func (r *rows) holdRow(bytes int64) error {
	if bytes <= r.covered+sstable.GateBytes {
		return nil
	}
	err := r.hold(int(bytes) + sstable.GateBytes)
	if err == errNoMemory {
		r.lacking *= 2 // the row may have more: do not start over for each part
	}
	return err
}

// emitted releases the reservation of a scan for a finished row, unless it has reached large cells
// of the next.
func (r *rows) emitted() {
	if r.reserved > 0 && r.largeBytes() == 0 {
		r.releaseMemory()
	}
}

// errNoMemory ends an attempt of a read that yields: it waits for memory in awaitMemory and starts
// over. Meanwhile it holds no view, and so no memtables that are written out while it waits.
var errNoMemory = errors.New("no memory for a large cell")

// lacksMemory reports whether err is errNoMemory.
func lacksMemory(err error) bool { return err != nil && errors.Is(err, errNoMemory) }

// awaitMemory waits for the memory that the last attempt lacked, and keeps it for the next. Errors:
// as reserve.
func (r *rows) awaitMemory(ctx context.Context) (err error) {
	if r.reserved, err = r.gate.Reserve(ctx, r.lacking); err == nil {
		r.covered = int64(r.lacking)
	}
	return err
}

// releaseMemory releases the read's reservation.
func (r *rows) releaseMemory() {
	if r.reserved > 0 {
		r.gate.Release(r.reserved)
	}
	r.reserved, r.covered = 0, 0
}
