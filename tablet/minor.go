package tablet

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/planted"
)

// minor writes the tablet's frozen memtables out, as one SSTable for each
// locality group that has entries (paper §5.4). It returns errUnloaded when the
// tablet is not served any more.
func (t *Tablet) minor(ctx context.Context) error {
	t.minorWaiters.Add(1)
	defer t.minorWaiters.Add(-1)
	t.minorMu.Lock()
	defer t.minorMu.Unlock()
	return t.minorLocked(ctx)
}

// minorIfFree is minor if minorMu is free. Otherwise it does nothing and returns false: its holder may wait for the
// metadata of this tablet, and other tablets must not.
func (t *Tablet) minorIfFree(ctx context.Context) (bool, error) {
	if !t.minorMu.TryLock() {
		return false, nil
	}
	defer t.minorMu.Unlock()
	return true, t.minorLocked(ctx)
}

// minorLocked is minor with minorMu held.
func (t *Tablet) minorLocked(ctx context.Context) error {
	for {
		if err := t.minorOnce(ctx); !errors.Is(err, errRegrouped) {
			return err
		}
	}
}

func (t *Tablet) minorOnce(ctx context.Context) error {
	v, _, err := t.acquire()
	if err != nil {
		return errUnloaded
	}
	defer v.release()
	if len(v.frozen) == 0 {
		return nil
	}
	var sources []source
	var bytes, largest int64
	for _, m := range v.frozen {
		bytes += m.Bytes()
		largest = max(largest, m.Largest())
		sources = append(sources, boundedSource(&memSource{m.Iter()}, m.start, m.end))
	}
	huge := writeBytes(largest)
	t.server.memory.borrow(huge)
	files, err := t.writeSources(ctx, v, sources, bytes, t.newMinorGait(ctx).step)
	t.server.memory.borrow(-huge)
	if err != nil {
		return err
	}
	last := v.frozen[len(v.frozen)-1]
	redo := last.maxSeq.Load()
	if planted.On(planted.RedoTooFar) {
		redo = t.applied.Load()
	}
	err = t.addFiles(ctx, v, files, redo, last.stamped, func(n *view) { n.frozen = n.frozen[len(v.frozen):] })
	if err != nil {
		return err
	}
	for _, m := range v.frozen {
		m.release()
		if m.onWritten != nil {
			waiting(ctx, m.onWritten)
		}
	}
	t.server.stats.minors.Add(1)
	t.server.signalRoom()
	return nil
}

// addFiles makes files, by group, the newest of the tablet, and redo its redo point.
// They were written by view v. If it fails, the files are given up; errRegrouped means that they are to be written anew.
func (t *Tablet) addFiles(ctx context.Context, v *view, files map[string]*file, redo uint64, stamped int64, install func(n *view)) error {
	may := func(m *Meta) error {
		for _, f := range files {
			if f.meta.RowDeletions > 0 && m.newGroups(v) {
				return errRegrouped
			}
		}
		return nil
	}
	unclear, err := t.changeMetaIf(ctx, may, func(m *Meta) {
		m.Redo = max(m.Redo, redo)
		m.Stamped = max(m.Stamped, stamped)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			m.replaceFiles(name, nil, &files[name].meta)
		}
	}, func(n *view) {
		install(n)
		for name, f := range files {
			n.replace(name, nil, f)
		}
	})
	if err != nil {
		discard(files, unclear)
	}
	return err
}

// writeSources writes entries that are newer than v's files as SSTables, by group. bytes is the most that they come
// to, about, 0 if that is not known. Step, if it is not nil, is told of what is written.
func (t *Tablet) writeSources(ctx context.Context, v *view, sources []source, bytes int64, step func(bytes int)) (files map[string]*file, err error) {
	s, schema := t.server, t.schema.Load()
	writers := map[string]*fileWriter{}
	defer func() {
		if err != nil {
			for _, w := range writers {
				w.blob.Abort()
			}
			discard(files, false)
		}
	}()
	add := func(group string, f *family, key, value []byte) error {
		w := writers[group]
		if w == nil {
			if w, err = t.newFileWriter(ctx, groupOf(schema, group), bytes, true, step); err != nil {
				return err
			}
			writers[group] = w
		}
		return w.add(f, key, value)
	}
	c := compaction{schema: schema, emit: func(f *family, key, value []byte) error {
		if f != nil {
			return add(f.Group, f, key, value)
		}
		// What the deletion of a row covers among these entries is left out
		// here; it is still needed where older files are.
		for i := range v.groups {
			if len(v.groups[i].files) > 0 {
				if err := add(v.groups[i].name, nil, key, value); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	c.judge.init(s.gcNow(), math.MaxUint64)
	c.merge.reset(sources)
	if err := c.run(); err != nil {
		return nil, err
	}
	files = map[string]*file{}
	for _, name := range slices.Sorted(maps.Keys(writers)) {
		f, err := writers[name].finish(ctx, s)
		if err != nil {
			return files, err
		}
		delete(writers, name)
		files[name] = f
		if schema.keepsInMemory(name) {
			s.pins.now(ctx, f, v.filesOf(name))
		}
	}
	return files, nil
}

// minorLoop writes frozen memtables out, and freezes what must go: under
// pressure the largest memtable, and when the commit log grows too long the one
// that holds its oldest record.
func (s *Server) minorLoop() {
	w := minorWork{s: s, turn: newTurn()}
	for {
		select {
		case <-s.closing:
			return
		case <-s.minorQueue.wake:
		}
		for more := true; more; {
			more = w.next()
		}
	}
}

// minorWork is what minorLoop does, one tablet at a time: see turn.
type minorWork struct {
	s    *Server
	turn turn
	// stuck is the tablet whose failure is reported as what blocks writes. Guarded by turn.
	stuck *Tablet
}

// next begins to write a tablet out, or freezes a memtable. It returns false if neither is to be done.
func (w *minorWork) next() bool {
	w.turn.take()
	t := w.s.minorQueue.take()
	if t == nil {
		defer w.turn.pass()
		return w.s.relieve()
	}
	t.minorPending.Store(true)
	w.s.background.Go(func() {
		defer w.s.minorQueue.wakeUp()
		defer w.turn.pass()
		w.write(t)
	})
	return true
}

// write writes a tablet out. If that fails, it is tried again later, and the other tablets do not wait for it.
func (w *minorWork) write(t *Tablet) {
	s := w.s
	again := func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			t.minorPending.Store(false)
			s.minorQueue.add(t)
		})
	}
	free, err := t.minorIfFree(w.turn.with(s.ctx))
	switch {
	case !free:
		again(busyPause)
	case err == nil || errors.Is(err, errUnloaded):
		t.minorPending.Store(false)
		t.minorFailures = 0
		if w.stuck == t || s.writesBlocked() != nil { // a full disk has room again
			s.blocked.Store(nil)
		}
		s.mergeQueue.add(t)
		s.releaseLogs()
	case s.ctx.Err() != nil:
	default:
		pause := min(retryPauseMin<<min(t.minorFailures, 10), retryPauseMax)
		t.minorFailures++
		s.log.Error("minor compaction", "tablet", t.id, "error", err, "retry in", pause)
		w.stuck = t
		s.blocked.Store(&err)
		again(pause)
	}
}

// The pauses between attempts of a compaction of one tablet that failed, for want of disk
// space as a rule.
const (
	retryPauseMin = 100 * time.Millisecond
	retryPauseMax = 10 * time.Second
	busyPause     = 5 * time.Millisecond // while a tablet is being split, merged or compacted by another
)

// sleep waits for d or until the server closes.
func (s *Server) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.closing:
	case <-timer.C:
	}
}

// writesBlocked returns why memtables cannot be written out, if they cannot.
func (s *Server) writesBlocked() error {
	if err := s.blocked.Load(); err != nil && errors.Is(*err, blobfs.ErrDiskFull) {
		return *err
	}
	return nil
}

// logIsWeak says whether what memtables hold is in a part of the log that is not as safe as it
// should be.
func (s *Server) logIsWeak() bool {
	weak := s.logWriter.Weak()
	return weak > 0 && s.commits.Covered(s.redo()) < weak
}

// relieve freezes a memtable if the budget of memory or of log calls for it, and
// says whether it did.
func (s *Server) relieve() bool {
	var victim *Tablet
	switch {
	case s.pressed.Swap(false) || s.memtables.Load() > s.cfg.MemtablesBytesMax*5/8:
		most := int64(0)
		for _, t := range s.allTablets() {
			if n := t.activeBytes(); n > most && !t.minorPending.Load() {
				victim, most = t, n
			}
		}
	case s.commits.Pending(s.redo()) > s.cfg.LogBytesMax, s.logIsWeak():
		oldest := uint64(math.MaxUint64)
		for _, t := range s.allTablets() {
			if seq := t.unflushed(); seq != 0 && seq < oldest {
				victim, oldest = t, seq
			}
		}
	}
	// A tablet that is being written out, or is to be tried again, releases no memory sooner if more of it is frozen.
	if victim == nil || victim.minorPending.Load() {
		return false
	}
	return s.commits.Between(victim.freeze) == nil
}

// activeBytes returns the memory of the entries in the active memtable.
func (t *Tablet) activeBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.mu.current; v != nil && v.active.Len() > 0 {
		return v.active.Bytes()
	}
	return 0
}

// redo returns the server's redo point: every commit with a lower sequence number
// is in files.
func (s *Server) redo() uint64 {
	// Read first: a commit that is applied meanwhile is then above it.
	redo := s.appliedNext.Load()
	for _, t := range s.allTablets() {
		if seq := t.unflushed(); seq != 0 {
			redo = min(redo, seq)
		}
	}
	return redo
}

// releaseLogs gives back the log space that no tablet needs.
func (s *Server) releaseLogs() {
	redo := s.redo()
	s.logWriter.Release(s.commits.Covered(redo))
	s.oldLogs.Lock()
	var done []blobfs.ID
	s.oldLogs.list = slices.DeleteFunc(s.oldLogs.list, func(l oldLog) bool {
		if l.maxSeq >= redo {
			return false
		}
		done = append(done, l.id)
		return true
	})
	s.oldLogs.Unlock()
	for _, id := range done {
		if err := s.cfg.Blobs.RemoveLog(s.ctx, id); err != nil {
			s.log.Warn("remove commit log", "log", id.String(), "error", err) // found again at the next start
		}
	}
}
