package tablet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/sstable"
)

// pinQueue is how many files may wait to be read into memory. One that finds it full is asked for again
// by the next read.
const pinQueue = 1024

// pinRetry is after how long a file is tried again for which there was no room in memory, or that could not be read.
const pinRetry = 10 * time.Second

// pins keeps the files of in-memory groups in memory, each from when it is first read (paper §6, "Locality groups").
type pins struct {
	memory *readMemory
	queue  chan *opened
	log    *slog.Logger
	began  time.Time // retries are counted from it, by the monotonic clock

	files   atomic.Int64 // that are in memory
	lacking atomic.Int64 // bytes of files for which there was no room
}

func newPins(m *readMemory, log *slog.Logger) *pins {
	return &pins{memory: m, queue: make(chan *opened, pinQueue), log: log, began: time.Now()}
}

// The states of a pinning.
const (
	pinNone   = iota // nobody has read the file
	pinWaits         // it was read, and will be in memory
	pinDone          // it is
	pinFailed        // it could not be; tried again after pinRetry
)

// pinning is how far an open file is on its way into memory.
type pinning struct {
	state   atomic.Int32
	retryAt atomic.Int64 // of pinFailed, in ns after pins.began

	// mu guards what follows, and is held when what is pinned changes. Never held across I/O.
	mu     sync.Mutex
	bytes  int64 // that readMemory counts
	lacked int64 // that pins.lacking counts
}

// want has a file read into memory that a reader of an in-memory group has come to.
func (ps *pins) want(f *file) {
	o := f.opened
	switch state := o.pin.state.Load(); {
	case state == pinDone || state == pinWaits:
		return
	case state == pinFailed && int64(time.Since(ps.began)) < o.pin.retryAt.Load():
		return
	case !o.pin.state.CompareAndSwap(state, pinWaits):
		return
	}
	o.refs.Add(1) // which are more than none: the reader's view has one
	select {
	case ps.queue <- o:
	default:
		o.pin.state.CompareAndSwap(pinWaits, pinNone)
		o.release()
	}
}

// now reads a file into memory that nobody reads yet, if one of those has been read that were there before it: what
// is only written takes no memory.
func (ps *pins) now(ctx context.Context, f *file, before []*file) {
	if !slices.ContainsFunc(before, func(old *file) bool { return old.opened.pin.state.Load() != pinNone }) {
		return
	}
	f.opened.pin.state.Store(pinWaits)
	ps.load(ctx, f.opened)
}

// load reads a file into memory that waits for it.
func (ps *pins) load(ctx context.Context, o *opened) {
	if o.pin.state.Load() != pinWaits {
		return
	}
	granted := int64(0)
	err := o.table.Pin(ctx, o.lo, o.hi, func(n int64) bool {
		if !ps.memory.pin(n) {
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
	case err == nil: // it is not wanted any more
		o.table.Unpin()
	case errors.Is(err, sstable.ErrNoGrant):
		o.pin.lacked = int64(o.table.Meta().RawBytes)
		ps.lacking.Add(o.pin.lacked)
	case ctx.Err() == nil:
		ps.log.Warn("a file of an in-memory group was not read into memory; reads go to its disk", "blob", o.table.Name(), "error", err)
	}
	ps.memory.unpin(granted)
	o.pin.retryAt.Store(int64(time.Since(ps.began) + pinRetry))
	o.pin.state.CompareAndSwap(pinWaits, pinFailed)
}

// drop gives up what is in memory of a file that is closed, or whose group is not in-memory any more.
func (ps *pins) drop(o *opened) {
	o.pin.mu.Lock()
	defer o.pin.mu.Unlock()
	if o.pin.state.Swap(pinNone) == pinDone {
		o.table.Unpin()
		ps.files.Add(-1)
		ps.memory.unpin(o.pin.bytes)
		o.pin.bytes = 0
	}
	ps.clear(o)
}

// clear forgets that there was no room for a file. Its mu is held.
func (ps *pins) clear(o *opened) {
	ps.lacking.Add(-o.pin.lacked)
	o.pin.lacked = 0
}

// pinLoop reads into memory what is wanted there, one file at a time: all of them are read meanwhile.
func (s *Server) pinLoop() {
	for {
		select {
		case o := <-s.pins.queue:
			s.pins.load(s.ctx, o)
			o.release()
		case <-s.closing:
			s.pins.drain()
			return
		}
	}
}

// drain lets go of the files that wait.
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

// unpinOthers gives up the files of groups that were in-memory by the schema before.
func (t *Tablet) unpinOthers(before *schema) {
	if len(before.inMemory) == 0 {
		return
	}
	v, _, err := t.acquire()
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
