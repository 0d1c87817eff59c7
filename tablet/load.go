package tablet

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
)

// Load is a tablet to be served.
type Load struct {
	// Meta is narrowed to the rows that METADATA gives the tablet: see Meta.Narrow.
	Meta   *Meta
	Schema *table.Schema
	// Version is that of Schema. Nil: the schema changes by SetSchema alone.
	Version Version

	// Vital tells that writes are never held back for want of memory: those of METADATA are
	// small, and what makes memory free waits for them. And all files of the tablet are vital to the block store, not
	// only those of minor compactions.
	Vital bool

	// Runs are what is left in the commit logs of servers that are no more.
	Runs []Run
	// OnRecovered, if not nil, is called once when the tablet's Metadata says that
	// Runs are not needed any more. It may take its time: compactions wait.
	OnRecovered func()
}

// Run is a piece of a dead server's commit log, sorted by table and key (paper §6,
// "Commit-log implementation").
type Run interface {
	// Entries returns the entries of a table's rows with start < row <= end, an
	// empty start or end being no bound.
	Entries(ctx context.Context, table uint64, start, end []byte) (RunEntries, error)
	// MaxSeq and MaxTime are no lower than the sequence number and the server
	// timestamp (µs) of any record in the run.
	MaxSeq() uint64
	MaxTime() int64
}

// RunEntries are entries in the order of their internal keys (see ikey). An entry
// may be in several runs. Keys are valid until the next move, values for ever.
type RunEntries interface {
	First() bool
	SeekGE(key []byte) bool
	Next() bool
	Key() []byte
	Value() []byte
	Err() error
	Close() error
}

// ErrServed means that a tablet, or another with some of its rows, is served already.
var ErrServed = errors.New("tablet is served already")

// Load opens a tablet's files, takes in what the runs have of it and begins to serve
// it. Its entries get sequence numbers above all that it has, and its server
// timestamps go on above the last, whatever the clock says (I8). What came from the
// runs is written out at once, which OnRecovered tells of. Errors: ErrServed, api.ErrNoTable if a
// later table has the name, ErrClosed, those of
// the runs, a *sstable.CorruptError or *blobfs.CorruptError.
func (s *Server) Load(ctx context.Context, l Load) error {
	if err := s.BeginLog(ctx); err != nil {
		return err
	}
	t, err := s.newTablet(ctx, l)
	if err != nil {
		return err
	}
	seq, stamped := l.Meta.Redo, l.Meta.Stamped
	for _, r := range l.Runs {
		seq, stamped = max(seq, r.MaxSeq()), max(stamped, r.MaxTime())
	}
	s.commits.Raise(seq + 1)
	t.applied.Store(seq)
	if planted.On(planted.ClockAlone) {
		stamped = 0
	}
	t.stamped.Store(stamped)
	rec := recovery{server: s, tablet: t, load: &l, maxSeq: seq}
	if err = rec.run(ctx); err == nil {
		err = s.register(l.Schema.Name, t)
	}
	if err != nil {
		t.unload(false) // nobody has seen it
		return fmt.Errorf("load tablet %d of table %s: %w", t.id, l.Schema.Name, err)
	}
	switch {
	case rec.frozen > 0:
		s.minorQueue.add(t)
	case l.OnRecovered != nil:
		l.OnRecovered()
	}
	return nil
}

// recovery takes the entries of runs into a tablet that is not served yet.
type recovery struct {
	server *Server
	tablet *Tablet
	load   *Load
	maxSeq uint64
	frozen int // memtables
	open   []RunEntries
}

// run puts the entries into memtables. If those come to more than recoveries may
// take of the memory, it writes them to files instead, without holding them.
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
		m.release()
	}
	if err != nil {
		return err
	}
	return r.toFiles(ctx, sources)
}

// fill puts the entries into memtables, until they are all there or do not fit.
func (r *recovery) fill(ctx context.Context, sources []source) (mems []*mem, fits bool, err error) {
	s := r.server
	var m merge
	m.reset(sources)
	n := 0
	for m.first(); m.valid(); m.next() {
		if len(mems) == 0 || mems[len(mems)-1].Bytes() > s.cfg.MemtableBytes {
			mems = append(mems, newMem(s))
		}
		last := mems[len(mems)-1]
		if _, err := last.Add(m.key(), m.value()); err != nil {
			return mems, false, err
		}
		last.count()
		if s.memtables.Load() > s.cfg.MemtablesBytesMax/2 {
			return mems, false, nil
		}
		if n++; n%checkEntries == 0 && ctx.Err() != nil {
			return mems, false, context.Cause(ctx)
		}
	}
	return mems, true, m.err
}

// freeze makes mems wait to be written out. They have the rows in order, not the
// sequence numbers: all must be in files before the redo point moves, so one minor
// compaction takes them all, and each stands for the numbers of all.
func (r *recovery) freeze(mems []*mem) {
	r.frozen = len(mems)
	for i, m := range mems {
		m.minSeq.Store(r.load.Meta.Redo + 1)
		m.maxSeq.Store(r.maxSeq)
		m.stamped = r.tablet.stamped.Load()
		if i == len(mems)-1 {
			m.onWritten = r.load.OnRecovered
		}
	}
	r.tablet.install(func(v *view) { v.frozen = append(v.frozen, mems...) })
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

// memory acquires what the runs that are open take of the memory while they are read, and what is written of them to files. They keep one
// large value at a time.
func (r *recovery) memory(ctx context.Context) (release func(), err error) {
	var largest, ahead int64
	large := &letGo{}
	for _, e := range r.open {
		if e, ok := e.(*runEntries); ok {
			e.it.SetGate(large)
			large.iters = append(large.iters, e.it)
			largest = max(largest, e.run.largest)
			ahead += 2 * runReadAhead // as it is stored and decoded
		}
	}
	large.room = largest
	return r.server.recoveryMemory(ctx, ahead+2*largest+writeBytes(largest))
}

// toFiles writes the entries out and makes the tablet's metadata name the files.
func (r *recovery) toFiles(ctx context.Context, sources []source) error {
	t := r.tablet
	v, _, err := t.acquire()
	if err != nil {
		return errUnloaded
	}
	defer v.release()
	all := &distinct{}
	all.merge.reset(sources)
	files, err := t.writeSources(ctx, v, []source{all}, 0, nil)
	if err != nil {
		return err
	}
	return t.addFiles(ctx, v, files, r.maxSeq, t.stamped.Load(), func(*view) {})
}
