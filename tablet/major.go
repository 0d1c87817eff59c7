package tablet

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/sstable"
)

// mergeFilesMax bounds the files that one merging compaction reads, so that it
// ends in bounded time and memory.
const mergeFilesMax = 12

// pickMerge chooses which of a group's files a merging compaction takes, as a run
// [from, to) of files next to each other in age, or none. sizes are in bytes,
// oldest file first.
//
// The run starts at the oldest file that is no larger than all newer ones
// together, so a byte is rewritten only when the data that is merged with it has
// grown as large: about log2(tablet size / memtable size) times in its life. A
// read merges at most filesMerge files plus what came in while one compaction ran.
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

// mergeDue runs the merging compactions that the tablet's file counts call for,
// or a major compaction if its period is over.
func (t *Tablet) mergeDue(ctx context.Context) error {
	if !t.server.cfg.Now().Before(t.majorDue()) {
		if err := t.flush(ctx); err != nil {
			return err
		}
		return t.major(ctx)
	}
	t.mergeMu.Lock()
	defer t.mergeMu.Unlock()
	ctx, done := t.interruptible(ctx)
	defer done()
	for {
		merged := false
		v, _, err := t.acquire()
		if err != nil {
			return errUnloaded
		}
		for i := range v.groups {
			g := &v.groups[i]
			sizes := make([]int64, len(g.files))
			for i, f := range g.files {
				sizes[i] = f.bytes
			}
			from, to := pickMerge(sizes, t.server.cfg.FilesMerge)
			if from == to {
				continue
			}
			if err = t.mergeFiles(ctx, g, from, to); err != nil {
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

// major rewrites each group of the tablet as one file at most, without deletions
// and what they cover, and without what the GC policies collect (paper §5.4).
func (t *Tablet) major(ctx context.Context) error {
	t.mergeMu.Lock()
	defer t.mergeMu.Unlock()
	ctx, done := t.interruptible(ctx)
	defer done()
	began := t.server.cfg.Now()
	v, _, err := t.acquire()
	if err != nil {
		return errUnloaded
	}
	defer v.release()
	stamp := func(m *Meta) { m.LastMajor = began }
	for i := range v.groups {
		g := &v.groups[i]
		if len(g.files) == 0 {
			continue
		}
		if err := t.mergeFiles(ctx, g, 0, len(g.files)); err != nil {
			return err
		}
	}
	t.server.stats.majors.Add(1)
	_, err = t.changeMeta(stamp, func(*view) {})
	return err
}

// mergeFiles rewrites the files [from, to) of a group as one. mergeMu is held, so
// only newer files can have joined the group since g was read.
func (t *Tablet) mergeFiles(ctx context.Context, g *group, from, to int) (err error) {
	s, schema := t.server, t.schema.Load()
	defer func() { // the block store tells only that ctx has ended
		if errors.Is(err, context.Canceled) && context.Cause(ctx) == errInterrupted {
			err = errInterrupted
		}
	}()
	old := g.files[from:to]
	budget := s.budget
	if len(g.files) >= s.cfg.FilesMax/2 {
		budget = nil // reads suffer more from so many files than from the disk's load
	}
	var w *fileWriter
	c := compaction{ctx: ctx, schema: schema, wholePast: from == 0, emit: func(f *family, key, value []byte) error {
		if w == nil {
			if w, err = s.newFileWriter(ctx, groupOf(schema, g.name), false, budget); err != nil {
				return err
			}
		}
		return w.add(f, key, value)
	}}
	c.judge.init(s.gcNow(), math.MaxUint64)
	var sources []source
	for _, f := range old {
		it := f.table.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: readAheadBytes})
		defer it.Close()
		sources = append(sources, boundedSource(it, f.meta.Start, f.meta.End))
	}
	c.merge.reset(sources)
	if err := c.run(); err != nil {
		if w != nil {
			w.blob.Abort()
		}
		return err
	}
	files := map[string]*file{}
	var added *file
	var addedMeta *FileMeta
	if w != nil {
		if added, err = w.finish(ctx, s); err != nil {
			return err
		}
		// What is left of the old files stands for all of them: files stay in order,
		// whatever was dropped.
		for _, f := range old {
			added.meta.MinSeq, added.meta.MaxSeq = min(added.meta.MinSeq, f.meta.MinSeq), max(added.meta.MaxSeq, f.meta.MaxSeq)
		}
		files[g.name], addedMeta = added, &added.meta
	}
	unclear, err := t.changeMeta(func(m *Meta) { m.replaceFiles(g.name, old, addedMeta) },
		func(v *view) { v.replace(g.name, old, added) })
	if err != nil {
		discard(files, unclear)
		return err
	}
	for _, f := range old {
		f.unlink.Store(true)
	}
	s.stats.merges.Add(1)
	return nil
}

// readAheadBytes is how much a compaction reads from each file at once.
const readAheadBytes = 1 << 20

// flush writes all of the tablet's memtables out.
func (t *Tablet) flush(ctx context.Context) error {
	if err := t.server.commits.Barrier(t.freeze); err != nil {
		return closedError(err)
	}
	if err := t.minor(ctx); err != nil {
		return err
	}
	t.server.releaseLogs()
	return nil
}

// Compact writes the memtables of a table's tablets out and runs the merging
// compactions that are due or, if major, a major compaction of each tablet. It
// returns when that is done, and may be given up half-way at no harm. Errors:
// api.ErrNoTable, api.ErrNotServing, ErrClosed, blobfs.ErrDiskFull.
func (s *Server) Compact(ctx context.Context, tableName string, major bool) error {
	for end, last := []byte(nil), false; !last; {
		tablets, err := s.tablets(tableName)
		if err != nil {
			return err
		}
		if end != nil { // those up to here are done
			tablets = slices.DeleteFunc(slices.Clone(tablets), func(t *Tablet) bool { return len(t.end) > 0 && string(t.end) <= string(end) })
		}
		if len(tablets) == 0 {
			return nil
		}
		t := tablets[0]
		err = t.flush(ctx)
		if err == nil && major {
			err = t.major(ctx)
		} else if err == nil {
			err = t.mergeDue(ctx)
		}
		if (errors.Is(err, errUnloaded) || errors.Is(err, errInterrupted)) && ctx.Err() == nil {
			continue // it was split, merged, unloaded or dropped, or will be
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
func (s *Server) CompactTablet(ctx context.Context, id uint64, major bool) error {
	for {
		t, err := s.tablet(id)
		if err != nil {
			return err
		}
		if err = t.flush(ctx); err == nil && major {
			err = t.major(ctx)
		} else if err == nil {
			err = t.mergeDue(ctx)
		}
		if !errors.Is(err, errUnloaded) && !errors.Is(err, errInterrupted) || ctx.Err() != nil {
			return err
		}
		// It was split, merged or unloaded, or will be.
	}
}

func (s *Server) mergeLoop() {
	for {
		select {
		case <-s.closing:
			return
		case <-s.mergeQueue.wake:
		}
		for t := s.mergeQueue.take(); t != nil; t = s.mergeQueue.take() {
			err := t.mergeDue(s.ctx)
			if err == nil || errors.Is(err, errUnloaded) {
				continue
			}
			if errors.Is(err, errInterrupted) {
				s.mergeQueue.add(t) // it may be served on; what interrupts holds mergeMu
				continue
			}
			if s.ctx.Err() != nil {
				return
			}
			s.log.Error("compaction", "tablet", t.id, "error", err)
			if !errors.Is(err, blobfs.ErrDiskFull) {
				continue // damaged files do not heal: the timer comes back to them
			}
			s.mergeQueue.add(t)
			s.sleep(retryPauseMax)
		}
	}
}

const (
	// timerPeriod is how often the server looks for major compactions that are due, for
	// a commit log that grew too long and for tablets that should be split.
	timerPeriod = 10 * time.Second
	// weakPeriod is how often it looks whether its log is as safe as it should be.
	weakPeriod = time.Second
)

func (s *Server) timerLoop() {
	tick := time.NewTicker(timerPeriod)
	defer tick.Stop()
	weak := time.NewTicker(weakPeriod)
	defer weak.Stop()
	last := time.Now()
	for {
		select {
		case <-s.closing:
			return
		case <-weak.C:
			if s.logIsWeak() {
				s.minorQueue.wakeUp()
			}
			continue
		case <-tick.C:
		}
		s.minorQueue.wakeUp()
		s.lookForSplits(max(time.Since(last), time.Millisecond))
		last = time.Now()
		now := s.cfg.Now()
		for _, t := range s.allTablets() {
			if !now.Before(t.majorDue()) || t.stalled.Load() {
				s.mergeQueue.add(t)
			}
		}
	}
}
