package tablet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/deletion"

	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/tablet/sched"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/commitlog"
)

// ErrClosed means that the server is closed or closing. It matches api.ErrUnavailable.
var ErrClosed = fmt.Errorf("tablet server closed: %w", api.ErrUnavailable)

// Server serves tablets. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	partial bool // started by Start: other servers may have tablets of any table
	log     *slog.Logger
	limits  *table.Limits
	pins    *pins

	// The bounds of memory (T7).
	writeMemory      *budget.Writes
	readMemory       *budget.Reads
	largeReads       *budget.Large
	compactionMemory *budget.Compactions

	writes admission

	commits   *commitlog.Log
	logWriter *storage.LogBlob

	// tables maps table names to their served tablets. The map is immutable and is replaced as a
	// whole.
	tables       atomic.Pointer[map[string]*served]
	tablesMu     sync.Mutex
	splitPending map[Ref]bool

	// oldLogs are the logs of earlier runs of the server that some tablet may still need.
	oldLogs struct {
		sync.Mutex
		list []oldLog
	}

	// gcClock is the latest time, in µs, at which a GC policy was evaluated. It never goes back
	// with the wall clock, so a cell that a read found expired stays expired.
	gcClock atomic.Int64

	// appliedNext is above the sequence number of every applied commit and at or below that of
	// every other.
	appliedNext atomic.Uint64

	backlogs backlogs
	Queue    *deletion.Queue

	minorQueue *sched.Queue[*Tablet]
	mergeQueue *sched.Queue[*Tablet]
	blocked    atomic.Pointer[error]

	ctx        context.Context // of compactions; ends with Close
	cancel     context.CancelFunc
	closing    chan struct{}
	closeOnce  sync.Once
	background sync.WaitGroup
	failure    sync.Once
	stats      counters
}

type oldLog struct {
	id     blobfs.ID
	maxSeq uint64
}

// served holds the tablets of one table that are served here, in the order of their ranges.
type served struct {
	id       uint64
	tablets  []*Tablet
	renewing chan struct{} // holds a value while the schema is being read; shared by all versions of a table's served
}

// withTablets returns a copy of sv with the given tablets.
func (sv *served) withTablets(tablets []*Tablet) *served {
	return &served{id: sv.id, tablets: tablets, renewing: sv.renewing}
}

// Open recovers the tablets from their files and from the commit logs of earlier runs, and serves
// them. If data is damaged, the error is a *blobfs.CorruptError or a *sstable.CorruptError.
func Open(ctx context.Context, cfg Config, tablets []Load) (*Server, error) {
	return newServer(cfg, func(s *Server) error { return (&logRecovery{Server: s}).run(ctx, tablets) })
}

// Start starts a server that serves no tablets yet and ignores the commit logs of earlier runs; see
// Server.Load. A table of which it serves nothing may still exist.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return newServer(cfg, func(s *Server) error {
		s.partial = true
		return s.beginLog(ctx, 1)
	})
}

func newServer(cfg Config, prepare func(s *Server) error) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	limits := table.DefaultLimits()
	s := &Server{
		cfg: cfg, log: cfg.Logger, limits: &limits,
		readMemory: budget.NewReads(cfg.CacheBytes),
		largeReads: budget.NewLarge(cfg.LargeReadBytes, cfg.OverloadWait),
		minorQueue: sched.NewQueue[*Tablet](), mergeQueue: sched.NewQueue[*Tablet](),
		closing: make(chan struct{}), splitPending: map[Ref]bool{},
	}
	s.writeMemory = budget.NewWrites(cfg.MemtablesBytesMax, s.minorQueue.WakeUp)
	s.compactionMemory = budget.NewCompactions(s.readMemory, cfg.CompactionMemory, cfg.RecoveryMemory, cfg.CompactionBytesPerSecond)
	s.writes.cfg, s.writes.limits, s.writes.memory = &s.cfg, s.limits, s.writeMemory
	s.writes.closing, s.writes.blocked = s.closing, s.writesBlocked
	s.pins, s.Queue = newPins(s.readMemory, s.log), deletion.New(cfg.Blobs, cfg.Logger)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tables.Store(&map[string]*served{})
	if err := prepare(s); err != nil {
		s.cancel()
		s.releaseAll(context.Background())
		return nil, err
	}
	s.background.Go(s.minorLoop)
	s.background.Go(s.mergeLoop)
	s.background.Go(s.timerLoop)
	s.background.Go(s.pinLoop)
	s.background.Go(func() { s.Queue.Loop(s.ctx) })
	return s, nil
}

// releaseAll closes the files of a server that is closing or did not start. It deletes unreferenced
// files until ctx ends.
func (s *Server) releaseAll(ctx context.Context) {
	s.pins.drain()
	for _, sv := range *s.tables.Load() {
		for _, t := range sv.tablets {
			t.mu.Lock()
			v := t.mu.current
			t.mu.current = nil
			t.mu.Unlock()
			if v != nil {
				v.release()
			}
		}
	}
	s.Queue.Run(ctx)
}

// Close completes the accepted commits, stops compactions and stops serving. Memtable entries
// remain in the commit log.
func (s *Server) Close() error { return s.CloseWithin(context.Background()) }

// CloseWithin is Close that waits for accepted commits until ctx ends, since their log may have
// lost its nodes. The remaining commits fail with a *commitlog.FailedError.
func (s *Server) CloseWithin(ctx context.Context) error {
	s.beginClose()
	defer context.AfterFunc(ctx, s.commits.Abandon)()
	s.commits.Close()
	s.minorQueue.Close()
	s.mergeQueue.Close()
	s.background.Wait()
	err := s.logWriter.Close()
	s.releaseAll(ctx)
	return err
}

// Abandon makes operations that wait for the commit log, or for any other resource of the server,
// fail. It is for callers that wait for requests before they close the server. CloseWithin must
// still be called.
func (s *Server) Abandon() {
	s.beginClose()
	s.commits.Abandon()
}

// beginClose notifies all running work that the server is closing.
func (s *Server) beginClose() {
	s.closeOnce.Do(func() { close(s.closing) })
	s.cancel()
}

// AddTablet starts serving a tablet that has no entries in any log.
func (s *Server) AddTablet(ctx context.Context, l Load) error {
	t, err := s.newTablet(ctx, l)
	if err != nil {
		return err
	}
	if err := s.register(l.Schema.Name, t); err != nil {
		t.unload(false)
		return err
	}
	return nil
}

// newTablet returns a tablet with its files open.
func (s *Server) newTablet(ctx context.Context, l Load) (*Tablet, error) {
	t := s.newChild(l.Meta)
	t.highPriority = l.HighPriority
	t.schema.Store(newSchema(l.Schema, l.Version))
	v := &view{active: t.mem}
	v.hold()
	for _, gm := range l.Meta.Groups {
		g := group{name: gm.Name}
		for _, fm := range gm.Files {
			f, err := s.openFile(ctx, fm, t.start, t.end, 0)
			if err != nil {
				v.groups = append(v.groups, g)
				v.release()
				return nil, fmt.Errorf("load tablet %d of table %s: %w", t.id, l.Schema.Name, err)
			}
			f.refs.Store(1)
			g.files = append(g.files, f)
		}
		v.groups = append(v.groups, g)
	}
	t.setCurrent(v)
	return t, nil
}

// newChild returns a tablet without a schema and files.
func (s *Server) newChild(m *Meta) *Tablet {
	t := &Tablet{id: m.ID, table: m.Table, server: s, start: m.Start, end: m.End, mem: newMem(s.writeMemory), claimed: make(chan struct{}, 1)}
	t.metaMu.meta = m
	t.lastMajor.Store(m.LastMajor.UnixMicro())
	t.applied.Store(m.Redo)
	t.stamped.Store(m.Stamped)
	return t
}

// register makes a tablet reachable under its table's name. If another table is served under that
// name, one of the two was dropped. If it is the other one, its tablets are discarded. Errors:
// ErrServed, and api.ErrNoTable if the tablet's own table was dropped.
func (s *Server) register(name string, t *Tablet) (err error) {
	var dropped *served
	s.changeTables(func(m map[string]*served) {
		n := &served{id: t.table, renewing: make(chan struct{}, 1)}
		old := m[name]
		switch {
		case old != nil && old.id == t.table:
			n = old.withTablets(slices.Clone(old.tablets))
		case old != nil && len(old.tablets) > 0 && !t.schema.Load().follows(old.tablets[0].schema.Load()):
			err = fmt.Errorf("tablet %d of table %d, whose name is that of table %d now: %w", t.id, t.table, old.id, api.ErrNoTable)
			return
		default:
			dropped = old
		}
		at, same := slices.BinarySearchFunc(n.tablets, t, func(a, b *Tablet) int {
			return compareEnds(a.end, b.end)
		})
		if same || at > 0 && string(n.tablets[at-1].end) > string(t.start) ||
			at < len(n.tablets) && (len(t.end) == 0 || string(n.tablets[at].start) < string(t.end)) {
			err = fmt.Errorf("tablet %d: %w", t.id, ErrServed)
			return
		}
		n.unifySchemas(t)
		n.tablets = slices.Insert(n.tablets, at, t)
		m[name] = n
	})
	if err != nil {
		return err
	}
	s.mergeQueue.Add(t)
	return s.discardTable(dropped)
}

// exchange replaces tablets with others of the same rows, for operations that begin later. It
// returns false if the old ones are no longer served because their table was dropped.
func (s *Server) exchange(old, fresh []*Tablet) (done bool) {
	s.changeTables(func(m map[string]*served) {
		for name, sv := range m {
			at := slices.Index(sv.tablets, old[0])
			if at < 0 {
				continue
			}
			for _, t := range fresh { // under the lock, so that no schema change is missed
				for _, o := range old {
					if sc, now := o.schema.Load(), t.schema.Load(); now == nil || sc != now && sc.follows(now) {
						t.schema.Store(sc)
					}
				}
			}
			m[name] = sv.withTablets(slices.Replace(slices.Clone(sv.tablets), at, at+len(old), fresh...))
			done = true
		}
	})
	return done
}

// unregister makes a tablet unreachable for operations that begin later.
func (s *Server) unregister(t *Tablet) {
	s.changeTables(func(m map[string]*served) {
		for name, sv := range m {
			if at := slices.Index(sv.tablets, t); at >= 0 {
				m[name] = sv.withTablets(slices.Delete(slices.Clone(sv.tablets), at, at+1))
			}
		}
	})
}

// compareEnds orders the ends of ranges. An empty end means no bound and is the largest.
func compareEnds(a, b []byte) int {
	switch {
	case len(a) == 0 && len(b) == 0:
		return 0
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return slices.Compare(a, b)
}

// gcNow returns the time, in µs, at which to evaluate GC policies.
func (s *Server) gcNow() int64 {
	now := s.cfg.Now().UnixMicro()
	for {
		last := s.gcClock.Load()
		if now <= last {
			return last
		}
		if s.gcClock.CompareAndSwap(last, now) {
			return now
		}
	}
}

func (s *Server) changeTables(change func(m map[string]*served)) {
	s.tablesMu.Lock()
	defer s.tablesMu.Unlock()
	old := *s.tables.Load()
	m := make(map[string]*served, len(old)+1)
	for k, v := range old {
		m[k] = v
	}
	change(m)
	s.tables.Store(&m)
}

// tabletOf returns the tablet of a row for a new operation, once the schema of the table is known
// to be current. Errors: api.ErrNoTable, api.ErrNotServing, those of renewSchema and
// Config.Serving.
func (as For) tabletOf(ctx context.Context, tableName string, row []byte) (*Tablet, error) {
	for {
		t, err := as.tabletNow(tableName, row)
		if err != errStale {
			return t, err
		}
		if err := as.s.renewSchema(ctx, tableName); err != nil {
			return nil, err
		}
	}
}

// Serves returns nil if an operation on the row may begin. Errors: as tabletOf.
func (as For) Serves(ctx context.Context, tableName string, row []byte) error {
	_, err := as.tabletOf(ctx, tableName, row)
	return err
}

// tabletNow is tabletOf without waiting. The error is errStale if the schema must be read first.
func (as For) tabletNow(tableName string, row []byte) (*Tablet, error) {
	if err := as.s.checkServing(); err != nil {
		return nil, err
	}
	sv, err := as.s.servedOf(tableName)
	if err != nil {
		return nil, err
	}
	if as.table != 0 && as.table != sv.id {
		return nil, fmt.Errorf("table %q with id %d: %w", tableName, as.table, api.ErrNotServing)
	}
	t := sv.at(row)
	if t == nil {
		return nil, fmt.Errorf("table %q, row %.64q: %w", tableName, row, api.ErrNotServing)
	}
	if !t.schema.Load().current() {
		return nil, errStale
	}
	t.load.note(row)
	return t, nil
}

// at returns the tablet that holds row, or nil.
func (sv *served) at(row []byte) *Tablet {
	lo, hi := 0, len(sv.tablets)
	for lo < hi {
		mid := (lo + hi) / 2
		if end := sv.tablets[mid].end; len(end) > 0 && string(end) < string(row) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(sv.tablets) || !sv.tablets[lo].holds(row) {
		return nil
	}
	return sv.tablets[lo]
}

// servedOf returns the served tablets of a table. The error is api.ErrNoTable, or api.ErrNotServing
// if other servers may have tablets of it.
func (s *Server) servedOf(tableName string) (*served, error) {
	sv := (*s.tables.Load())[tableName]
	switch {
	case sv != nil:
		return sv, nil
	case s.partial:
		return nil, fmt.Errorf("table %q: %w", tableName, api.ErrNotServing)
	}
	return nil, fmt.Errorf("table %q: %w", tableName, api.ErrNoTable)
}

// tablets returns the served tablets of a table in range order. Errors: as servedOf.
func (s *Server) tablets(tableName string) ([]*Tablet, error) {
	sv, err := s.servedOf(tableName)
	if err != nil {
		return nil, err
	}
	return sv.tablets, nil
}

func (s *Server) allTablets() []*Tablet {
	var all []*Tablet
	for _, sv := range *s.tables.Load() {
		all = append(all, sv.tablets...)
	}
	return all
}

// SetSchema changes the schema of a table's tablets. Operations that began before may complete with
// the old one. The error is api.ErrNoTable.
func (s *Server) SetSchema(sc *table.Schema) error {
	s.tablesMu.Lock()
	defer s.tablesMu.Unlock()
	tablets, err := s.tablets(sc.Name)
	if err != nil {
		return err
	}
	compiled := newSchema(sc, nil)
	for _, t := range tablets {
		t.unpinOthers(t.schema.Swap(compiled))
	}
	return nil
}

// DropTable stops serving a table whose metadata is already gone. Its files are deleted soon after
// the last read of them ends. DropTable frees space on full disks, so it does not wait for pending
// writes or metadata changes. Such writes fail with api.ErrNotServing if they become durable.
// Errors: api.ErrNoTable, ErrClosed.
func (s *Server) DropTable(tableName string) error {
	sv := (*s.tables.Load())[tableName]
	if sv == nil {
		return fmt.Errorf("table %q: %w", tableName, api.ErrNoTable)
	}
	return s.dropTable(tableName, sv.id)
}

// dropTable is DropTable for the table with that id. It does nothing if that table is not served.
func (s *Server) dropTable(tableName string, id uint64) error {
	var dropped *served
	s.changeTables(func(m map[string]*served) {
		if sv := m[tableName]; sv != nil && sv.id == id {
			dropped = sv
			delete(m, tableName)
		}
	})
	return s.discardTable(dropped)
}

// discardTable releases the tablets of a dropped table that are no longer reachable. dropped may be
// nil.
func (s *Server) discardTable(dropped *served) error {
	if dropped == nil || len(dropped.tablets) == 0 {
		return nil
	}
	for _, t := range dropped.tablets {
		t.drop()
		t.retire()
		if err := s.commits.Between(func() { t.unload(true) }); err != nil {
			return closedError(err)
		}
	}
	s.releaseLogs()
	return nil
}

// saveMeta makes next the durable metadata of t. It does not end with the caller's context: the
// outcome of a change must be known before the next one. unclear reports that after the error the
// change may still have happened.
func (t *Tablet) saveMeta(next *Meta) (unclear bool, err error) {
	ctx, cancel := t.server.metaContext()
	defer cancel()
	err = t.server.cfg.Metadata.Save(ctx, next)
	if err == nil {
		t.metaMu.meta = next
		t.lastMajor.Store(next.LastMajor.UnixMicro())
		return false, nil
	}
	// Another writer may have changed the row after this change was made. Its row then names the
	// files too.
	unclear = !errors.Is(err, ErrMetaTooLarge) && !errors.Is(err, ErrMetaUnsent)
	if errors.Is(err, ErrMetaLost) {
		t.metaMu.closed = true
		t.server.lost(t, err)
		return unclear, err
	}
	// Only this server changes the row while it serves the tablet. If the row has changed, an
	// earlier attempt took effect after it was given up. The next attempt replaces what that one
	// wrote.
	saved, loadErr := t.server.cfg.Metadata.Load(ctx, t.table, t.end)
	if loadErr != nil || string(EncodeMeta(saved)) != string(EncodeMeta(next)) {
		return unclear, err
	}
	t.metaMu.meta = next
	t.lastMajor.Store(next.LastMajor.UnixMicro())
	return false, nil
}

// metaTimeout bounds a metadata change. 30 s: several elections of the lock service.
const metaTimeout = 30 * time.Second

// metaClosing is how long a metadata change may continue once the server closes. The next server of
// the tablet determines its outcome, as after a crash.
const metaClosing = 2 * time.Second

// metaContext returns a context that bounds a metadata change.
func (s *Server) metaContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), metaTimeout)
	stop := context.AfterFunc(s.ctx, func() { time.AfterFunc(metaClosing, cancel) })
	return ctx, func() { stop(); cancel() }
}
