package tablet

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/sched"
)

// minorCompactor runs a tablet's minor compactions, one at a time.
type minorCompactor struct {
	tablet *Tablet

	// mu serializes the compactions. Held across I/O. Order: mu, then metadataRow.mu, then viewSet.mu.
	mu      sync.Mutex
	waiters atomic.Int32 // callers waiting for a compaction, which then does not pause

	// failures counts consecutive failures. Guarded by minorLoop's slot.
	failures int
	// busy is set while minorLoop writes the tablet out, or waits before a retry.
	busy atomic.Bool
}

// run writes out the tablet's frozen memtables, as one SSTable for each locality group that has
// entries (paper §5.4). It returns errUnloaded if the tablet is no longer served.
func (c *minorCompactor) run(ctx context.Context) error {
	c.waiters.Add(1)
	defer c.waiters.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runLocked(ctx)
}

// runIfFree is run if mu is free. Otherwise it does nothing and returns false: the holder
// may wait for this tablet's metadata, and other tablets must not wait with it.
func (c *minorCompactor) runIfFree(ctx context.Context) (bool, error) {
	if !c.mu.TryLock() {
		return false, nil
	}
	defer c.mu.Unlock()
	return true, c.runLocked(ctx)
}

// runLocked is run with mu held.
func (c *minorCompactor) runLocked(ctx context.Context) error {
	for {
		if err := c.once(ctx); !errors.Is(err, errRegrouped) {
			return err
		}
	}
}

func (c *minorCompactor) once(ctx context.Context) error {
	t := c.tablet
	v, _, err := t.views.acquire()
	if err != nil {
		return errUnloaded
	}
	defer v.release()
	if len(v.frozen) == 0 {
		return c.dropExpired(ctx, v)
	}
	var sources []source
	var bytes, largest int64
	for _, m := range v.frozen {
		bytes += m.Bytes()
		largest = max(largest, m.Largest())
		sources = append(sources, boundedSource(&memSource{m.Iter()}, m.start, m.end))
	}
	huge := writeBytes(largest)
	t.server.readMemory.AddWorking(huge)
	files, err := c.writeFiles(ctx, v, sources, bytes, c.pacer(ctx).Step)
	update := newChangeUpdate(ctx, t, v)
	if err == nil {
		if err = update.write(c.pacer(ctx).Step); err != nil {
			discard(files, false)
		}
	}
	t.server.readMemory.AddWorking(-huge)
	if err != nil {
		update.discard(false)
		return err
	}
	moment.Pass("files of a minor compaction are written", v.recovered())
	last := v.frozen[len(v.frozen)-1]
	redo := last.maxSeq.Load()
	if planted.On(planted.RedoTooFar) {
		redo = t.views.applied.Load()
	}
	err = c.addFiles(ctx, v, files, update, redo, last.stamped, func(n *view) {
		n.frozen = n.frozen[len(v.frozen):]
		n.checkRedo(redo)
	})
	if err != nil {
		return err
	}
	for _, m := range v.frozen {
		m.disown()
		if m.onWritten != nil {
			sched.WithoutSlot(ctx, m.onWritten)
		}
	}
	t.server.stats.minors.Add(1)
	t.server.writeMemory.Signal()
	return nil
}

// addFiles installs files, by group, as the newest of the tablet, what update has for its change files, and redo as its redo
// point. They were written from view v. On error the files are discarded; errRegrouped means that they must be
// written again.
func (c *minorCompactor) addFiles(ctx context.Context, v *view, files map[string]*file, update *changeUpdate, redo uint64, stamped int64, install func(n *view)) error {
	t := c.tablet
	precondition := func(m *Meta) error {
		for _, f := range files {
			if f.meta.RowDeletions > 0 && m.newGroups(v) {
				return errRegrouped
			}
		}
		return nil
	}
	unclear, err := t.meta.changeIf(ctx, precondition, func(m *Meta) {
		update.apply(m, redo)
		m.Redo = max(m.Redo, redo)
		m.Stamped = max(m.Stamped, stamped)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			files[name].meta.checkSequence()
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
		update.discard(unclear)
		return err
	}
	update.done()
	return nil
}

// dropExpired drops the change files that are older than the retention. c.mu is held.
func (c *minorCompactor) dropExpired(ctx context.Context, v *view) error {
	t := c.tablet
	if !t.changesExpired(v.meta) {
		return nil
	}
	return c.addFiles(ctx, v, nil, newChangeUpdate(ctx, t, v), 0, 0, func(*view) {})
}

// changesExpired reports whether change files are to be dropped.
func (t *Tablet) changesExpired(m *Meta) bool {
	if m.Changes == nil {
		return false
	}
	retention := t.schema.Load().table.ChangeRetention
	if retention == 0 {
		return len(m.Changes.Files) > 0 || m.Changes.Ended(m.Redo, m.Stamped) == nil
	}
	expired, _ := m.Changes.Expired(t.changesBefore(retention), changeFilesMax)
	return len(expired) > 0
}

// queueExpiredChanges queues the tablets with change files to be dropped.
func (s *Server) queueExpiredChanges() {
	for _, t := range s.served.all() {
		t.views.mu.Lock()
		v := t.views.current
		t.views.mu.Unlock()
		if v != nil && t.changesExpired(v.meta) {
			s.minors.queue.Add(t)
		}
	}
}

// writeFiles writes entries newer than v's files as SSTables, by group. bytes is their
// approximate maximum size, 0 if unknown. It calls step, if not nil, with the bytes written.
func (c *minorCompactor) writeFiles(ctx context.Context, v *view, sources []source, bytes int64, step func(bytes int)) (files map[string]*file, err error) {
	t := c.tablet
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
			if w, err = s.files.create(ctx, groupOf(schema, group), fileKind{minor: true, highPriority: t.highPriority, bytes: bytes}, step); err != nil {
				return err
			}
			writers[group] = w
		}
		return w.add(f, key, value)
	}
	work := compaction{schema: schema, cleared: v.cleared, emit: func(f *family, key, value []byte) error {
		if f != nil {
			return add(f.Group, f, key, value)
		}
		// The entries here that the row deletion covers are dropped. The deletion is kept for
		// groups with older files.
		for i := range v.groups {
			if len(v.groups[i].files) > 0 {
				if err := add(v.groups[i].name, nil, key, value); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	work.judge.Init(s.gcClock.Now(), math.MaxUint64)
	work.merge.reset(sources)
	if err := work.run(); err != nil {
		return nil, err
	}
	files = map[string]*file{}
	for _, name := range slices.Sorted(maps.Keys(writers)) {
		f, err := writers[name].finish(ctx, s.files)
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

// minorLoop writes out frozen memtables, one tablet at a time: see sched.Slot. It also freezes
// memtables: under memory pressure the largest one, and when the commit log grows too long the one
// with its oldest record.
type minorLoop struct {
	cfg       *Config
	life      *lifetime
	served    *TabletMap
	memory    *budget.Writes
	commitLog *serverLog
	written   func(*Tablet) // called after a tablet was written out

	queue *sched.Queue[*Tablet]
	slot  sched.Slot
	// stuck is the tablet whose failure is reported as blocking writes. Guarded by slot.
	stuck   *Tablet
	blocked atomic.Pointer[error] // the last failure, until memtables can be written out again
}

// run works until the server closes.
func (l *minorLoop) run() {
	for {
		select {
		case <-l.life.closing:
			return
		case <-l.queue.Wake:
		}
		for more := true; more; {
			more = l.next()
		}
	}
}

// next starts writing out a tablet, or freezes a memtable. It returns false if neither is due.
func (l *minorLoop) next() bool {
	l.slot.Acquire()
	t := l.queue.Take()
	if t == nil {
		defer l.slot.Release()
		return l.relieve()
	}
	t.minor.busy.Store(true)
	l.life.background.Go(func() {
		defer l.queue.WakeUp()
		defer l.slot.Release()
		l.writeOut(t)
	})
	return true
}

// writeOut writes out a tablet. If that fails, it is retried later, and other tablets do not wait for
// it.
func (l *minorLoop) writeOut(t *Tablet) {
	again := func(pause time.Duration) {
		time.AfterFunc(pause, func() {
			t.minor.busy.Store(false)
			l.queue.Add(t)
		})
	}
	free, err := t.minor.runIfFree(l.slot.With(l.life.ctx))
	switch {
	case !free:
		again(busyPause)
	case err == nil || errors.Is(err, errUnloaded):
		t.minor.busy.Store(false)
		t.minor.failures = 0
		unblocked := l.stuck == t || l.writesBlocked() != nil // a full disk has space again
		if planted.On(planted.BlockedForEver) {
			unblocked = l.stuck == t && err == nil
		}
		if unblocked {
			l.blocked.Store(nil)
		}
		l.written(t)
		l.commitLog.trim()
	case l.life.ctx.Err() != nil:
	default:
		pause := min(retryPauseMin<<min(t.minor.failures, 10), retryPauseMax)
		t.minor.failures++
		l.cfg.Logger.Error("minor compaction failed", "tablet", t.id, "err", err, "retry_in", pause)
		l.stuck = t
		l.blocked.Store(&err)
		again(pause)
	}
}

// Pauses between attempts of a tablet's compaction after a failure, usually for lack of disk space.
const (
	retryPauseMin = 100 * time.Millisecond
	retryPauseMax = 10 * time.Second
	busyPause     = 5 * time.Millisecond // while another goroutine splits, merges or compacts the tablet
)

// writesBlocked returns the error if memtables cannot be written out because the disks are full.
func (l *minorLoop) writesBlocked() error {
	if err := l.blocked.Load(); err != nil && errors.Is(*err, blobfs.ErrDiskFull) {
		return *err
	}
	return nil
}

// relieve freezes a memtable if the memory or log limit requires it, and reports whether it did.
func (l *minorLoop) relieve() bool {
	var victim *Tablet
	switch {
	case l.memory.Pressed():
		most := int64(0)
		for _, t := range l.served.all() {
			if n := t.views.activeBytes(); n > most && !t.minor.busy.Load() {
				victim, most = t, n
			}
		}
	case l.commitLog.tooLong(), l.commitLog.isWeak():
		oldest := uint64(math.MaxUint64)
		for _, t := range l.served.all() {
			if seq := t.views.unflushed(); seq != 0 && seq < oldest {
				victim, oldest = t, seq
			}
		}
	}
	// Freezing more of a tablet that is being written out, or waits for a retry, releases no memory
	// sooner.
	if victim == nil || victim.minor.busy.Load() {
		return false
	}
	frozen := false // not if the oldest entries are in a memtable that is frozen already
	err := l.commitLog.commits.Between(func() { frozen = victim.writer.tryFreeze() })
	return err == nil && frozen
}
