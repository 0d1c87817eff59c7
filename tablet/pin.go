package tablet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/sstable"
)

// pinQueue is the number of files that may wait to be loaded into memory. If it is full, the next
// read of a file requests it again.
const pinQueue = 1024

// pinRetry is the time until the next attempt for a file that did not fit in memory or could not be
// read.
const pinRetry = 10 * time.Second

// pins holds the files of in-memory groups in memory, each from its first read on (paper §6,
// "Locality groups").
type pins struct {
	memory *budget.Reads
	queue  chan *opened
	log    *slog.Logger
	began  time.Time // origin of retry times, on the monotonic clock

	files   atomic.Int64 // files in memory
	lacking atomic.Int64 // bytes of files that did not fit
}

func newPins(m *budget.Reads, log *slog.Logger) *pins {
	return &pins{memory: m, queue: make(chan *opened, pinQueue), log: log, began: time.Now()}
}

// States of a pinning.
const (
	pinNone   = iota // the file was not read
	pinWaits         // it was read and waits to be loaded
	pinDone          // it is in memory
	pinFailed        // loading failed; retried after pinRetry
)

// pinning is the state of loading an open file into memory.
type pinning struct {
	state   atomic.Int32
	retryAt atomic.Int64 // for pinFailed, in ns after pins.began

	// mu guards the fields below, and is held when the pinned data changes. Never held across I/O.
	mu     sync.Mutex
	bytes  int64 // counted in budget.Reads
	lacked int64 // counted in pins.lacking
}

// request queues a file of an in-memory group to be loaded, when a read has come to it.
func (ps *pins) request(f *file) {
	o := f.opened
	switch state := o.pin.state.Load(); {
	case state == pinDone || state == pinWaits:
		return
	case state == pinFailed && int64(time.Since(ps.began)) < o.pin.retryAt.Load():
		return
	case !o.pin.state.CompareAndSwap(state, pinWaits):
		return
	}
	o.refs.Add(1) // refs is positive: the reader's view has one
	select {
	case ps.queue <- o:
	default:
		o.pin.state.CompareAndSwap(pinWaits, pinNone)
		o.release()
	}
}

// now loads a file that is not in use yet, if one of the files that it replaces was read. Data that
// is only written takes no memory.
func (ps *pins) now(ctx context.Context, f *file, before []*file) {
	if !slices.ContainsFunc(before, func(old *file) bool { return old.opened.pin.state.Load() != pinNone }) {
		return
	}
	f.opened.pin.state.Store(pinWaits)
	ps.load(ctx, f.opened)
}

// load loads a waiting file into memory.
func (ps *pins) load(ctx context.Context, o *opened) {
	if o.pin.state.Load() != pinWaits {
		return
	}
	granted := int64(0)
	err := o.table.Pin(ctx, o.lo, o.hi, func(n int64) bool {
		if !ps.memory.Pin(n) {
			return false
		}
		granted += n
		return true
	})
	o.pin.mu.Lock()
	defer o.pin.mu.Unlock()
	ps.clear(o)
	switch {
	case err == nil && o.pin.state.CompareAndSwap(pinWaits, pinDone):
		o.pin.bytes = granted
		ps.files.Add(1)
		return
	case err == nil: // dropped meanwhile
		o.table.Unpin()
	case errors.Is(err, sstable.ErrNoGrant):
		o.pin.lacked = int64(o.table.Meta().RawBytes)
		ps.lacking.Add(o.pin.lacked)
	case ctx.Err() == nil:
		ps.log.Warn("file of an in-memory group not loaded, reading from disk", "blob", o.table.Name(), "err", err)
	}
	ps.memory.Unpin(granted)
	o.pin.retryAt.Store(int64(time.Since(ps.began) + pinRetry))
	o.pin.state.CompareAndSwap(pinWaits, pinFailed)
}

// drop releases the memory of a file that is closed, or whose group is no longer in-memory.
func (ps *pins) drop(o *opened) {
	o.pin.mu.Lock()
	defer o.pin.mu.Unlock()
	if o.pin.state.Swap(pinNone) == pinDone {
		o.table.Unpin()
		ps.files.Add(-1)
		ps.memory.Unpin(o.pin.bytes)
		o.pin.bytes = 0
	}
	ps.clear(o)
}

// clear resets the count of a file that did not fit. Its mu is held.
func (ps *pins) clear(o *opened) {
	ps.lacking.Add(-o.pin.lacked)
	o.pin.lacked = 0
}

// loop loads requested files one at a time until the server closes. All of them are read from disk meanwhile.
func (ps *pins) loop(life *lifetime) {
	for {
		select {
		case o := <-ps.queue:
			ps.load(life.ctx, o)
			o.release()
		case <-life.closing:
			ps.drain()
			return
		}
	}
}

// drain releases the waiting files.
func (ps *pins) drain() {
	for {
		select {
		case o := <-ps.queue:
			o.release()
		default:
			return
		}
	}
}

// unpinOthers releases the memory of groups that were in-memory in the schema before and no longer
// are.
func (t *Tablet) unpinOthers(before *schema) {
	if len(before.inMemory) == 0 {
		return
	}
	v, _, err := t.views.acquire()
	if err != nil {
		return
	}
	defer v.release()
	for i := range v.groups {
		if !t.schema.Load().keepsInMemory(v.groups[i].name) {
			for _, f := range v.groups[i].files {
				t.server.pins.drop(f.opened)
			}
		}
	}
}
