package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/remote"
	"github.com/steledb/stele/table"
)

const (
	// poll is how often the master looks for changed replications. A change on the master's node wakes it sooner.
	poll = time.Second
	// Pauses of a table between attempts that fail.
	retryMin = 200 * time.Millisecond
	retryMax = 15 * time.Second
	// sourceRetry is how long a call of the source is repeated. Then the state of the table names the error, and the next attempt begins.
	sourceRetry = 3 * time.Second
	// errorBytesMax bounds the text of the last error of a table.
	errorBytesMax = 500
	// rateBurst is the burst of the rate of a replication, in bytes: one page of changes.
	rateBurst = 4 << 20
	// A source may not make this cluster write the progress of a table, or change its families, more often.
	savesPerSecond, savesBurst   = 5, 50
	altersPerSecond, altersBurst = 1, 50
)

// running is a replication at work on this node.
type running struct {
	name       string
	generation uint64
	record     *record
	stop       context.CancelFunc
	done       sync.WaitGroup
	tables     map[string]*follower
	limit      *rate.Limiter // nil: no limit
	pages      chan struct{} // has a place for each page of changes, or batch of rows, that is held
	large      chan struct{} // has a place for one table that waits for that of large changes, or has it
}

// Run runs the replications while this node is the master, until it closes.
func (s *Service) Run() {
	var failed loglimit.OnChange
	for s.Ctx.Err() == nil {
		epoch := s.MasterEpoch()
		ctx, stop := timing.While(s.Ctx, poll, func() bool { return s.MasterEpoch() == epoch })
		for epoch != 0 && ctx.Err() == nil {
			err := s.reconcile(ctx)
			if ctx.Err() == nil {
				failed.WarnError(s.Log, "start replications; will try again", err)
			}
			s.pauseOrWake(ctx)
		}
		stop()
		s.stopAll()
		s.pauseOrWake(s.Ctx)
	}
}

func (s *Service) pauseOrWake(ctx context.Context) {
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.wake:
	case <-ctx.Done():
	}
}

// reconcile starts the replications that shall run, and stops the others. A changed one is started again.
func (s *Service) reconcile(ctx context.Context) error {
	names, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var errs []error
	for _, name := range names {
		r, gen, err := s.read(ctx, name)
		if err != nil {
			wanted[name] = true // it goes on as it is
			if !errors.Is(err, api.ErrNoReplication) {
				errs = append(errs, err)
			}
			continue
		}
		if wanted[name] = !r.paused; !r.paused {
			s.start(ctx, name, r, gen)
		}
	}
	s.mu.Lock()
	var gone []*running
	for name, r := range s.running {
		if !wanted[name] {
			gone = append(gone, r)
			delete(s.running, name)
		}
	}
	s.mu.Unlock()
	for _, r := range gone {
		r.end()
	}
	return errors.Join(errs...)
}

func (r *running) end() {
	r.stop()
	r.done.Wait()
}

// start starts a replication unless it runs in that generation.
func (s *Service) start(ctx context.Context, name string, rec *record, gen uint64) {
	s.mu.Lock()
	old := s.running[name]
	s.mu.Unlock()
	if old != nil && old.generation == gen {
		return
	}
	if old != nil {
		old.end()
	}
	r := &running{name: name, generation: gen, record: rec, tables: map[string]*follower{}, pages: make(chan struct{}, pagesAtOnce), large: make(chan struct{}, 1)}
	if rec.rate > 0 {
		r.limit = rate.NewLimiter(rate.Limit(rec.rate), max(rateBurst, int(min(rec.rate, 1<<30))))
	}
	ctx, r.stop = context.WithCancel(ctx)
	for _, t := range rec.tables {
		r.tables[t] = &follower{Service: s, run: r, table: t, saves: rate.NewLimiter(savesPerSecond, savesBurst), alters: rate.NewLimiter(altersPerSecond, altersBurst)}
	}
	s.mu.Lock()
	s.running[name] = r
	s.mu.Unlock()
	r.done.Go(func() { s.work(ctx, r) })
}

// work connects to the source, and runs all tables until ctx ends.
func (s *Service) work(ctx context.Context, r *running) {
	pauses := timing.Backoff{Min: retryMin, Max: retryMax}
	for ; ctx.Err() == nil; pauses.Sleep(ctx) {
		from, err := remote.Open(ctx, r.record.addrs, r.record.secret, client.Config{Dial: s.Dial, Logger: s.Log, RetryTimeMax: sourceRetry, MessageBytesMax: answerBytesMax})
		if err != nil {
			for _, f := range r.tables {
				f.fail(fmt.Errorf("the source: %w", err))
			}
			continue
		}
		var group sync.WaitGroup
		for _, f := range r.tables {
			group.Go(func() { f.loop(ctx, from) })
		}
		group.Wait()
		_ = from.Close()
	}
}

func (s *Service) stopAll() {
	s.mu.Lock()
	all := s.running
	s.running = map[string]*running{}
	s.mu.Unlock()
	for _, r := range all {
		r.end()
	}
}

// status returns the state of a table of a replication whose record has that generation.
func (s *Service) status(name string, generation uint64, of string, paused bool) api.ReplicationTable {
	s.mu.Lock()
	r := s.running[name]
	s.mu.Unlock()
	t := api.ReplicationTable{Name: of, State: api.ReplicationCopying, LagMS: -1}
	if r != nil && r.generation == generation && r.tables[of] != nil {
		r.tables[of].report(&t)
	}
	if paused {
		t.State = api.ReplicationPaused
	}
	return t
}

// Collect exports the states of tables.
func (s *Service) Collect(m metric.Sender) {
	var all []*follower
	s.mu.Lock()
	for _, r := range s.running {
		all = slices.AppendSeq(all, maps.Values(r.tables))
	}
	s.mu.Unlock()
	for _, f := range all {
		t := api.ReplicationTable{LagMS: -1}
		f.report(&t)
		m.Gauge("replication_failed", "1 if the last attempt to make changes of a table that follows another cluster's has failed; on the master's node.",
			metric.Bool(t.State == api.ReplicationFailed), "replication", f.run.name, "table", f.table)
		if t.LagMS >= 0 {
			m.Gauge("replication_lag_seconds", "Age of the time up to which a table that follows another cluster's has all changes; on the master's node.",
				float64(t.LagMS)/1000, "replication", f.run.name, "table", f.table)
		}
		m.Counter("replication_bytes_total", "Bytes of changes and copied rows of a table that follows another cluster's, before they are made; on the master's node since it took over.",
			float64(f.bytes.Load()), "replication", f.run.name, "table", f.table)
		m.Counter("replication_changes_total", "Changes made in a table that follows another cluster's, and rows copied; on the master's node since it took over.",
			float64(t.Changes+t.Rows), "replication", f.run.name, "table", f.table)
	}
}

// tableOf returns the id of a table, if it is of the replication whose record r has: the record was there before the table is looked up, and is there afterwards.
func (s *Service) tableOf(ctx context.Context, r *running, name string) (id uint64, err error) {
	have, err := s.Catalog.SchemaOf(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := r.check(have, have.ID); err != nil {
		return 0, err
	}
	_, generation, err := s.read(ctx, r.name)
	if err == nil && generation != r.generation {
		err = fmt.Errorf("replication %q has changed", r.name)
	}
	return have.ID, err
}

// check returns an error unless a schema is that of the table with that id, which follows the replication.
func (r *running) check(have *table.Schema, id uint64) error {
	if have.Follows != r.name || have.ID != id {
		return fmt.Errorf("table %q: %w", have.Name, api.ErrNotFollower)
	}
	return nil
}

// families are those of a source's table. schema is of that version if the source had the version at any time after schema was read, otherwise perhaps of a later one.
type families struct {
	version uint64
	schema  *table.Schema
}

// follower makes the changes of one table.
type follower struct {
	*Service
	run   *running
	table string

	// Only the goroutine of the table changes these.
	from   *client.Client
	to     *client.Table
	st     *state
	gen    uint64        // of the file of st
	saves  *rate.Limiter // of the progress
	alters *rate.Limiter // of the families

	// families are the last ones that the table was given.
	families atomic.Pointer[families]
	syncing  sync.Mutex // held while the table is given families, and guards st.source then

	urgent urgency
	// done is nil while the changes that are made are not known.
	done atomic.Pointer[made]
	// source is the connection of the last attempt.
	source atomic.Pointer[client.Client]

	following     atomic.Bool
	watermark     atomic.Int64 // µs
	changes, rows atomic.Int64
	bytes         atomic.Int64 // of changes, and of rows that are copied
	failure       atomic.Pointer[string]
}

func (f *follower) report(t *api.ReplicationTable) {
	if f.following.Load() {
		t.State = api.ReplicationFollowing
	}
	t.Changes, t.Rows = f.changes.Load(), f.rows.Load()
	if at := f.watermark.Load(); at > 0 {
		t.LagMS = max(time.Since(time.UnixMicro(at)).Milliseconds(), 0)
	}
	if text := f.failure.Load(); text != nil {
		t.State, t.Error = api.ReplicationFailed, *text
	}
}

func (f *follower) fail(err error) {
	text := remote.Text(err.Error(), errorBytesMax)
	if old := f.failure.Swap(&text); old == nil || *old != text {
		f.Log.Warn("replication of a table failed; will try again", "replication", f.run.name, "table", f.table, "err", err)
	}
}

// loop follows the source until ctx ends.
func (f *follower) loop(ctx context.Context, from *client.Client) {
	f.from, f.to = from, f.Client().Table(f.table)
	f.source.Store(from)
	pauses := timing.Backoff{Min: retryMin, Max: retryMax}
	for ; ctx.Err() == nil; pauses.Sleep(ctx) {
		before := f.changes.Load() + f.rows.Load()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		f.fail(err)
		if f.changes.Load()+f.rows.Load() > before {
			pauses = timing.Backoff{Min: retryMin, Max: retryMax}
		}
	}
}
