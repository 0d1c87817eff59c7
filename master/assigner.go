package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Tablets is the master's way to METADATA and to the tablet servers. Its commands carry the
// sequencer of the master lock.
type Tablets interface {
	Recoveries
	// Begin makes what a cluster needs before it has a tablet: the root tablet, and the row of the
	// first METADATA tablet. What is there stays.
	Begin(ctx context.Context) error
	// Logs returns the servers that have logs in the lock service, and those that were recovered, with
	// whether that is done.
	Logs(ctx context.Context) (servers []string, recovered map[string]bool, err error)
	// Servers returns the servers that hold the lock of their file, and what each says it has.
	Servers(ctx context.Context) ([]TabletServer, error)
	// Rows returns what METADATA says, level by level as far as it is served, and whether that is all.
	Rows(ctx context.Context) (tablets []Tablet, whole bool, err error)
	// Load has a server load a tablet that is at that generation. ErrOvertaken.
	Load(ctx context.Context, server *TabletServer, t *Tablet, q api.Sequencer) error
	// Unload has a server let go of a tablet, and returns the generation at which its row is then; 0 if
	// another has it. ErrOvertaken.
	Unload(ctx context.Context, server *TabletServer, t *Tablet, q api.Sequencer) (generation uint64, err error)
	// Merge has a server make one tablet of two neighbours that it has.
	Merge(ctx context.Context, server *TabletServer, lower, upper *Tablet, q api.Sequencer) error
	// Forget removes a dead server's logs and its recovery.
	Forget(ctx context.Context, server string) error
}

// ErrOvertaken means that a tablet was changed, or its table dropped, after its row was read: what
// the order was for is looked at anew.
var ErrOvertaken = errors.New("the tablet was changed meanwhile")

const (
	// orderTimeout bounds a load or unload: a server may have a gigabyte to write out.
	orderTimeout = 2 * time.Minute
	// recoverTimeout bounds one try at a recovery; the next goes on with it.
	recoverTimeout = 5 * time.Minute
	// readTimeout bounds one look at the cluster.
	readTimeout = 10 * time.Second
	// rowsPeriod is how often METADATA is read when nothing seems to have changed: what servers do by
	// themselves, such as splits, shows there.
	rowsPeriod = 10 * time.Second
	// loadsAtOnce bounds the loads that one server does at a time: each opens files and replays entries.
	loadsAtOnce = 8
	// loadsFew is how many loads a server has to do yet when more are planned.
	loadsFew = loadsMax / 4
	// silentPause is the time between two looks while a server is silent: it may be dead, and its lock
	// is about to be free.
	silentPause = 100 * time.Millisecond
	// retryPause is the pause before an order that failed is given again. After retriesQuick of them in a row it
	// doubles, up to retryPauseMax: it may be that it can never be done, and each try is written down in METADATA.
	retryPause    = time.Second
	retriesQuick  = 5
	retryPauseMax = 30 * time.Second
)

// assigner has the plan of tablets carried out.
type assigner struct {
	cfg  Config
	lock Lock
	// nudged has a value when there is reason to look again.
	nudged chan struct{}
	work   sync.WaitGroup

	begun   bool
	rows    []Tablet
	whole   bool
	read    time.Time            // when the rows were read
	servers []string             // that were alive then
	told    string               // the last failure to look that was told
	silent  bool                 // a server that has its lock still did not answer
	small   map[string]time.Time // since when tablets are small, by their keys
	merged  time.Time            // when two of them were last to be merged
	// suspects are the tablets that seem to end their servers.
	suspects suspects
	// unneeded are the dead servers that no tablet needed when all rows were last read.
	unneeded []string

	// mu guards what follows.
	mu struct {
		sync.Mutex
		busy  []Order
		stale bool // an order has ended since the rows were read, and they do not show it
		// loaded are the tablets that were loaded since, with their servers, which is all that became of them.
		loaded map[string]string
		// wishes are taken until the mastership is over: then it is closed.
		wishes []*wish
		closed bool
		// failures are those of orders since they last were done, by their subjects.
		failures map[string]failure
		// unserved are the tablets that are not served, by their keys.
		unserved map[string]*Unserved
		// ends are those of the servers that are alive.
		ends map[string]serverEnd
		// moved ends the present reading of METADATA; nil if there is none.
		moved context.CancelCauseFunc
	}
}

// failure is how often an order has failed in a row, and how it did the last time.
type failure struct {
	tries  int
	err    error
	server string // whose order it was
}

// serverEnd is a context that ends when a server is known to be gone: nobody waits for it then.
type serverEnd struct {
	ctx context.Context
	end context.CancelCauseFunc
	// loads has a value for each load that the server does.
	loads chan struct{}
	// record is what became of them. Guarded by mu.
	record *loadRecord
}

func newAssigner(cfg Config, lock Lock) *assigner {
	a := &assigner{cfg: cfg, lock: lock, nudged: make(chan struct{}, 1)}
	a.mu.ends, a.mu.loaded = map[string]serverEnd{}, map[string]string{}
	return a
}

// nudge has run look soon.
func (a *assigner) nudge() {
	select {
	case a.nudged <- struct{}{}:
	default:
	}
}

// changed has the rows read again, soon.
func (a *assigner) changed() {
	a.mu.Lock()
	a.mu.stale = true
	a.mu.Unlock()
	a.nudge()
}

// run assigns tablets until ctx ends, and returns when all its orders have ended.
func (a *assigner) run(ctx context.Context) {
	defer a.work.Wait()
	defer a.noteAlive(nil)
	defer a.endWishes()
	for ctx.Err() == nil {
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			a.tell(err)
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

// tell tells of a failure, once while it stays the same.
func (a *assigner) tell(err error) {
	if text := err.Error(); text != a.told {
		a.told = text
		a.cfg.Logger.Warn("cannot look after the tablets; will try again", "error", err)
	}
}

// look finds out how things stand and has done what is to be done.
func (a *assigner) look(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if !a.begun {
		if err := a.cfg.Tablets.Begin(short); err != nil {
			return fmt.Errorf("begin METADATA: %w", err)
		}
		a.begun = true
	}
	s, err := a.state(short)
	if errors.Is(err, errMoved) {
		return nil // looked at again at once
	}
	if err != nil {
		return err
	}
	a.told = ""
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

// state reads how things stand. The order matters: a server that has logs but does not live when its
// lock is looked at later never will, and no row that is read after that can come to need it.
func (a *assigner) state(ctx context.Context) (*TabletState, error) {
	s := &TabletState{}
	// An order that ends while this is read is still busy: what it did may not be seen.
	a.mu.Lock()
	s.Busy = slices.Clone(a.mu.busy)
	wishes := slices.Clone(a.mu.wishes)
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
		return nil, fmt.Errorf("list servers' logs: %w", err)
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
	a.settleWishes(s, wishes)
	s.Suspended = a.suspects.note(s, time.Now())
	a.noteSmall(s)
	return s, nil
}

// failedLoads returns the loads that failed the last time they were tried.
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

// errMoved means that a tablet of METADATA was moved while it was read.
var errMoved = errors.New("a tablet of METADATA has moved")

// readRows reads the rows, and makes those that are missing. While one of METADATA's own tablets is on its way
// from a server to another, that waits for the tablet, which waits for this look to give it out: so the end of an order
// that moves one ends the reading.
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

// noteAlive ends the orders of servers that are not among those that are alive.
func (a *assigner) noteAlive(alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, e := range a.mu.ends {
		if !slices.Contains(alive, name) {
			e.end(errServerGone)
			delete(a.mu.ends, name)
		}
	}
	for _, name := range alive {
		if _, ok := a.mu.ends[name]; !ok {
			ctx, end := context.WithCancelCause(context.Background())
			a.mu.ends[name] = serverEnd{ctx, end, make(chan struct{}, loadsAtOnce), &loadRecord{failed: map[string]bool{}, ended: time.Now()}}
		}
	}
}

// whileAlive returns a context that ends when a server is known to be gone.
func (a *assigner) whileAlive(server string) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.mu.ends[server]; ok {
		return e.ctx
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(errServerGone)
	return ctx
}

// start carries an order out in the background.
func (a *assigner) start(ctx context.Context, o Order, s *TabletState) {
	a.mu.Lock()
	a.mu.busy = append(a.mu.busy, o)
	a.mu.Unlock()
	a.work.Go(func() {
		done, err := func(error) {}, error(nil)
		switch {
		case o.Kind == Load:
			done, err = a.turn(ctx, o.Server, o.Tablet.Key)
		case o.Kind == Unload && o.To != "":
			done, err = a.turn(ctx, o.To, o.Tablet.Key)
		}
		began := time.Now()
		if err == nil {
			err = a.do(ctx, &o, s)
			if err == nil && a.next(&o) {
				err = a.do(ctx, &o, s)
			}
			if o.Kind == Load {
				done(err)
			} else {
				done(ErrOvertaken) // nothing was loaded
			}
		}
		log := a.cfg.Logger.With("order", o.Kind.String(), "server", o.Server, "because", o.Why, "took", time.Since(began).Round(time.Millisecond))
		if o.ofTablets() {
			log = log.With("tablet", o.Tablet.String())
		}
		switch {
		case err == nil:
			log.Info("tablets: done")
		case errors.Is(err, errReplan):
			log.Info("tablets: planned anew", "error", err)
		case ctx.Err() == nil && errors.Is(err, ErrOvertaken):
			log.Info("tablets: overtaken", "error", err)
			pause(ctx, retryPause)
		case ctx.Err() == nil:
			wait := a.failed(&o, err)
			log.Warn("tablets: failed; will try again", "error", err, "in", wait)
			pause(ctx, wait)
		}
		if err == nil || errors.Is(err, ErrOvertaken) {
			a.mu.Lock()
			delete(a.mu.failures, o.subject())
			a.mu.Unlock()
		}
		a.ordered(&o, err)
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

// failed counts a failure of an order, and returns when it is to be given again.
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

// retryAfter is the pause after so many failures in a row.
func retryAfter(failures int) time.Duration {
	return min(retryPause<<min(max(failures-retriesQuick, 0), 10), retryPauseMax)
}

// next makes an order that has unloaded a tablet the one that loads it where it is to be, so that it is
// nowhere for no longer than that takes; false if it is not known where, or another has it.
func (a *assigner) next(o *Order) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, alive := a.mu.ends[o.To]; o.Kind != Unload || !alive || o.Tablet.Generation == 0 {
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

// endedLocked notes that an order has ended, and says whether that is reason to look again. What a load does
// is known, so the rows need not be read again for each; they are after the last.
func (a *assigner) endedLocked(o *Order, err error) (look bool) {
	a.mu.busy = slices.DeleteFunc(a.mu.busy, func(b Order) bool { return b.Kind == o.Kind && b.same(o) })
	loads := 0
	for i := range a.mu.busy {
		if b := &a.mu.busy[i]; b.Kind == Load && b.Server == o.Server {
			loads++
		}
	}
	if o.Kind == Load && err == nil && loads > 0 && o.Tablet.Level() == 2 && !slices.ContainsFunc(a.mu.wishes, func(w *wish) bool { return !w.over }) {
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
		// Of a node's two servers one will do.
		return r.run(ctx, slices.DeleteFunc(slices.Clone(s.Servers), func(v TabletServer) bool { return v.Silent || v.Metadata }))
	case Forget:
		return t.Forget(ctx, o.Server)
	}
	i := slices.IndexFunc(s.Servers, func(v TabletServer) bool { return v.Name == o.Server })
	if i < 0 {
		return errServerGone
	}
	ends := a.whileAlive(o.Server)
	defer context.AfterFunc(ends, cancel)()
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
		return errors.Join(err, context.Cause(ends))
	}
	return nil
}
