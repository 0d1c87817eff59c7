package tablet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/sortedrun"
)

// Load describes a tablet to load.
type Load struct {
	// Meta is narrowed to the rows that METADATA assigns to the tablet: see Meta.Narrow.
	Meta   *Meta
	Schema *table.Schema
	// Version is the version of Schema. Nil means that only SetSchema changes the schema.
	Version Version

	// HighPriority marks a tablet of METADATA as high priority. Its writes never wait for memory: they are
	// small, and freeing memory depends on them. All its files are high priority in the block
	// store, not only those of minor compactions.
	HighPriority bool

	// Runs are the sorted runs of dead servers' commit logs.
	Runs []sortedrun.Run
	// OnRecovered, if not nil, is called once Metadata no longer depends on Runs. It may block:
	// only compactions wait for it.
	OnRecovered func()
}

// ErrServed means that the tablet, or another one with some of its rows, is already served.
var ErrServed = errors.New("tablet is served already")

// Load opens a tablet's files, recovers its entries of the runs and starts serving it. Its new
// entries get sequence numbers above all that it has. Its server timestamps continue above the last
// one, whatever the clock shows (I8). Recovered entries are written out at once; then OnRecovered
// is called.
//
// Errors: ErrServed, api.ErrNoTable if a later table has the name, ErrClosed, those of the runs, a
// *sstable.CorruptError or *blobfs.CorruptError.
func (s *Server) Load(ctx context.Context, l Load) error {
	if err := s.BeginLog(ctx); err != nil {
		return err
	}
	t, err := s.newTablet(ctx, l)
	if err != nil {
		return err
	}
	seq, stamped := l.Meta.lastSeq(), l.Meta.Stamped
	for _, r := range l.Runs {
		seq, stamped = max(seq, r.MaxSeq()), max(stamped, r.MaxTime())
	}
	s.commitLog.commits.Raise(seq + 1)
	t.views.applied.Store(seq)
	if planted.On(planted.ClockOnly) {
		stamped = 0
	}
	t.writer.stamped.Store(stamped)
	rec := recovery{server: s, tablet: t, load: &l, maxSeq: seq}
	moment.Pass("before a tablet is recovered", "")
	if err = rec.run(ctx); err == nil {
		moment.Pass("before a tablet is served", "")
		if planted.On(planted.DroppedTableServed) && l.Version != nil && !l.Version.Current() {
			t.schema.Store(newSchema(l.Schema, &missedChange{l.Version, time.Now().Add(time.Second)}))
		}
		err = s.register(ctx, l.Schema.Name, t)
	}
	if err != nil {
		t.unload(false) // not reachable yet
		return fmt.Errorf("load tablet %d of table %s: %w", t.id, l.Schema.Name, err)
	}
	switch {
	case rec.frozen > 0:
		s.minors.queue.Add(t)
		if planted.On(planted.RecoveredTooSoon) && l.OnRecovered != nil {
			l.OnRecovered()
		}
	case l.OnRecovered != nil:
		l.OnRecovered()
	}
	return nil
}

// recovery adds the entries of runs to a tablet that is not served yet.
type recovery struct {
	server *Server
	tablet *Tablet
	load   *Load
	maxSeq uint64
	frozen int // memtables
	open   []sortedrun.Entries
	gaps   streamGaps
}

// run adds the entries to memtables. If they exceed the memory for recoveries, it writes them to
// files instead, without holding them.
func (r *recovery) run(ctx context.Context) error {
	if len(r.load.Runs) == 0 {
		return nil
	}
	sources, closeAll, err := r.sources(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	release, err := r.memory(ctx)
	if err != nil {
		return err
	}
	defer release()
	mems, fits, err := r.fill(ctx, sources)
	if err == nil && fits {
		r.freeze(mems)
		return nil
	}
	for _, m := range mems {
		m.disown()
	}
	if err != nil {
		return err
	}
	return r.toFiles(ctx, sources)
}

// fill adds the entries to memtables until all are added or they do not fit.
func (r *recovery) fill(ctx context.Context, sources []source) (mems []*mem, fits bool, err error) {
	s, n := r.server, 0
	all := distinctOf(sources) // an entry of two runs must not be in two memtables
	for ok := all.First(); ok; ok = all.Next() {
		if err := r.gaps.add(all.Key(), all.Value()); err != nil {
			return mems, false, err
		}
		if len(mems) == 0 || mems[len(mems)-1].Bytes() > s.cfg.MemtableBytes {
			mems = append(mems, newMem(s.writeMemory))
		}
		last := mems[len(mems)-1]
		if time, first, ok := logbody.RecordKey(all.Key()); ok {
			last.changes.Add(changes.Record{First: first, Time: time, Body: all.Value()})
		} else if _, err := last.Add(all.Key(), all.Value()); err != nil {
			return mems, false, err
		}
		last.count()
		if s.writeMemory.Memtables() > s.cfg.MemtablesBytesMax/2 {
			return mems, false, nil
		}
		if n++; n%checkEntries == 0 && ctx.Err() != nil {
			return mems, false, context.Cause(ctx)
		}
	}
	return mems, true, all.Err()
}

// freeze queues mems to be written out. They hold the rows in order, not the sequence numbers, so
// all must be in files before the redo point moves. One minor compaction takes them all, and each
// is marked with the whole range of sequence numbers.
func (r *recovery) freeze(mems []*mem) {
	r.frozen = len(mems)
	for i, m := range mems {
		m.minSeq.Store(r.load.Meta.Redo + 1)
		m.maxSeq.Store(r.maxSeq)
		m.stamped = r.tablet.writer.stamped.Load()
		m.changes.Sort()
		if last := r.gaps.last; last > 0 {
			m.changes.Skip(last, r.gapTime())
		}
		if records := m.changes.From(0); r.load.Meta.Changes == nil && len(records) > 0 { // those before may be older than the stream
			m.changes.Skip(r.load.Meta.Redo, records[0].Time-1)
		}
		if i == len(mems)-1 && !planted.On(planted.RecoveredTooSoon) {
			m.onWritten = r.load.OnRecovered
		}
	}
	r.tablet.views.install(func(v *view) { v.frozen = append(v.frozen, mems...) })
}

// gapTime returns a time at or after those of all entries, in µs.
func (r *recovery) gapTime() int64 {
	return max(r.tablet.writer.stamped.Load(), r.tablet.writer.now())
}

// streamGaps finds the last entry of sorted runs without a record: its mutation was made while the table had no change stream.
type streamGaps struct {
	last    uint64
	row     []byte
	records []seqRange // of row, sorted before its first entry is looked up
	sorted  bool
	scratch []byte
}

// seqRange are the sequence numbers first to end-1.
type seqRange struct{ first, end uint64 }

// add adds an entry or a record, in the order of sorted runs: a row's records are before its entries.
func (g *streamGaps) add(key, value []byte) (err error) {
	n := ikey.RowLen(key)
	if n < 0 {
		return ikey.ErrBadKey
	}
	if row := key[:n]; !bytes.Equal(row, g.row) {
		g.row, g.records, g.sorted = append(g.row[:0], row...), g.records[:0], false
	}
	if _, first, ok := logbody.RecordKey(key); ok {
		end := first
		g.scratch, err = logbody.EachEntry(value, first, 0, g.scratch, func([]byte, []byte) error { end++; return nil })
		g.records, g.sorted = append(g.records, seqRange{first, end}), false
		return err
	}
	if !g.sorted {
		slices.SortFunc(g.records, func(a, b seqRange) int { return cmp.Compare(a.first, b.first) })
		g.sorted = true
	}
	seq := ikey.Seq(key)
	i, found := slices.BinarySearchFunc(g.records, seq, func(r seqRange, seq uint64) int { return cmp.Compare(r.first, seq) })
	if !found && (i == 0 || g.records[i-1].end <= seq) {
		g.last = max(g.last, seq)
	}
	return nil
}

// sources returns the runs' entries of the tablet.
func (r *recovery) sources(ctx context.Context) (sources []source, closeAll func(), err error) {
	closeAll = func() {
		for _, e := range r.open {
			_ = e.Close() // read only: nothing to lose
		}
	}
	for _, run := range r.load.Runs {
		e, err := run.Entries(ctx, r.tablet.table, r.tablet.start, r.tablet.end)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("read a sorted run: %w", err)
		}
		r.open = append(r.open, e)
		sources = append(sources, &newer{source: e, than: r.load.Meta.Redo})
	}
	return sources, closeAll, nil
}

// memory acquires the memory for reading the open runs and for writing their entries to files. The
// runs hold one large value at a time.
func (r *recovery) memory(ctx context.Context) (release func(), err error) {
	var largest, ahead int64
	large := &releaseGate{}
	for _, e := range r.open {
		if e, ok := e.(*sortedrun.FileEntries); ok {
			e.Iter().SetGate(large)
			large.iters = append(large.iters, e.Iter())
			largest = max(largest, e.Largest())
			ahead += 2 * sortedrun.ReadAheadBytes // stored and decoded
		}
	}
	large.budget = largest
	return r.server.compactionMemory.Recover(ctx, ahead+2*largest+writeBytes(largest))
}

// toFiles writes the entries to files and records the files in the tablet's metadata.
func (r *recovery) toFiles(ctx context.Context, sources []source) error {
	t := r.tablet
	v, _, err := t.views.acquire()
	if err != nil {
		return errUnloaded
	}
	defer v.release()
	r.gaps = streamGaps{} // fill stopped midway; all entries are read again
	split := &recordSplitter{source: distinctOf(sources), update: newChangeUpdate(ctx, t, v), gaps: &r.gaps}
	files, err := t.minor.writeFiles(ctx, v, []source{split}, 0, nil)
	if err == nil {
		if err = split.finish(); err != nil {
			discard(files, false)
		}
		split.update.gap, split.update.gapTime = r.gaps.last, r.gapTime()
	}
	if err != nil {
		split.update.discard(false)
		return err
	}
	return t.minor.addFiles(ctx, v, files, split.update, r.maxSeq, t.writer.stamped.Load(), func(*view) {})
}

// changeChunkBytes is the memory for records that a recovery sorts by sequence number at once.
const changeChunkBytes = 16 << 20

// recordSplitter takes the whole records out of the entries of sorted runs, and writes them to change files.
type recordSplitter struct {
	source
	update  *changeUpdate
	gaps    *streamGaps
	chunk   *changes.Buffer
	reached []byte // the last key that was passed: a compaction may seek back
	err     error
}

func (r *recordSplitter) First() bool { return r.settle(r.source.First()) }
func (r *recordSplitter) Next() bool  { return r.settle(r.source.Next()) }

// SeekGE implements source. It steps forward, so that no record is missed.
func (r *recordSplitter) SeekGE(key []byte) bool {
	if string(key) <= string(r.reached) {
		return r.settle(r.source.SeekGE(key))
	}
	ok := r.settle(r.source.SeekGE(r.reached))
	for ok && string(r.Key()) < string(key) {
		ok = r.Next()
	}
	return ok
}

func (r *recordSplitter) settle(ok bool) bool {
	for ; ok && r.err == nil; ok = r.source.Next() {
		key := r.source.Key()
		isNew := string(key) > string(r.reached)
		if isNew {
			r.reached = append(r.reached[:0], key...)
			if r.err = r.gaps.add(key, r.source.Value()); r.err != nil {
				break
			}
		}
		at, first, is := logbody.RecordKey(key)
		if !is {
			return true
		}
		if r.update.retention == 0 || !isNew {
			continue
		}
		if r.chunk == nil {
			r.chunk = &changes.Buffer{}
		}
		r.chunk.Add(changes.Record{First: first, Time: at, Body: r.source.Value()})
		if r.chunk.Bytes() > changeChunkBytes {
			r.err = r.writeChunk()
		}
	}
	return false
}

func (r *recordSplitter) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.source.Err()
}

// finish writes the last records.
func (r *recordSplitter) finish() error {
	if r.err != nil || r.chunk == nil {
		return r.err
	}
	return r.writeChunk()
}

func (r *recordSplitter) writeChunk() error {
	chunk := r.chunk
	r.chunk = nil
	chunk.Sort()
	records := chunk.From(0)
	return r.update.writeFile(changes.NewMerge([]changes.Later{changes.LaterInMemory(records, nil, nil)}), nil)
}

// unloadBytes is the size of a tablet's memtable, in bytes, at which writes are fenced to unload,
// split or merge it. 1 MiB is written out within some 10 ms.
const unloadBytes = 1 << 20

// unloadFlushes bounds the minor compactions before that, for a tablet that is written to as fast
// as the disk accepts it.
const unloadFlushes = 3

// Unload writes out a tablet completely and stops serving it, so that another server can load it
// without reading a commit log (paper §6, "Speeding up tablet recovery"). The first minor
// compaction runs while the tablet is served, the second, small one while writers wait. If Unload
// fails, the tablet is still served. Errors: api.ErrNotServing, ErrClosed, blobfs.ErrDiskFull,
// *api.OverloadedError while the commit log makes no progress, ctx's.
func (s *Server) Unload(ctx context.Context, r Ref) error {
	t, err := s.served.tablet(r)
	if err != nil {
		return err
	}
	if err := t.fence.claim(ctx); err != nil {
		return err
	}
	defer t.fence.unclaim()
	if err := t.flushMost(ctx); err != nil {
		return notServing(err)
	}
	// Before the fence: a compaction may take a while to end, and writers wait from there on.
	t.merge.stop()
	defer t.merge.mu.Unlock()
	if !planted.On(planted.UnloadWhileWritten) {
		if err := t.fence.raiseSoon(ctx, s.cfg.OverloadWait, s.logStalled(t)); err != nil {
			return fmt.Errorf("unload tablet %d: %w", t.id, err)
		}
	}
	if err := t.flush(ctx); err != nil {
		t.fence.lift()
		return notServing(err)
	}
	moment.Pass("before a tablet is unloaded", "")
	t.meta.close()
	s.remove(t)
	s.commitLog.trim()
	return nil
}

// remove takes t, whose metadata is closed, out of service. Its memtables are discarded.
func (s *Server) remove(t *Tablet) {
	s.served.remove(t)
	t.fence.retire()
	// A log that has ended applies nothing to t any more.
	if err := s.commitLog.commits.Between(func() { t.unload(false) }); err != nil {
		t.unload(false)
	}
}

// lost takes out of service a tablet that was assigned to another server. Its metadata is closed.
func (s *Server) lost(t *Tablet, err error) {
	s.log.Error("tablet assigned to another server, no longer served", "tablet", t.id, "err", err)
	s.remove(t)
}

// notServing converts the errors of compactions to those that callers know.
func notServing(err error) error {
	if errors.Is(err, errUnloaded) {
		return errGone
	}
	return err
}
