package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// fixedTablets is a cluster that answers at once as the test configures. It counts calls. It
// implements Tablets.
type fixedTablets struct {
	oneRecovery
	s          *TabletState
	begins     int
	rows       int
	looks      []time.Time
	beginErr   error
	serversErr error
	orders     []string
	do         func() error // the outcome of an order
}

// set changes the cluster and resets the counts.
func (q *fixedTablets) set(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks, q.rows = nil, 0
	change()
}

func (q *fixedTablets) Begin(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begins++
	return q.beginErr
}

func (q *fixedTablets) Logs(context.Context) ([]string, map[string]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.s.Logs, q.s.Recovered, nil
}

func (q *fixedTablets) Servers(context.Context) ([]TabletServer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks = append(q.looks, time.Now())
	return slices.Clone(q.s.Servers), q.serversErr
}

func (q *fixedTablets) Rows(context.Context) ([]Tablet, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rows++
	return slices.Clone(q.s.Tablets), q.s.Whole, nil
}

func (q *fixedTablets) ordered(kind string, t *Tablet) error {
	q.mu.Lock()
	q.orders = append(q.orders, kind+" "+t.Key)
	q.mu.Unlock()
	if q.do != nil {
		return q.do()
	}
	return nil
}

func (q *fixedTablets) Load(_ context.Context, _ *TabletServer, t *Tablet, _ api.Sequencer) error {
	return q.ordered("load", t)
}

func (q *fixedTablets) Unload(_ context.Context, _ *TabletServer, t *Tablet, _ api.Sequencer) (uint64, error) {
	return t.Generation + 1, q.ordered("unload", t)
}

func (q *fixedTablets) Merge(_ context.Context, _ *TabletServer, lower, _ *Tablet, _ api.Sequencer) error {
	return q.ordered("merge", lower)
}

func (q *fixedTablets) RemoveLogs(_ context.Context, server string) error {
	return q.ordered("remove logs", &Tablet{Key: server})
}

// run runs a master's assigner until the returned function is called.
func (q *fixedTablets) run(pause time.Duration, log *slog.Logger) (a *assigner, end func()) {
	lock := &worldLock{done: make(chan struct{})}
	a = newAssigner(Config{Tablets: q, Pause: pause, Logger: log}, lock)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { a.run(ctx) })
	return a, func() {
		cancel()
		work.Wait()
	}
}

// TestReconcilePeriods: the master reconciles after each Pause, ten times a second while a server
// does not answer, and at once when nudged. It reads METADATA every ten seconds, and when servers
// come or go or an order has ended.
func TestReconcilePeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fixedTablets{s: servedState(holding("a", heldFrom(0, 2, 0)...), holding("b", heldFrom(5, 2, 0)...))}
		a, end := q.run(time.Second, slog.New(slog.DiscardHandler))
		defer end()
		after := func(change func(), d time.Duration) (looks, rows int) {
			q.set(change)
			time.Sleep(d)
			synctest.Wait()
			return len(q.looks), q.rows
		}
		none := func() {}
		synctest.Wait()
		if len(q.looks) != 1 || q.rows != 1 || q.begins != 1 {
			t.Errorf("it begins with %d looks, %d times METADATA and %d beginnings", len(q.looks), q.rows, q.begins)
		}
		if looks, rows := after(none, 10*time.Second-1); looks != 9 || rows != 0 {
			t.Errorf("in less than 10 s: %d looks, %d times METADATA", looks, rows)
		}
		if looks, rows := after(none, 1); looks != 1 || rows != 1 {
			t.Errorf("at 10 s: %d looks, %d times METADATA", looks, rows)
		}
		if looks, rows := after(a.nudge, 0); looks != 1 || rows != 0 {
			t.Errorf("for a reason: %d looks, %d times METADATA", looks, rows)
		}
		if looks, rows := after(a.changed, 0); looks != 1 || rows != 1 {
			t.Errorf("for a change: %d looks, %d times METADATA", looks, rows)
		}
		if looks, rows := after(func() { q.s.Servers = append(q.s.Servers, holding("c")) }, time.Second); looks != 1 || rows != 1 {
			t.Errorf("when a server comes: %d looks, %d times METADATA", looks, rows)
		}
		after(func() { q.s.Servers[1].Silent = true }, time.Second)
		if looks, rows := after(none, time.Second); looks != 10 || rows != 0 {
			t.Errorf("while a server is silent: %d looks, %d times METADATA", looks, rows)
		}
		if q.begins != 1 {
			t.Errorf("METADATA began %d times", q.begins)
		}
	})
}

// TestFailedReconcile: a failed reconciliation is retried and logged, once while the reason is the
// same, and again after a successful one.
func TestFailedReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		q := &fixedTablets{s: servedState(), beginErr: errors.New("no quorum")}
		_, end := q.run(time.Second, log.logger())
		defer end()
		const failed = "tablet assignment failed"
		expect := func(what string, lines, begins int) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if n := log.count(failed); n != lines || q.begins != begins {
				t.Errorf("%s: %d failures are logged after %d beginnings, want %d after %d", what, n, q.begins, lines, begins)
			}
		}
		time.Sleep(1)
		expect("METADATA cannot begin", 1, 4)
		q.set(func() { q.beginErr, q.serversErr = nil, errors.New("no answer") })
		expect("another reason", 2, 5)
		q.set(func() { q.serversErr = nil })
		expect("no failure", 2, 5)
		q.set(func() { q.serversErr = errors.New("no answer") })
		expect("the same reason later", 3, 5)
	})
}

// TestFailedLoadsLast: a load that failed for the sixth time in a row counts as lasting.
func TestFailedLoadsLast(t *testing.T) {
	a := newAssigner(Config{}, nil)
	a.rows = []Tablet{{Key: userKey(0)}, {Key: userKey(1)}}
	for n := 1; n <= 7; n++ {
		a.failed(&Order{Kind: Load, Server: "a", Tablet: a.rows[0]}, errTestUnknown)
		if got := a.failedLoads(); len(got) != 1 || got[userKey(0)] != (FailedLoad{Server: "a", Lasting: n > 5}) {
			t.Errorf("after %d failures: %+v", n, got)
		}
	}
}

// TestOrderOutcomes: after a failed order the master waits before it repeats it, and counts the
// failure. An overtaken order is repeated after a second without counting. One that waits for a
// failing server is planned again at once.
func TestOrderOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		before   int // failures
		wait     time.Duration
		failures int
		log      string
	}{
		"done":              {nil, 3, 0, 0, "order done"},
		"failed":            {errTestUnknown, 0, retryPause, 1, "order failed, retrying"},
		"failed many times": {errTestUnknown, 6, 4 * retryPause, 7, "order failed, retrying"},
		"overtaken":         {fmt.Errorf("row: %w", ErrOvertaken), 3, retryPause, 0, "order overtaken"},
		"planned again":     {errReplan, 3, 0, 3, "order planned again"},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &logLines{}
			s := servedState(holding("a"))
			q := &fixedTablets{s: s, do: func() error { return c.err }}
			a := newAssigner(Config{Tablets: q, Logger: log.logger()}, &worldLock{done: make(chan struct{})})
			a.noteAlive([]string{"a"})
			defer a.noteAlive(nil)
			o := Order{Kind: Load, Server: "a", Tablet: Tablet{Key: userKey(0), Generation: 1}}
			for range c.before {
				a.failed(&o, errTestUnknown)
			}
			begun := time.Now()
			a.start(t.Context(), o, s)
			a.work.Wait()
			if took := time.Since(begun); took != c.wait || len(a.mu.busy) > 0 || len(a.nudged) != 1 {
				t.Errorf("%s: it ends after %v, want %v; %d orders are busy, %d reasons to look", name, took, c.wait, len(a.mu.busy), len(a.nudged))
			}
			if f := a.mu.failures[o.subject()]; f.tries != c.failures {
				t.Errorf("%s: %d failures count, want %d", name, f.tries, c.failures)
			}
			if log.count(c.log) != 1 || log.count("msg=") != 1 {
				t.Errorf("%s: the log is %s", name, log.b.String())
			}
		})
	}
}

// TestUnloadGoesOn: an unloaded tablet is loaded at its destination by the same order. If it
// belongs to METADATA, the end of the order cancels the read of METADATA.
func TestUnloadGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		o      Order
		orders string
		moved  bool
	}{
		"of a user":               {Order{Kind: Unload, Server: "a", To: "b", Tablet: Tablet{Key: userKey(0), Generation: 1}}, "[unload %[1]s load %[1]s]", false},
		"of a user, to none":      {Order{Kind: Unload, Server: "a", Tablet: Tablet{Key: userKey(0), Generation: 1}}, "[unload %[1]s]", false},
		"of METADATA, to none":    {Order{Kind: Unload, Server: "a", Tablet: Tablet{Key: RootKey, Generation: 1}}, "[unload %[1]s]", true},
		"a load of METADATA":      {Order{Kind: Load, Server: "a", Tablet: Tablet{Key: RootKey, Generation: 1}}, "[load %[1]s]", false},
		"to a server that is not": {Order{Kind: Unload, Server: "a", To: "z", Tablet: Tablet{Key: userKey(0), Generation: 1}}, "[]", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := servedState(holding("a"), holding("b"))
			q := &fixedTablets{s: s}
			a := newAssigner(Config{Tablets: q, Logger: slog.New(slog.DiscardHandler)}, &worldLock{done: make(chan struct{})})
			a.noteAlive([]string{"a", "b"})
			defer a.noteAlive(nil)
			reading, moved := context.WithCancelCause(t.Context())
			defer moved(nil)
			a.mu.moved = moved
			a.start(t.Context(), c.o, s)
			a.work.Wait()
			want := c.orders
			if want != "[]" {
				want = fmt.Sprintf(want, c.o.Tablet.Key)
			}
			if got := fmt.Sprint(q.orders); got != want {
				t.Errorf("%s: ordered are %s, want %s", name, got, want)
			}
			if ended := context.Cause(reading) == errMoved; ended != c.moved {
				t.Errorf("%s: the reading of METADATA ends: %v", name, ended)
			}
			if e := a.mu.live["b"]; len(e.loads) != 0 || len(a.mu.live["a"].loads) != 0 {
				t.Errorf("%s: a turn of a server is still taken", name)
			}
		})
	}
}
