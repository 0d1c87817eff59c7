package tablet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/deletion"
	"github.com/steledb/stele/tablet/gcpolicy"
	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/sched"
)

// ErrClosed means that the server is closed or closing. It matches api.ErrUnavailable.
var ErrClosed = fmt.Errorf("tablet server closed: %w", api.ErrUnavailable)

// Server serves tablets. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	log    *slog.Logger
	life   *lifetime
	served *TabletMap
	limits *table.Limits
	pins   *pins
	files  *sstables

	// The bounds of memory (T7).
	writeMemory      *budget.Writes
	readMemory       *budget.Reads
	largeReads       *budget.Large
	compactionMemory *budget.Compactions

	writes    *admission
	commitLog serverLog
	metadata  metaChanges
	schemas   schemaRenewer
	splits    splitter
	// retiredHeat has the operations on tablets that are no longer served.
	retiredHeat heat.Retired
	minors      *minorLoop
	merges      mergeLoop

	gcClock *gcpolicy.Clock

	backlogs  backlogs
	deletions *deletion.Queue

	stats counters
}

// lifetime is the time for which a server's goroutines and operations run.
type lifetime struct {
	ctx       context.Context // of compactions; ends with the server
	cancel    context.CancelFunc
	closing   chan struct{} // closed when the server closes
	closeOnce sync.Once

	background sync.WaitGroup // goroutines that the server waits for when it closes
}

func newLifetime() *lifetime {
	l := &lifetime{closing: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// end notifies all running work that the server is closing.
func (l *lifetime) end() {
	l.closeOnce.Do(func() { close(l.closing) })
	l.cancel()
}

// isClosing reports whether the server closes.
func (l *lifetime) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// sleep waits for d or until the server closes.
func (l *lifetime) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.closing:
	case <-timer.C:
	}
}

// Start starts a server that serves no tablets yet and ignores the commit logs of earlier runs; see
// Server.Load. A table of which it serves nothing may still exist.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return newServer(cfg, true, func(s *Server) error { return s.commitLog.begin(ctx, 1, s.deletions.AddLog) })
}

// newServer returns a server that prepare has given its commit log, and tablets if any. partial means
// that other servers may have tablets of any table.
func newServer(cfg Config, partial bool, prepare func(s *Server) error) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	limits := table.DefaultLimits()
	s := &Server{
		cfg: cfg, log: cfg.Logger, limits: &limits, life: newLifetime(), served: newTabletMap(partial),
		readMemory: budget.NewReads(cfg.CacheBytes),
		largeReads: budget.NewLarge(cfg.LargeReadBytes, cfg.OverloadWait),
	}
	minor := sched.NewQueue[*Tablet]()
	s.writeMemory = budget.NewWrites(cfg.MemtablesBytesMax, minor.WakeUp)
	s.compactionMemory = budget.NewCompactions(s.readMemory, cfg.CompactionMemory, cfg.RecoveryMemory, cfg.CompactionBytesPerSecond)
	s.pins, s.deletions = newPins(s.readMemory, s.log), deletion.New(cfg.Blobs, cfg.Logger)
	s.gcClock = gcpolicy.NewClock(cfg.Now)
	s.files = &sstables{cfg: &s.cfg, memory: s.readMemory, compactions: s.compactionMemory, pins: s.pins, deletions: s.deletions, backlogs: &s.backlogs}
	s.metadata = metaChanges{cfg: &s.cfg, life: s.life}
	s.schemas = schemaRenewer{source: cfg.Schemas, life: s.life, served: s.served, drop: s.dropTable}
	s.splits = splitter{cfg: &s.cfg, limits: s.limits, served: s.served}
	s.commitLog.cfg, s.commitLog.life, s.commitLog.served = &s.cfg, s.life, s.served
	s.merges = mergeLoop{cfg: &s.cfg, life: s.life, served: s.served, deletions: s.deletions, queue: sched.NewQueue[*Tablet](), slot: sched.NewSlot()}
	s.minors = &minorLoop{cfg: &s.cfg, life: s.life, served: s.served, memory: s.writeMemory, commitLog: &s.commitLog,
		written: s.merges.queue.Add, queue: minor, slot: sched.NewSlot()}
	s.writes = &admission{cfg: &s.cfg, limits: s.limits, follow: followLimits(*s.limits), memory: s.writeMemory, closing: s.life.closing, blocked: s.minors.writesBlocked}
	if err := prepare(s); err != nil {
		s.life.cancel()
		s.releaseAll(context.Background())
		return nil, err
	}
	s.life.background.Go(s.minors.run)
	s.life.background.Go(s.merges.run)
	s.life.background.Go(s.timerLoop)
	s.life.background.Go(func() { s.pins.loop(s.life) })
	s.life.background.Go(func() { s.deletions.Loop(s.life.ctx) })
	return s, nil
}

// releaseAll closes the files of a server that is closing or did not start. It deletes unreferenced
// files until ctx ends.
func (s *Server) releaseAll(ctx context.Context) {
	s.pins.drain()
	for _, sv := range *s.served.tables.Load() {
		for _, t := range sv.tablets {
			if v := t.views.take(false); v != nil {
				v.release()
			}
		}
	}
	s.deletions.Run(ctx)
}

// Close completes the accepted commits, stops compactions and stops serving. Memtable entries
// remain in the commit log.
func (s *Server) Close() error { return s.CloseWithin(context.Background()) }

// CloseWithin is Close that waits for accepted commits until ctx ends, since their log may have
// lost its nodes. The remaining commits fail with a *commitlog.FailedError.
func (s *Server) CloseWithin(ctx context.Context) error {
	s.life.end()
	defer context.AfterFunc(ctx, s.commitLog.commits.CancelAppend)()
	s.commitLog.commits.Close()
	s.minors.queue.Close()
	s.merges.queue.Close()
	s.life.background.Wait()
	err := s.commitLog.close()
	s.releaseAll(ctx)
	return err
}

// CancelWaits makes operations that wait for the commit log, or for any other resource of the server,
// fail. It is for callers that wait for requests before they close the server. CloseWithin must
// still be called.
func (s *Server) CancelWaits() {
	s.life.end()
	s.commitLog.commits.CancelAppend()
}

// BeginLog creates the commit log on disk, if that has not been done and there is space. Load does
// so too. Errors: ErrClosed, those of Blobs.
func (s *Server) BeginLog(ctx context.Context) error { return s.commitLog.open(ctx) }

// newTablet returns a tablet with its files open.
func (s *Server) newTablet(ctx context.Context, l Load) (*Tablet, error) {
	t := s.newChild(l.Meta, l.HighPriority)
	t.schema.Store(newSchema(l.Schema, l.Version))
	v := &view{active: t.writer.mem, cleared: l.Meta.Cleared}
	v.setChanges(l.Meta)
	v.hold()
	for _, gm := range l.Meta.Groups {
		g := group{name: gm.Name}
		for _, fm := range gm.Files {
			f, err := s.files.open(ctx, fm, t.start, t.end, 0)
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
	t.views.setCurrent(v)
	return t, nil
}

// newChild returns a tablet without a schema and files. For highPriority see Load.
func (s *Server) newChild(m *Meta, highPriority bool) *Tablet {
	t := &Tablet{id: m.ID, table: m.Table, server: s, start: m.Start, end: m.End, highPriority: highPriority, heat: heat.New(m.Table, m.Start, m.End), bulk: newBulkDebts()}
	t.views.cfg, t.views.backlogs, t.views.memory = &s.cfg, &s.backlogs, s.writeMemory
	t.meta.cfg, t.meta.changes, t.meta.views, t.meta.lost = &s.cfg, &s.metadata, &t.views, func(err error) { s.lost(t, err) }
	t.fence.views, t.fence.memory, t.fence.claimed = &t.views, s.writeMemory, make(chan struct{}, 1)
	t.writer.cfg, t.writer.memory, t.writer.views = &s.cfg, s.writeMemory, &t.views
	t.writer.appliedNext, t.writer.onFrozen, t.writer.mem = &s.commitLog.appliedNext, func() { s.minors.queue.Add(t) }, newMem(s.writeMemory)
	t.writer.now = func() int64 { return t.schema.Load().table.Granularity.Stamp(s.cfg.Now().UnixMicro(), 0) }
	t.minor.tablet, t.merge.tablet = t, t
	t.meta.set(m)
	t.views.applied.Store(m.lastSeq())
	t.writer.stamped.Store(m.Stamped)
	return t
}

// tabletOf returns the tablet of a row for a new operation, once the schema of the table is known
// to be current. Errors: api.ErrNoTable, api.ErrNotServing, those of schemaRenewer.renew and
// Config.Serving.
func (as For) tabletOf(ctx context.Context, tableName string, row []byte) (*Tablet, error) {
	for {
		t, err := as.tabletNow(tableName, row)
		if err != errStale {
			return t, err
		}
		if err := as.s.schemas.renew(ctx, tableName); err != nil {
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
	sv, err := as.s.served.table(tableName)
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

// SetSchema changes the schema of a table's tablets. Operations that began before may complete with
// the old one. The error is api.ErrNoTable.
func (s *Server) SetSchema(sc *table.Schema) error { return s.schemas.set(sc) }

// DropTable stops serving a table whose metadata is already gone. Its files are deleted soon after
// the last read of them ends. DropTable frees space on full disks, so it does not wait for pending
// writes or metadata changes. Such writes fail with api.ErrNotServing if they become durable.
// Errors: api.ErrNoTable, ErrClosed.
func (s *Server) DropTable(tableName string) error {
	sv := (*s.served.tables.Load())[tableName]
	if sv == nil {
		return fmt.Errorf("table %q: %w", tableName, api.ErrNoTable)
	}
	return s.dropTable(sv.id)
}

// dropTable is DropTable for the table with that id. It does nothing if that table is not served.
func (s *Server) dropTable(id uint64) error {
	return s.discardTable(s.served.drop(id))
}

const (
	// timerPeriod is how often the server checks for due major compactions, an oversized commit
	// log, and tablets that should be split.
	timerPeriod = 10 * time.Second
	// weakPeriod is how often it checks the redundancy of its log.
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
		case <-s.life.closing:
			return
		case <-weak.C:
			if s.commitLog.isWeak() {
				s.minors.queue.WakeUp()
			}
			s.commitLog.trimWeak()
			continue
		case <-tick.C:
		}
		s.queueExpiredChanges()
		s.minors.queue.WakeUp()
		s.splits.check(max(time.Since(last), time.Millisecond))
		last = time.Now()
		s.merges.queueDue()
	}
}

// register makes a tablet reachable under its table's name: see TabletMap.add.
func (s *Server) register(ctx context.Context, name string, t *Tablet) error {
	// Another table that had the name may be kept under another one: it must not be taken for gone.
	if sv := (*s.served.tables.Load())[name]; sv != nil && sv.id != t.table && t.schema.Load().version != nil {
		if err := s.schemas.renew(ctx, name); err != nil {
			return err
		}
	}
	dropped, err := s.served.add(name, t)
	if err != nil {
		return err
	}
	// RenewSchemas did not find the tablet when its schema's version ended. If the table has another name now, no request would renew it.
	if !t.schema.Load().current() {
		if err := s.schemas.renew(ctx, name); err != nil {
			s.served.remove(t)
			return err
		}
	}
	s.merges.queue.Add(t)
	return s.discardTable(dropped)
}

// Served returns the tablets that the server serves.
func (s *Server) Served() *TabletMap { return s.served }

// WriteCharges returns the bytes of mutations that are charged and not in a memtable yet: zero if no write is in progress.
func (s *Server) WriteCharges() int64 { return s.writeMemory.Charged() }

// Discarding returns the number of tablets of dropped tables whose memory and files are not released yet.
func (s *Server) Discarding() int64 { return s.stats.discarding.Load() }

// discardTable releases the tablets of a dropped table that are no longer reachable. dropped may be
// nil.
func (s *Server) discardTable(dropped *served) error {
	if dropped == nil || len(dropped.tablets) == 0 {
		return nil
	}
	s.stats.discarding.Add(int64(len(dropped.tablets)))
	defer s.stats.discarding.Add(-int64(len(dropped.tablets)))
	for _, t := range dropped.tablets {
		t.views.drop()
		t.fence.retire()
		if err := s.commitLog.commits.Between(func() { t.unload(true) }); err != nil {
			return closedError(err)
		}
	}
	s.commitLog.trim()
	return nil
}
