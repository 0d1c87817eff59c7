package tablet

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/deletion"
	"github.com/steledb/stele/tablet/sched"
	"github.com/steledb/stele/tablet/tombstone"
)

// mergeFilesMax bounds the files that one merging compaction reads, and with them its time and
// memory.
const mergeFilesMax = 12

// mergeCompactor runs a tablet's merging and major compactions, one at a time. A caller that needs
// the tablet's files to stay as they are interrupts the running one: see stop.
type mergeCompactor struct {
	tablet *Tablet

	// mu serializes the compactions. Held across I/O. Order: mu, then metadataRow.mu, then state.
	mu sync.Mutex

	// state guards the fields below. Never held across I/O.
	state      sync.Mutex
	interrupt  context.CancelCauseFunc // cancels the running compaction
	interrupts int                     // waiting callers of stop
}

// pickMerge returns the range [from, to) of a group's files that a merging compaction takes; the
// range may be empty. The files are neighbours in age. sizes are in bytes, oldest file first.
//
// The range starts at the oldest file that is no larger than all newer ones together. So a byte is
// rewritten only with about as much newer data: about log2(tablet size / memtable size) times in
// its life. A read merges at most filesMerge files plus those that arrive during one compaction.
func pickMerge(sizes []int64, filesMerge int) (from, to int) {
	n := len(sizes)
	if n < filesMerge {
		return 0, 0
	}
	newer := int64(0)
	for _, size := range sizes {
		newer += size
	}
	for i, size := range sizes {
		newer -= size
		if size <= newer || n-i <= 2 {
			return i, min(n, i+mergeFilesMax)
		}
	}
	return 0, 0
}

// due runs the merging compactions that the tablet's file counts require, or a major
// compaction if one is due.
func (c *mergeCompactor) due(ctx context.Context) error {
	t := c.tablet
	if t.meta.majorIsDue() {
		if err := t.flush(ctx); err != nil {
			return err
		}
		return c.major(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mergeLocked(ctx)
}

// dueIfFree is due if the locks of the tablet's compactions are free. Otherwise it returns false: the
// holder may wait for this tablet's metadata, and other tablets must not wait with it.
func (c *mergeCompactor) dueIfFree(ctx context.Context) (free bool, err error) {
	t := c.tablet
	due := t.meta.majorIsDue()
	if due {
		if err = t.server.commitLog.commits.Between(t.writer.freeze); err != nil {
			return true, closedError(err)
		}
		if free, err = t.minor.runIfFree(ctx); !free || err != nil {
			return free, err
		}
		t.server.commitLog.trim()
	}
	if planted.On(planted.CompactionsStop) {
		c.mu.Lock()
	} else if !c.mu.TryLock() {
		return false, nil
	}
	defer c.mu.Unlock()
	if due {
		return true, c.majorLocked(ctx)
	}
	return true, c.mergeLocked(ctx)
}

// mergeLocked runs the merging compactions that are due, with mu held.
func (c *mergeCompactor) mergeLocked(ctx context.Context) error {
	t := c.tablet
	ctx, done := c.interruptible(ctx)
	defer done()
	for {
		merged := false
		v, err := t.views.acquireFiles()
		if err != nil {
			return errUnloaded
		}
		for i := range v.groups {
			g := &v.groups[i]
			sizes := make([]int64, len(g.files))
			for i, f := range g.files {
				sizes[i] = f.bytes
			}
			from, to := t.server.cfg.pick(sizes, t.server.cfg.FilesMerge)
			if from == to {
				continue
			}
			less, end := mergeableRange(g.files[from:to], t.server.cfg.CompactionMemory)
			from, to = from+less, from+end
			if err = c.mergeFiles(ctx, v, g, from, to); err != nil {
				break
			}
			merged = true
		}
		v.release()
		if err != nil || !merged {
			return err
		}
	}
}

// major rewrites each group of the tablet as at most one file. It drops deletions with what they
// cover, and what the GC policies collect (paper §5.4).
func (c *mergeCompactor) major(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.majorLocked(ctx)
}

// majorLocked is major with mu held.
func (c *mergeCompactor) majorLocked(ctx context.Context) error {
	t := c.tablet
	ctx, done := c.interruptible(ctx)
	defer done()
	began := t.server.cfg.Now()
	unflushed := t.views.unflushed()
	v, err := c.acquireMergeable(ctx)
	if err != nil {
		return err
	}
	defer v.release()
	if v.hasMovedFamilies(t.schema.Load()) {
		if err := c.regroup(ctx, v); err != nil {
			return err
		}
		return c.majorDone(ctx, began, v, unflushed)
	}
	for i := range v.groups {
		g := &v.groups[i]
		if len(g.files) == 0 {
			continue
		}
		if err := c.mergeFiles(ctx, v, g, 0, len(g.files)); err != nil {
			return err
		}
	}
	return c.majorDone(ctx, began, v, unflushed)
}

// majorDone records a major compaction that has rewritten the files of v, and removes the range tombstones that hide nothing any more
// (T13). unflushed is the first entry that was in no file before v was acquired; 0 if all were in files.
func (c *mergeCompactor) majorDone(ctx context.Context, began time.Time, v *view, unflushed uint64) error {
	t := c.tablet
	t.server.stats.majors.Add(1)
	var left tombstone.List
	_, err := t.meta.change(ctx, func(m *Meta) {
		m.LastMajor, left = began, nil
		for _, r := range m.Cleared {
			if unflushed != 0 && unflushed <= r.Seq || !v.cleared.Has(r) {
				left = append(left, r)
				continue
			}
			m.Redo = max(m.Redo, r.Seq)
		}
		m.Cleared = left
	}, func(v *view) { v.cleared = left })
	return err
}

// mergeFiles rewrites the files [from, to) of a group of v as one. mu is held, so only newer
// files can have been added since v was acquired.
func (c *mergeCompactor) mergeFiles(ctx context.Context, v *view, g *group, from, to int) error {
	t := c.tablet
	s, schema := t.server, t.schema.Load()
	old := g.files[from:to]
	oldest := from == 0 || planted.On(planted.DeletionsDroppedEarly) && to == len(g.files)
	fullHistory := oldest && !v.hasMovedFamilies(schema)
	files, err := c.rewrite(ctx, schema, old, v.cleared, fullHistory, learns(*groupOf(schema, g.name)), func(*family) string { return g.name })
	if err != nil {
		return err
	}
	added := files[g.name]
	var addedMeta *FileMeta
	if added != nil {
		addedMeta = &added.meta
	}
	precondition := func(*Meta) error { return nil }
	change := func(m *Meta) { m.replaceFiles(g.name, old, addedMeta) }
	if added == nil || len(added.warm) == 0 || s.backlogs.behind() {
		err = c.replaceFiles(ctx, precondition, files, old, change, func(v *view) { v.replace(g.name, old, added) })
	} else if err = c.replaceFiles(ctx, precondition, files, old, change, func(*view) {}); err == nil {
		c.cutover(ctx, g.name, old, added)
	}
	if err == nil {
		s.stats.merges.Add(1)
	}
	return err
}

// regroup is a major compaction of a tablet with families that moved to another locality group. All
// files are one input, and each family is written to its current group. mu is held.
func (c *mergeCompactor) regroup(ctx context.Context, v *view) error {
	t := c.tablet
	var old []*file
	for _, g := range v.groups {
		old = append(old, g.files...)
	}
	schema := t.schema.Load()
	files, err := c.rewrite(ctx, schema, old, v.cleared, true, slices.ContainsFunc(schema.table.Groups, learns), func(f *family) string { return f.Group })
	if err != nil {
		return err
	}
	precondition := func(m *Meta) error {
		if m.newDeletions(old) {
			return errInterrupted // the compaction starts over
		}
		return nil
	}
	err = c.replaceFiles(ctx, precondition, files, old, func(m *Meta) { m.regroup(old, files) }, func(v *view) { v.regroup(old, files) })
	if err == nil {
		t.server.stats.merges.Add(1)
	}
	return err
}

// rewrite writes the live entries of some files to the group that groupFor returns for each family.
// learn reports whether any of these groups has two-pass compression. rewrite may wait for memory;
// no holder of that memory waits for a lock. The output is cached, as far as the cache has space,
// where the input is.
func (c *mergeCompactor) rewrite(ctx context.Context, schema *schema, old []*file, cleared tombstone.List, fullHistory, learn bool,
	groupFor func(*family) string) (files map[string]*file, err error) {
	t := c.tablet
	s := t.server
	writers := map[string]*fileWriter{}
	defer func() {
		if err != nil {
			for _, w := range writers {
				w.blob.Abort()
			}
			discard(files, false)
		}
		if errors.Is(err, context.Canceled) && context.Cause(ctx) == errInterrupted {
			err = errInterrupted // the block store reports only that ctx has ended
		}
	}()
	bytes := int64(0)
	for _, f := range old {
		bytes += f.bytes
	}
	pacer := c.pacer(ctx)
	work := compaction{ctx: ctx, schema: schema, cleared: cleared, fullHistory: fullHistory}
	work.emit = func(f *family, key, value []byte) error {
		name := groupFor(f)
		w := writers[name]
		if w == nil {
			var err error
			if w, err = s.files.create(ctx, groupOf(schema, name), fileKind{highPriority: t.highPriority, bytes: bytes}, pacer.Step); err != nil {
				return err
			}
			writers[name] = w
		}
		if err := w.add(f, key, value); err != nil {
			return err
		}
		if work.merge.cached() {
			w.wasCached(key, value)
		}
		return nil
	}
	if learn {
		release, err := s.compactionMemory.Learn(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	memory, budget := rewriteBytes(old, s.cfg.CompactionMemory)
	release, err := s.compactionMemory.Merge(ctx, memory)
	if err != nil {
		return nil, err
	}
	defer release()
	work.judge.Init(s.gcClock.Now(), math.MaxUint64)
	sources, large := rewriteSources(old, budget, pacer.Step)
	defer large.close()
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
		files[name] = f
		delete(writers, name)
		// A new file covers the sequence numbers of all old ones: files stay in order, whatever was
		// dropped.
		for _, o := range old {
			f.meta.MinSeq, f.meta.MaxSeq = min(f.meta.MinSeq, o.meta.MinSeq), max(f.meta.MaxSeq, o.meta.MaxSeq)
		}
		if schema.keepsInMemory(name) {
			s.pins.now(ctx, f, old)
		}
	}
	return files, nil
}

// replaceFiles makes the metadata change that replaces the old files with files, by group, on the
// given precondition. On error files are discarded.
func (c *mergeCompactor) replaceFiles(ctx context.Context, precondition func(*Meta) error, files map[string]*file, old []*file, change func(*Meta), install func(*view)) error {
	t := c.tablet
	unclear, err := t.meta.changeIf(ctx, precondition, change, install)
	if err != nil {
		discard(files, unclear)
		return err
	}
	for _, f := range old {
		f.unlink.Store(true)
	}
	return nil
}

// errInterrupted ends a merging or major compaction that blocks a split, a merge or an unload.
var errInterrupted = errors.New("compaction interrupted")

// interruptible returns a context that ends with ctx or with the next call of stop. mu
// is held; done must be called before it is released.
func (c *mergeCompactor) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.state.Lock()
	c.interrupt = cancel
	if c.interrupts > 0 {
		cancel(errInterrupted)
	}
	c.state.Unlock()
	return ctx, func() {
		c.state.Lock()
		c.interrupt = nil
		c.state.Unlock()
		cancel(nil)
	}
}

// stop ends the tablet's running merging or major compaction, if any, and returns with
// mu held.
func (c *mergeCompactor) stop() {
	c.state.Lock()
	c.interrupts++
	if c.interrupt != nil {
		c.interrupt(errInterrupted)
	}
	c.state.Unlock()
	c.mu.Lock()
	c.state.Lock()
	c.interrupts--
	c.state.Unlock()
}

// readAheadBytes is the read size of compactions for each file, in bytes.
const readAheadBytes = 1 << 20

// Compact writes out the memtables of a table's tablets and runs the merging compactions that are
// due or, if major is set, a major compaction of each tablet. It returns when that is done and the
// replaced files are deleted. It may be interrupted at any time. Errors: api.ErrNoTable,
// api.ErrNotServing, ErrClosed, blobfs.ErrDiskFull.
func (s *Server) Compact(ctx context.Context, tableName string, major bool) error {
	defer s.deletions.Run(ctx)
	for end, last := []byte(nil), false; !last; {
		tablets, err := s.served.tabletsOf(tableName)
		if err != nil {
			return err
		}
		if end != nil { // earlier tablets are done
			tablets = slices.DeleteFunc(slices.Clone(tablets), func(t *Tablet) bool { return len(t.end) > 0 && string(t.end) <= string(end) })
		}
		if len(tablets) == 0 {
			return nil
		}
		t := tablets[0]
		err = t.flushAndCompact(ctx, major)
		if (errors.Is(err, errUnloaded) || errors.Is(err, errInterrupted)) && ctx.Err() == nil {
			continue // it was, or is being, split, merged, unloaded or dropped
		}
		if err != nil {
			return err
		}
		end, last = t.end, len(t.end) == 0
	}
	return nil
}

// CompactTablet is Compact for one tablet. Errors: api.ErrNotServing, ErrClosed,
// blobfs.ErrDiskFull, ctx's.
func (s *Server) CompactTablet(ctx context.Context, r Ref, major bool) error {
	defer s.deletions.Run(ctx)
	for {
		t, err := s.served.tablet(r)
		if err != nil {
			return err
		}
		err = t.flushAndCompact(ctx, major)
		if !errors.Is(err, errUnloaded) && !errors.Is(err, errInterrupted) || ctx.Err() != nil {
			return err
		}
		// It was, or is being, split, merged or unloaded.
	}
}

// mergeLoop runs the merging and major compactions that are due, one tablet at a time: see sched.Slot.
type mergeLoop struct {
	cfg       *Config
	life      *lifetime
	served    *TabletMap
	deletions *deletion.Queue

	queue *sched.Queue[*Tablet]
	slot  sched.Slot
}

// run works until the server closes.
func (l *mergeLoop) run() {
	for {
		select {
		case <-l.life.closing:
			return
		case <-l.queue.Wake:
		}
		for {
			l.slot.Acquire()
			t := l.queue.Take()
			if t == nil {
				l.slot.Release()
				break
			}
			l.life.background.Go(func() {
				defer l.slot.Release()
				l.compact(l.slot.With(l.life.ctx), t)
			})
		}
	}
}

// compact compacts a tablet, or queues it again.
func (l *mergeLoop) compact(ctx context.Context, t *Tablet) {
	free := true
	err := l.deletions.WithDiskSpace(ctx, func() (err error) {
		free, err = t.merge.dueIfFree(ctx)
		return err
	})
	switch {
	case !free:
		time.AfterFunc(busyPause, func() { l.queue.Add(t) })
	case err == nil || errors.Is(err, errUnloaded):
	case errors.Is(err, errInterrupted):
		l.queue.Add(t) // it may still be served; the interrupting caller holds its lock
	case l.life.ctx.Err() != nil:
	default:
		l.cfg.Logger.Error("compaction failed", "tablet", t.id, "err", err)
		if errors.Is(err, blobfs.ErrDiskFull) { // other errors, such as corrupt files, wait for the timer
			l.queue.Add(t)
			l.life.sleep(retryPauseMax)
		}
	}
}

// queueDue queues the tablets that are due for a major compaction or stalled.
func (l *mergeLoop) queueDue() {
	now := l.cfg.Now()
	for _, t := range l.served.all() {
		if !now.Before(t.meta.majorDue()) || t.meta.manyClears() || t.views.stalled.Load() {
			l.queue.Add(t)
		}
	}
}
