package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/commitlog"
)

// write is one row mutation on its way from Apply to its answer.
type write struct {
	commit  commitlog.Commit
	server  *Server
	tablet  *Tablet
	schema  *schema // by which the mutation was checked and coded
	latch   *latch
	alone   *alone // of a read-modify-write, which holds the latch alone
	charged int64
	done    func(timestamp int64, err error)
}

// alone is what a read-modify-write knows beyond a plain write.
type alone struct {
	floor int64 // what it read is older than this timestamp, in µs
}

// bodyKeepMax is the largest body buffer that is kept for another write, in bytes.
const bodyKeepMax = 64 << 10

var writePool = sync.Pool{New: func() any { return new(write) }}

// Apply commits one row mutation and calls done when it is durable and visible,
// with the server timestamp that its cells got (0 if none asked for one). It
// returns as soon as the mutation has its place in the commit log; rm's memory
// may be used again then. done must not block: later commits wait behind it.
//
// Apply itself blocks, for OverloadWait at most, while the server is out of
// memory for writes, and as long while the tablet is split, merged or unloaded. Errors given to done: api.ErrNoTable,
// api.ErrNotServing, those of table.RowMutation.Validate, *api.OverloadedError,
// blobfs.ErrDiskFull, ErrClosed. Nothing
// is written then. A *commitlog.FailedError or *UnsureError means that the mutation may
// or may not survive.
func (as For) Apply(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) {
	s := as.s
	for since := (time.Time{}); ; {
		t, err := as.tabletOf(context.Background(), tableName, rm.Row)
		if err == nil {
			err = as.applyTo(t, rm, done)
		}
		switch err {
		case nil:
			return
		case errHalted:
			err = s.waitOut(context.Background(), t, &since)
		case errChanged:
			err = nil
		}
		if err != nil {
			done(0, err)
			return
		}
	}
}

// applyTo is one try of Apply in the row's tablet. With an error nothing was begun: errHalted,
// errChanged, or what is to be told.
func (as For) applyTo(t *Tablet, rm *table.RowMutation, done func(timestamp int64, err error)) error {
	s, sc := as.s, t.schema.Load()
	if as.a != nil {
		as.a.Begin()
	}
	rm, err := s.checked(sc, rm, as.a)
	if err == nil {
		err = s.admit(t, rm)
	}
	if err != nil {
		return err
	}
	l := t.latches.of(rm.Row)
	l.lockShared()
	switch {
	case t.halted.Load() != nil:
		err = errHalted
	case changed(as.a):
		err = errChanged
	default:
		s.commitLatched(t, sc, rm, l, nil, done)
		return nil
	}
	l.unlockShared()
	s.uncharge(s.chargeBytes(rm))
	return err
}

// ApplyNow is Apply if that needs no waiting: for memory, for the row's latch, for
// the commit log or for rights. Otherwise it does nothing and returns false.
func (as For) ApplyNow(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) bool {
	s := as.s
	t, err := as.tabletNow(tableName, rm.Row)
	var sc *schema
	if err == nil {
		sc = t.schema.Load()
		if as.a != nil {
			as.a.Begin()
		}
		rm, err = s.checked(sc, rm, as.a)
	}
	if err == ErrWouldWait || err == errStale {
		return false
	}
	if err != nil {
		done(0, err)
		return true
	}
	if s.commits.Busy() {
		return false
	}
	n := rowMutationBytes(rm)
	if n > s.mutationMax() {
		return false // Apply tells which
	}
	if n = s.chargeBytes(rm); !s.tryCharge(t, n) {
		return false
	}
	l := t.latches.of(rm.Row)
	if !l.tryLockShared() {
		s.uncharge(n)
		return false
	}
	if t.halted.Load() != nil || changed(as.a) {
		l.unlockShared()
		s.uncharge(n)
		return false
	}
	s.commitLatched(t, sc, rm, l, nil, done)
	return true
}

// commitLatched hands rm, which was checked against sc and admitted, to the commit log.
// The latch is released when the commit is done.
func (s *Server) commitLatched(t *Tablet, sc *schema, rm *table.RowMutation, l *latch, alone *alone, done func(int64, error)) {
	w := writePool.Get().(*write)
	if w.commit.Done == nil {
		w.commit.Done = w.finish // once: a method value costs an allocation
	}
	w.server, w.tablet, w.schema, w.latch, w.alone, w.done = s, t, sc, l, alone, done
	w.charged = s.chargeBytes(rm)
	body, ops, needTime, err := appendBody(w.commit.Body[:0], sc, rm)
	w.commit.Body, w.commit.Ops = body, ops
	w.commit.Table, w.commit.Tablet = t.table, t.id
	w.commit.Stamp, w.commit.Time = nil, 0
	if needTime {
		w.commit.Stamp = w
	}
	if err == nil {
		err = s.commits.Commit(&w.commit)
	}
	if err != nil {
		w.answer(s.notCommitted(err))
	}
}

// finish runs on the applier, in sequence order.
func (w *write) finish(c *commitlog.Commit, err error) {
	if err == nil {
		err = w.tablet.applyCommit(c)
	}
	if err == nil {
		if cause := w.server.provable(); cause != nil {
			err = &UnsureError{Cause: cause}
		} else if !w.schema.current() { // after provable
			w.release()
			go w.settle() // one for each write in flight at most, whose number rpc bounds
			return
		}
	}
	w.answer(closedError(err))
}

func (w *write) answer(err error) {
	w.release()
	w.end(err)
}

// release lets go of the row and of the memory that the write was charged.
func (w *write) release() {
	if w.alone != nil {
		w.latch.unlockAlone()
	} else {
		w.latch.unlockShared()
	}
	w.server.uncharge(w.charged)
}

// end gives the answer, after release.
func (w *write) end(err error) {
	done, time := w.done, w.commit.Time
	w.server, w.tablet, w.schema, w.latch, w.done, w.alone = nil, nil, nil, nil, nil, nil
	if cap(w.commit.Body) > bodyKeepMax {
		w.commit.Body = nil
	}
	writePool.Put(w)
	done(time, err)
}

// notCommitted returns why the commit log did not accept a commit. If it is busy because
// no disk has space, that is the reason.
func (s *Server) notCommitted(err error) error {
	if errors.Is(err, commitlog.ErrBusy) {
		if full := s.logWriter.Full(); full != nil {
			return fmt.Errorf("commit log has not finished earlier writes: %w", full)
		}
	}
	return closedError(err)
}

// closedError gives what a commit log that takes no more, or not now, says the form of a server that
// is closed or overloaded: nothing was written.
func closedError(err error) error {
	if errors.Is(err, commitlog.ErrBusy) {
		return &api.OverloadedError{Reason: "the commit log has not finished earlier writes", RetryAfter: overloadRetry}
	}
	if errors.Is(err, commitlog.ErrClosed) {
		return fmt.Errorf("%w: %s", ErrClosed, err.Error())
	}
	return err
}

// applyCommit puts a durable commit into the memtable and makes it visible. It
// runs on the applier, the only goroutine that adds to memtables. The error says that the tablet was taken out of service
// meanwhile: errGone if it was dropped, so that nothing is left of the commit, *UnsureError if another server has it.
func (t *Tablet) applyCommit(c *commitlog.Commit) error {
	defer t.server.appliedNext.Store(c.First + uint64(c.Ops))
	if t.unloaded {
		if t.isDropped() {
			return errGone
		}
		return &UnsureError{Cause: errGone}
	}
	if t.mem.Len() > 0 && t.mem.Bytes()+int64(len(c.Body)) > t.server.cfg.MemtableBytes {
		t.freeze()
	}
	if err := t.add(c.Body, c.First, c.Ops, c.Time); err != nil {
		panic(fmt.Sprintf("BUG: apply a commit that was just coded: %v", err))
	}
	t.applied.Store(c.First + uint64(c.Ops) - 1)
	return nil
}

// add puts the entries of a record's body into the active memtable. Entries that
// are there already stay.
func (t *Tablet) add(body []byte, first uint64, ops uint32, time int64) error {
	m := t.mem
	scratch, err := eachEntry(body, first, time, t.scratch, func(key, value []byte) error {
		_, err := m.Add(key, value)
		return err
	})
	t.scratch = scratch
	m.count()
	if m.minSeq.Load() == 0 || first < m.minSeq.Load() {
		m.minSeq.Store(first)
	}
	if last := first + uint64(ops) - 1; last > m.maxSeq.Load() {
		m.maxSeq.Store(last)
	}
	return err
}

// Stamp returns the tablet's next server timestamp, in µs: the time of day, or just
// above the one before it if the clock stands or went back (I8). The commit log
// calls it in sequence order.
func (w *write) Stamp() int64 {
	next := w.tablet.stampFloor()
	if w.alone != nil {
		next = max(next, w.alone.floor)
	}
	w.tablet.stamped.Store(next)
	return next
}

// stampFloor is at or below every timestamp that the tablet will give while the clock
// does not go back.
func (t *Tablet) stampFloor() int64 {
	return max(t.server.cfg.Now().UnixMicro(), t.stamped.Load()+1)
}
