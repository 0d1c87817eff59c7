package tablet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/latch"
	"github.com/steledb/stele/tablet/logbody"
)

// write is one row mutation from Apply to its answer.
type write struct {
	commit    commitlog.Commit
	server    *Server
	tablet    *Tablet
	latch     *latch.Latch
	exclusive *exclusiveWrite // set for a read-modify-write, which holds the latch exclusively
	charged   int64
	unstamped bool // only the change stream or the token needed the commit's time
	trace     *trace.Record
	times     commitTimes
	arrived   time.Time // of the request
	user      heat.User // that makes it
	done      func(timestamp int64, err error)
}

// exclusiveWrite has the additional state of a read-modify-write.
type exclusiveWrite struct {
	floor int64 // lower bound of the commit's timestamp, in µs, above what it read
	times commitTimes
}

// commitTimes are those of a traced commit.
type commitTimes struct {
	submitted, appended, durable, applied time.Time
	slowest                               *string // replica
}

// report adds the times of a commit to a trace. Times that are zero are unknown.
func (x *commitTimes) report(r *trace.Record) {
	if r == nil || x.appended.IsZero() {
		return
	}
	r.Extend(trace.LogQueue, x.submitted, x.appended)
	r.Extend(trace.Replicas, x.appended, x.durable)
	r.Replica(x.slowest, x.durable.Sub(x.appended))
	if !x.applied.IsZero() {
		r.Extend(trace.Apply, x.durable, x.applied)
	}
}

// bodyKeepMax is the largest body buffer, in bytes, that is kept for another write.
const bodyKeepMax = 64 << 10

var writePool = sync.Pool{New: func() any { return new(write) }}

// Apply commits one row mutation and calls done when it is durable and visible. timestamp is the
// server timestamp of its cells, or 0 if none asked for one. Apply returns as soon as the mutation
// has its place in the commit log; rm may be reused then. done must not block: later commits wait
// for it.
//
// Apply itself blocks while the server has no memory for writes, and while the tablet is split,
// merged or unloaded, each for OverloadWait at most. Errors passed to done: api.ErrNoTable,
// api.ErrNotServing, those of table.RowMutation.Validate, *api.OverloadedError, blobfs.ErrDiskFull,
// ErrClosed. Nothing is written then. After a *commitlog.FailedError or *UnknownOutcomeError the mutation
// may or may not survive.
func (as For) Apply(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) {
	for since := (time.Time{}); ; {
		t, err := as.tabletOf(context.Background(), tableName, rm.Row)
		if err == nil {
			err = as.applyTo(t, rm, done)
		}
		switch err {
		case nil:
			return
		case errFenced:
			err = as.waitForFence(context.Background(), t, &since)
		case errChanged:
			err = nil
		}
		if err != nil {
			done(0, err)
			return
		}
	}
}

// applyTo is one attempt of Apply in the row's tablet. If it returns an error, nothing has begun:
// the error is errFenced, errChanged, or the result of the operation.
func (as For) applyTo(t *Tablet, rm *table.RowMutation, done func(timestamp int64, err error)) error {
	if rm.Token != nil {
		return as.applyOnce(t, rm, done)
	}
	s, sc := as.s, t.schema.Load()
	if as.a != nil {
		as.a.Begin()
	}
	rm, err := as.check(sc, rm)
	if err == nil {
		err = s.writes.admit(t, rm, as.trace)
	}
	if err != nil {
		return err
	}
	l := t.fence.latches.Of(rm.Row)
	if !l.TryLockShared() {
		began := as.trace.Now()
		l.LockShared()
		as.trace.Since(trace.Latch, began)
	}
	switch {
	case t.fence.raised.Load() != nil:
		err = errFenced
	case changed(as.a) || !sc.current(): // T12
		err = errChanged
	default:
		as.commitLatched(t, sc, rm, l, nil, done)
		return nil
	}
	l.UnlockShared()
	if err != errFenced || !planted.On(planted.ChargeLeaked) {
		s.writeMemory.Release(s.writes.chargeBytes(rm))
	}
	return err
}

// ApplyNow is Apply if it has no token and can run without waiting for memory, for the row's latch, for the commit
// log or for access rights. Otherwise it does nothing and returns false.
func (as For) ApplyNow(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) bool {
	if rm.Token != nil {
		return false
	}
	s := as.s
	t, err := as.tabletNow(tableName, rm.Row)
	var sc *schema
	if err == nil {
		sc = t.schema.Load()
		if as.a != nil {
			as.a.Begin()
		}
		rm, err = as.check(sc, rm)
	}
	if err == ErrWouldWait || err == errStale {
		return false
	}
	if err != nil {
		done(0, err)
		return true
	}
	if s.commitLog.commits.Busy() {
		return false
	}
	n := rowMutationBytes(rm)
	if n > s.writes.mutationMax() {
		return false // Apply returns the error
	}
	if n = s.writes.chargeBytes(rm); !s.writes.tryCharge(t, n) {
		return false
	}
	l := t.fence.latches.Of(rm.Row)
	if !l.TryLockShared() {
		s.writeMemory.Release(n)
		return false
	}
	if t.fence.raised.Load() != nil || changed(as.a) || !sc.current() { // T12
		l.UnlockShared()
		s.writeMemory.Release(n)
		return false
	}
	as.commitLatched(t, sc, rm, l, nil, done)
	return true
}

// commitLatched submits rm, checked against sc and admitted, to the commit log. It releases the
// latch when the commit is done.
func (as For) commitLatched(t *Tablet, sc *schema, rm *table.RowMutation, l *latch.Latch, exclusive *exclusiveWrite, done func(int64, error)) {
	s, w := as.s, writePool.Get().(*write)
	if w.commit.Done == nil {
		w.commit.Done = w.finish // set once: a method value costs an allocation
	}
	w.server, w.tablet, w.latch, w.exclusive, w.done = s, t, l, exclusive, done
	w.trace, w.times = as.trace, commitTimes{submitted: as.trace.Last()}
	w.from(as)
	as.trace.In(t.id)
	as.trace.Count(trace.Rows, 1)
	w.charged = s.writes.chargeBytes(rm)
	body, ops, needTime, err := appendBody(w.commit.Body[:0], sc, rm)
	w.commit.Body, w.commit.Ops = body, ops
	w.commit.Table, w.commit.Tablet = t.table, t.id
	w.commit.Stamp, w.commit.Time = nil, 0
	if needTime {
		w.commit.Stamp = w
	}
	w.unstamped = (sc.table.ChangeRetention > 0 || rm.Token != nil) && !stamped(rm)
	if err == nil {
		err = s.commitLog.commits.Commit(&w.commit)
	}
	if err != nil {
		w.answer(s.commitLog.notCommitted(err))
	}
}

// finish runs on the applier, in sequence order.
func (w *write) finish(c *commitlog.Commit, err error) {
	if err == nil {
		err = w.tablet.writer.apply(c)
	}
	if err == nil {
		w.noteWritten(c)
		if cause := w.server.checkServing(); cause != nil {
			err = &UnknownOutcomeError{Cause: cause}
		}
	}
	if w.trace != nil {
		w.timed(c)
	}
	w.answer(closedError(err))
}

// from records when the request arrived, and whose it is. An Access may be reused once its caller stops waiting for the commit.
func (w *write) from(as For) {
	if w.arrived = as.trace.Began(); w.arrived.IsZero() {
		w.arrived = time.Now()
	}
	if w.user = ""; as.a != nil {
		w.user = heat.User(as.a.Caller())
	}
}

// noteWritten counts a mutation, and the time from its arrival until it was durable.
func (w *write) noteWritten(c *commitlog.Commit) {
	if row, err := logbody.Row(c.Body); err == nil { // it was just encoded
		w.tablet.heat.Write(row, int64(len(c.Body)), c.AppendEnded.Sub(w.arrived), &w.user)
	}
}

// timed records the times of a commit that has ended. The caller of an exclusive write may have stopped waiting, and reports them itself if
// it has not.
func (w *write) timed(c *commitlog.Commit) {
	w.times.appended, w.times.durable, w.times.slowest = c.AppendBegan, c.AppendEnded, c.Slowest
	if w.exclusive != nil {
		w.exclusive.times = w.times
		return
	}
	w.times.applied = w.trace.Detail()
	w.times.report(w.trace)
}

func (w *write) answer(err error) {
	w.release()
	w.end(err)
}

// release releases the row's latch and the memory that the write was charged.
func (w *write) release() {
	if w.exclusive != nil {
		w.latch.UnlockExclusive()
	} else {
		w.latch.UnlockShared()
	}
	w.server.writeMemory.Release(w.charged)
}

// end recycles w and calls done, after release.
func (w *write) end(err error) {
	done, time := w.done, w.commit.Time
	if w.unstamped {
		time = 0
	}
	w.server, w.tablet, w.latch, w.done, w.exclusive, w.trace = nil, nil, nil, nil, nil, nil
	if cap(w.commit.Body) > bodyKeepMax {
		w.commit.Body = nil
	}
	writePool.Put(w)
	done(time, err)
}

// Stamp returns the tablet's next server timestamp, in µs: the current time, or one above the
// previous timestamp if the clock stands or went back (I8). In a table of milliseconds it is the current
// millisecond, or the previous timestamp. The commit log calls it in sequence order.
func (w *write) Stamp() int64 {
	next := w.tablet.stampFloor()
	if w.exclusive != nil {
		next = max(next, w.exclusive.floor)
	}
	last := w.tablet.writer.stamped.Swap(next)
	rises := next > last || next == last && w.tablet.schema.Load().table.Granularity != table.GranularityMicros
	invariant.Check(rises, "timestamp %d follows %d", next, last)
	return next
}

// memWriter adds commits to a tablet's active memtable. Only the applier uses the fields,
// except stamped. Recovery fills memtables of its own: see recovery.fill.
type memWriter struct {
	cfg         *Config
	memory      *budget.Writes
	views       *viewSet
	appliedNext *atomic.Uint64 // of serverLog
	onFrozen    func()         // called after a memtable was frozen; queues it to be written out
	now         func() int64   // the time as a timestamp of the table, in µs

	mem      *mem
	scratch  []byte
	unloaded bool // later commits are discarded with the tablet

	// stamped is the last server timestamp assigned. Written only under the commit log's lock.
	stamped atomic.Int64
}

// apply adds a durable commit to the memtable and makes it visible. It runs on the applier, the
// only goroutine that adds to memtables of a served tablet. An error means that the tablet was taken
// out of service meanwhile: errGone if it was dropped, so that nothing is left of the commit, and
// *UnknownOutcomeError if another server has it.
func (w *memWriter) apply(c *commitlog.Commit) error {
	next := w.appliedNext.Load()
	invariant.Check(c.First >= next, "entry %d is applied, and the next is %d", int64(c.First), int64(next))
	defer w.appliedNext.Store(c.First + uint64(c.Ops))
	if w.unloaded {
		if w.views.isDropped() {
			return errGone
		}
		return &UnknownOutcomeError{Cause: errGone}
	}
	if w.mem.Len() > 0 && w.mem.Bytes()+int64(len(c.Body)) > w.cfg.MemtableBytes {
		w.freeze()
	}
	if err := w.add(c.Body, c.First, c.Ops, c.Time); err != nil {
		panic(fmt.Sprintf("BUG: apply a commit that was just encoded: %v", err))
	}
	visible := w.views.applied.Load()
	invariant.Check(c.First > visible, "entry %d becomes visible after entry %d", int64(c.First), int64(visible))
	w.views.applied.Store(c.First + uint64(c.Ops) - 1)
	w.views.changed.Wake()
	return nil
}

// add adds the entries of a record's body to the active memtable. Existing entries stay.
func (w *memWriter) add(body []byte, first uint64, ops uint32, time int64) error {
	m := w.mem
	scratch, err := logbody.EachEntry(body, first, time, w.scratch, func(key, value []byte) error {
		_, err := m.Add(key, value)
		return err
	})
	w.scratch = scratch
	if logbody.Streamed(body) {
		m.changes.Add(changes.Record{First: first, Time: time, Body: body})
	} else {
		m.changes.Skip(first+uint64(ops)-1, max(w.stamped.Load(), w.now()))
	}
	m.count()
	if m.minSeq.Load() == 0 || first < m.minSeq.Load() {
		m.minSeq.Store(first)
	}
	if last := first + uint64(ops) - 1; last > m.maxSeq.Load() {
		m.maxSeq.Store(last)
	}
	return err
}

// stampFloor returns a lower bound of the tablet's future timestamps, in µs, which holds while the
// clock does not go back.
func (t *Tablet) stampFloor() int64 {
	return t.schema.Load().table.Granularity.Stamp(t.writer.cfg.Now().UnixMicro(), t.writer.stamped.Load())
}

// freeze replaces the active memtable with an empty one and queues it to be written out. It runs on
// the applier.
func (w *memWriter) freeze() { _ = w.tryFreeze() }

// tryFreeze is freeze. It reports whether the memtable had entries.
func (w *memWriter) tryFreeze() bool {
	if w.mem.Len() == 0 {
		return false
	}
	w.renew(func(*view) {})
	return true
}

// renew replaces the active memtable, even an empty one, and makes another change of the view in the same step: views before it never get
// entries of after it. It runs on the applier.
func (w *memWriter) renew(change func(v *view)) {
	if w.unloaded {
		return
	}
	old, fresh := w.mem, newMem(w.memory)
	frozen := old.Len() > 0
	if frozen {
		_, gap := old.changes.Gap()
		old.stamped = max(w.stamped.Load(), gap) // timestamps of clients do not show when they were written
	}
	w.mem = fresh
	w.views.install(func(v *view) {
		if v.active = fresh; frozen {
			v.frozen = append(v.frozen, old)
		}
		change(v)
	})
	if !frozen {
		old.disown()
		return
	}
	w.onFrozen()
}

// stamped reports whether any cell of rm gets the server's time.
func stamped(rm *table.RowMutation) bool {
	return slices.ContainsFunc(rm.Mutations, func(m table.Mutation) bool { return m.Op == table.OpSet && m.Timestamp == table.ServerTimestamp })
}

// deletionsLast returns rm with its deletions at the end: see planted.DeletionsLast.
func deletionsLast(rm *table.RowMutation) *table.RowMutation {
	moved := slices.Clone(rm.Mutations)
	slices.SortStableFunc(moved, func(a, b table.Mutation) int {
		switch {
		case a.Op.IsDeletion() == b.Op.IsDeletion():
			return 0
		case b.Op.IsDeletion():
			return -1
		}
		return 1
	})
	return &table.RowMutation{Row: rm.Row, Mutations: moved, Token: rm.Token}
}

// appendBody encodes rm, which has passed table's validation. It returns the number of entries and
// whether any needs the server's time. The error is table.ErrNoFamily.
func appendBody(dst []byte, s *schema, rm *table.RowMutation) (body []byte, ops uint32, needTime bool, err error) {
	var buf [256]byte
	scratch := buf[:0]
	dst = logbody.AppendRow(dst, rm.Row)
	if s.table.ChangeRetention > 0 {
		dst, needTime = logbody.AppendStreamed(dst), true
	}
	if planted.On(planted.DeletionsLast) {
		rm = deletionsLast(rm)
	}
	ops = uint32(len(rm.Mutations))
	if rm.Token != nil {
		cell := table.Set(tokenFamily.Name, tokenColumn(rm.Token), table.ServerTimestamp, nil)
		if dst, scratch, needTime, err = logbody.AppendMutation(dst, scratch, &cell, &tokenFamily.Family); err != nil {
			return dst, 0, false, err
		}
		ops++
	}
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		var family *table.Family
		if m.Op != table.OpDeleteRow {
			f := s.family(m.Family)
			if f == nil {
				return dst, 0, false, &table.NoFamilyError{Table: s.table.Name, Family: m.Family}
			}
			family = &f.Family
		}
		var stamped bool
		if dst, scratch, stamped, err = logbody.AppendMutation(dst, scratch, m, family); err != nil {
			return dst, 0, false, err
		}
		needTime = needTime || stamped
	}
	if s.table.ChangeRetention > 0 && int64(len(dst)) > changes.BodyMax {
		return dst, 0, false, &table.LimitError{What: "encoded bytes of a mutation of a table with a change stream", Limit: changes.BodyMax, Got: int64(len(dst))}
	}
	return dst, ops, needTime, nil
}
