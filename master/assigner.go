package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// Tablets gives the master access to METADATA and the tablet servers. Commands carry the sequencer
// of the master lock.
type Tablets interface {
	Recoveries
	// Begin creates the root tablet and the row of the first METADATA tablet. It keeps what exists.
	Begin(ctx context.Context) error
	// Logs returns the servers that have logs in the lock service, and the servers whose recovery is
	// done: all their logs are sorted.
	Logs(ctx context.Context) (servers []string, recovered map[string]bool, err error)
	// Servers returns the servers that hold the lock of their server file, with the tablets that
	// each reports.
	Servers(ctx context.Context) ([]TabletServer, error)
	// Rows returns the METADATA rows, level by level as far as they are served, and whether these
	// are all.
	Rows(ctx context.Context) (tablets []Tablet, whole bool, err error)
	// Load has a server load a tablet that is at that generation. Errors: ErrOvertaken.
	Load(ctx context.Context, server *TabletServer, t *Tablet, q api.Sequencer) error
	// Unload has a server release a tablet. It returns the generation of the row afterwards; 0 if
	// another server has the tablet. Errors: ErrOvertaken.
	Unload(ctx context.Context, server *TabletServer, t *Tablet, q api.Sequencer) (generation uint64, err error)
	// Merge has a server merge two neighbours that it holds.
	Merge(ctx context.Context, server *TabletServer, lower, upper *Tablet, q api.Sequencer) error
	// RemoveLogs removes a dead server's logs, its recovery and its sorted runs.
	RemoveLogs(ctx context.Context, server string) error
}

// ErrOvertaken means that a tablet was changed, or its table dropped, after its row was read. The
// order is planned again from the new state.
var ErrOvertaken = errors.New("the tablet was changed concurrently")

const (
	// orderTimeout bounds a load or unload: a server may have a gigabyte to write out.
	orderTimeout = 2 * time.Minute
	// recoverTimeout bounds one attempt at a recovery. The next attempt continues it.
	recoverTimeout = 5 * time.Minute
	// readTimeout bounds one read of the cluster's state.
	readTimeout = 10 * time.Second
	// rowsPeriod is how often METADATA is read when no change is known: it shows what servers do on
	// their own, such as splits.
	rowsPeriod = 10 * time.Second
	// loadsAtOnce bounds the concurrent loads of one server: each opens files and replays entries.
	loadsAtOnce = 8
	// loadsFew is the number of a server's remaining loads at which more are planned.
	loadsFew = loadsMax / 4
	// silentPause is the time between two reconciliations while a server does not answer: it may be
	// dead, and its lock about to become free.
	silentPause = 100 * time.Millisecond
	// retryPause is the pause before a failed order is given again. After retriesQuick failures in
	// a row it doubles, up to retryPauseMax: the order may be impossible, and each attempt is
	// recorded in METADATA.
	retryPause    = time.Second
	retriesQuick  = 5
	retryPauseMax = 30 * time.Second
)

// assigner plans and executes tablet orders during one mastership.
type assigner struct {
	cfg  Config
	lock Lock
	// nudged holds a value when there is reason to reconcile soon.
	nudged chan struct{}
	work   sync.WaitGroup

	begun     bool
	rows      []Tablet
	whole     bool
	read      time.Time            // when the rows were read
	servers   []string             // that were alive at that read
	loggedErr string               // the last failure logged
	silent    bool                 // a server that holds its lock did not answer
	small     map[string]time.Time // when tablets became small and idle, by key
	merged    time.Time            // when the last merge of small neighbours was ordered
	// suspects are the tablets suspected of killing their servers.
	suspects suspects
	// unneeded are the dead servers that no tablet needed at the last complete read of the rows.
	unneeded []string

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		busy  []Order
		stale bool // an order has ended since the rows were read, so they may be outdated
		// loaded maps tablets loaded since to their servers. Nothing else about their rows has
		// changed.
		loaded map[string]string
		// requests are the pending moves and merges, and pins. closed is set when the mastership
		// has ended: no more are accepted.
		requests []*request
		closed   bool
		// failures counts consecutive failures of orders, by subject.
		failures map[string]failure
		// unserved are the tablets that are not served, by key.
		unserved map[string]*Unserved
		// live holds the state of each live server, by name.
		live map[string]serverState
		// moved cancels the read of METADATA in progress; nil if there is none.
		moved context.CancelCauseFunc
	}
}

// failure describes consecutive failures of an order.
type failure struct {
	tries  int
	err    error
	server string // that the last attempt was sent to
}

// serverState is the state of a live server. Its ctx is cancelled when the server is known to be
// gone, so that nothing waits for it.
type serverState struct {
	ctx context.Context
	end context.CancelCauseFunc
	// loads holds a value for each load in progress on the server.
	loads chan struct{}
	// record is the outcome of the server's recent loads. Guarded by mu.
	record *loadRecord
}

func newAssigner(cfg Config, lock Lock) *assigner {
	a := &assigner{cfg: cfg, lock: lock, nudged: make(chan struct{}, 1)}
	a.mu.live, a.mu.loaded = map[string]serverState{}, map[string]string{}
	return a
}

// nudge makes run reconcile soon.
func (a *assigner) nudge() {
	select {
	case a.nudged <- struct{}{}:
	default:
	}
}

// changed makes run reread METADATA soon.
func (a *assigner) changed() {
	a.mu.Lock()
	a.mu.stale = true
	a.mu.Unlock()
	a.nudge()
}

// run assigns tablets until ctx ends. It returns when all its orders have ended.
func (a *assigner) run(ctx context.Context) {
	defer a.work.Wait()
	defer a.noteAlive(nil)
	defer a.endRequests()
	for ctx.Err() == nil {
		if err := a.reconcile(ctx); err != nil && ctx.Err() == nil {
			a.logFailure(err)
		}
		wait := a.cfg.Pause
		if a.silent {
			wait = min(wait, silentPause)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-a.nudged:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// logFailure logs a failed reconciliation, once until its text changes.
func (a *assigner) logFailure(err error) {
	if text := err.Error(); text != a.loggedErr {
		a.loggedErr = text
		a.cfg.Logger.Warn("tablet assignment failed, retrying", "err", err)
	}
}

// reconcile reads the cluster's state and starts the orders that the plan returns.
func (a *assigner) reconcile(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if !a.begun {
		if err := a.cfg.Tablets.Begin(short); err != nil {
			return fmt.Errorf("create METADATA: %w", err)
		}
		a.begun = true
	}
	s, err := a.readState(short)
	if errors.Is(err, errMoved) {
		return nil // the nudge of the ended order reconciles again
	}
	if err != nil {
		return err
	}
	a.loggedErr = ""
	orders := PlanTablets(s)
	a.noteUnserved(s)
	for _, o := range orders {
		if !a.lock.Held() {
			return nil
		}
		a.start(ctx, o, s)
	}
	return nil
}

// readState reads the cluster's state. The order matters. A server that has logs and is not among
// the live servers read afterwards will never live again, and no row that is read after that can
// come to need it.
func (a *assigner) readState(ctx context.Context) (*TabletState, error) {
	s := &TabletState{}
	// An order that ends during this read counts as busy: its effect may have been missed.
	a.mu.Lock()
	s.Busy = slices.Clone(a.mu.busy)
	requests := slices.Clone(a.mu.requests)
	if a.mu.stale {
		a.mu.stale, a.whole = false, false
	}
	for i := range a.rows {
		if server, ok := a.mu.loaded[a.rows[i].Key]; ok {
			a.rows[i].Server = server
		}
	}
	clear(a.mu.loaded)
	a.mu.Unlock()
	var err error
	if s.Logs, s.Recovered, err = a.cfg.Tablets.Logs(ctx); err != nil {
		return nil, fmt.Errorf("list commit logs of servers: %w", err)
	}
	if s.Servers, err = a.cfg.Tablets.Servers(ctx); err != nil {
		return nil, fmt.Errorf("list tablet servers: %w", err)
	}
	var alive []string
	for _, v := range s.Servers {
		alive = append(alive, v.Name)
	}
	slices.Sort(alive)
	a.noteAlive(alive)
	a.noteFailing(s)
	a.silent = slices.ContainsFunc(s.Servers, func(v TabletServer) bool { return v.Silent })
	if !a.whole || !slices.Equal(alive, a.servers) || time.Since(a.read) >= rowsPeriod {
		if err := a.readRows(ctx); err != nil {
			return nil, fmt.Errorf("read METADATA: %w", err)
		}
		a.read, a.servers = time.Now(), alive
		s.Whole = a.whole
	}
	s.Tablets, s.Unneeded, s.Failed = a.rows, a.unneeded, a.failedLoads()
	if s.Whole {
		a.unneeded = Unneeded(s)
	}
	a.settleRequests(s, requests)
	s.Suspended = a.suspects.note(s, time.Now())
	a.noteSmall(s)
	return s, nil
}

// failedLoads returns the loads that failed at their last attempt.
func (a *assigner) failedLoads() map[string]FailedLoad {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed := map[string]FailedLoad{}
	for i := range a.rows {
		o := Order{Kind: Load, Tablet: a.rows[i]}
		if f, ok := a.mu.failures[o.subject()]; ok {
			failed[o.Tablet.Key] = FailedLoad{f.server, f.tries > retriesQuick}
		}
	}
	return failed
}

// errMoved means that a METADATA tablet moved during a read of METADATA.
var errMoved = errors.New("a METADATA tablet moved during the read")

// readRows reads the METADATA rows, and creates missing ones. While a METADATA tablet is between
// two servers, this read waits for the tablet, which waits for this reconciliation to assign it. So
// the end of an order that unloads such a tablet cancels the read.
func (a *assigner) readRows(ctx context.Context) (err error) {
	ctx, moved := context.WithCancelCause(ctx)
	defer moved(nil)
	a.mu.Lock()
	a.mu.moved = moved
	a.mu.Unlock()
	a.rows, a.whole, err = a.cfg.Tablets.Rows(ctx)
	a.mu.Lock()
	a.mu.moved = nil
	a.mu.Unlock()
	if err != nil {
		a.whole = false
		if context.Cause(ctx) == errMoved {
			err = errMoved
		}
	}
	return err
}

// noteAlive cancels the contexts of servers that are no longer alive, and adds new servers.
func (a *assigner) noteAlive(alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, e := range a.mu.live {
		if !slices.Contains(alive, name) {
			e.end(errServerGone)
			delete(a.mu.live, name)
		}
	}
	for _, name := range alive {
		if _, ok := a.mu.live[name]; !ok {
			ctx, end := context.WithCancelCause(context.Background())
			a.mu.live[name] = serverState{ctx, end, make(chan struct{}, loadsAtOnce), &loadRecord{failed: map[string]bool{}, ended: time.Now()}}
		}
	}
}

// whileAlive returns a context that is cancelled when the server is known to be gone.
func (a *assigner) whileAlive(server string) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.mu.live[server]; ok {
		return e.ctx
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(errServerGone)
	return ctx
}

// start executes an order in the background.
func (a *assigner) start(ctx context.Context, o Order, s *TabletState) {
	a.mu.Lock()
	a.mu.busy = append(a.mu.busy, o)
	a.mu.Unlock()
	a.work.Go(func() {
		took, err := a.execute(ctx, &o, s)
		a.pauseAfter(ctx, &o, took, err)
		if err == nil || errors.Is(err, ErrOvertaken) {
			a.mu.Lock()
			delete(a.mu.failures, o.subject())
			a.mu.Unlock()
		}
		a.noteOrder(&o, err)
		a.mu.Lock()
		look := a.endedLocked(&o, err)
		if a.mu.moved != nil && o.Kind == Unload && o.Tablet.Level() < 2 {
			a.mu.moved(errMoved)
		}
		a.mu.Unlock()
		if look {
			a.nudge()
		}
	})
}

// execute executes an order, and the one that follows from it, when its destination may load a
// tablet. took does not include that wait.
func (a *assigner) execute(ctx context.Context, o *Order, s *TabletState) (took time.Duration, err error) {
	done := func(error) {}
	switch {
	case o.Kind == Load:
		done, err = a.acquireLoad(ctx, o.Server, o.Tablet.Key)
	case o.Kind == Unload && o.To != "":
		done, err = a.acquireLoad(ctx, o.To, o.Tablet.Key)
	}
	if err != nil {
		return 0, err
	}
	moment.Pass("before an order of the master", o.Kind.String())
	began := time.Now()
	err = a.do(ctx, o, s)
	if err == nil && a.next(o) {
		err = a.do(ctx, o, s)
	}
	if o.Kind == Load {
		done(err)
	} else {
		done(ErrOvertaken) // nothing was loaded: neither a success nor a failure
	}
	return time.Since(began), err
}

// pauseAfter logs the outcome of an order. If it failed, it waits until the order may be planned
// again.
func (a *assigner) pauseAfter(ctx context.Context, o *Order, took time.Duration, err error) {
	log := a.cfg.Logger.With("order", o.Kind.String(), "server", o.Server, "reason", o.Why, "took", took.Round(time.Millisecond))
	if o.ofTablets() {
		log = log.With("tablet", o.Tablet.String())
	}
	switch {
	case err == nil:
		log.Info("order done")
	case errors.Is(err, errReplan):
		log.Info("order planned again", "err", err)
	case ctx.Err() == nil && errors.Is(err, ErrOvertaken):
		log.Info("order overtaken", "err", err)
		timing.Sleep(ctx, retryPause)
	case ctx.Err() == nil:
		wait := a.failed(o, err)
		log.Warn("order failed, retrying", "err", err, "retry_in", wait)
		timing.Sleep(ctx, wait)
	}
}

// failed records a failure of an order, and returns the pause before it is given again.
func (a *assigner) failed(o *Order, err error) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.failures == nil {
		a.mu.failures = map[string]failure{}
	}
	f := failure{a.mu.failures[o.subject()].tries + 1, err, o.Server}
	a.mu.failures[o.subject()] = f
	return retryAfter(f.tries)
}

// retryAfter returns the pause after that many failures in a row.
func retryAfter(failures int) time.Duration {
	return min(retryPause<<min(max(failures-retriesQuick, 0), 10), retryPauseMax)
}

// next turns a completed Unload into the Load at its destination, which keeps the time without a
// server short. It returns false if the destination is unknown or gone, or another server has the
// tablet.
func (a *assigner) next(o *Order) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, alive := a.mu.live[o.To]; o.Kind != Unload || !alive || o.Tablet.Generation == 0 {
		return false
	}
	i := slices.IndexFunc(a.mu.busy, func(b Order) bool { return b.Kind == Unload && b.same(o) })
	if i < 0 {
		return false
	}
	o.Kind, o.Server, o.To = Load, o.To, ""
	a.mu.busy[i] = *o
	return true
}

// endedLocked records that an order has ended, and reports whether to reconcile now. The effect of
// a load is known, so the rows are not reread after each load, only after the last.
func (a *assigner) endedLocked(o *Order, err error) (look bool) {
	a.mu.busy = slices.DeleteFunc(a.mu.busy, func(b Order) bool { return b.Kind == o.Kind && b.same(o) })
	loads := 0
	for i := range a.mu.busy {
		if b := &a.mu.busy[i]; b.Kind == Load && b.Server == o.Server {
			loads++
		}
	}
	if o.Kind == Load && err == nil && loads > 0 && o.Tablet.Level() == 2 && !slices.ContainsFunc(a.mu.requests, func(r *request) bool { return !r.over }) {
		a.mu.loaded[o.Tablet.Key] = o.Server
		return loads == loadsFew
	}
	a.mu.stale = true
	return true
}

var errServerGone = errors.New("the server is gone")

func (a *assigner) do(ctx context.Context, o *Order, s *TabletState) error {
	if !a.lock.Held() {
		return ErrNotMaster
	}
	limit := orderTimeout
	if o.Kind == Recover {
		limit = recoverTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := a.cfg.Tablets
	switch o.Kind {
	case Recover:
		r := sorter{rs: t, log: a.cfg.Logger, server: o.Server, alive: a.whileAlive, held: a.lock.Held}
		// One of a node's two servers is enough.
		return r.run(ctx, slices.DeleteFunc(slices.Clone(s.Servers), func(v TabletServer) bool { return v.Silent || v.Metadata }))
	case RemoveLogs:
		return t.RemoveLogs(ctx, o.Server)
	}
	i := slices.IndexFunc(s.Servers, func(v TabletServer) bool { return v.Name == o.Server })
	if i < 0 {
		return errServerGone
	}
	gone := a.whileAlive(o.Server)
	defer context.AfterFunc(gone, cancel)()
	var err error
	switch o.Kind {
	case Load:
		err = t.Load(ctx, &s.Servers[i], &o.Tablet, a.lock.Sequencer())
	case Unload:
		var generation uint64
		if generation, err = t.Unload(ctx, &s.Servers[i], &o.Tablet, a.lock.Sequencer()); err == nil {
			o.Tablet.Generation, o.Tablet.Server = generation, ""
		}
	case Merge:
		err = t.Merge(ctx, &s.Servers[i], &o.Tablet, &o.Upper, a.lock.Sequencer())
	}
	if err != nil {
		return errors.Join(err, context.Cause(gone))
	}
	return nil
}
