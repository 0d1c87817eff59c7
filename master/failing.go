package master

import (
	"context"
	"errors"
	"time"
)

const (
	// failingTablets is the number of tablets whose loads fail on a server, with none that succeeds in between, from which on the
	// server counts as failing. One tablet that cannot be loaded anywhere says nothing about a server.
	failingTablets = 3
	// failingTime is how long a server counts as failing after its last failed load. Then it is tried again.
	failingTime = time.Minute
	// stalledTime is how long none of a server's loads may end while others wait for their turn.
	stalledTime = 15 * time.Second
)

// loadRecord is what became of the last loads of a server. Such a server has the fewest tablets because it loads none, so that all
// would be given to it. It is given tablets only if there is no other server, and few at a time.
type loadRecord struct {
	failed  map[string]bool // tablets, by their keys, since the last load that succeeded
	last    time.Time       // when the last of them failed, or the server was found stalled
	stalled bool
	ended   time.Time // when a load ended last, or the first of those under way began
}

// failing reports whether the server is to be given tablets only if there is no other.
func (r *loadRecord) failing(now time.Time) bool {
	return (r.stalled || len(r.failed) >= failingTablets) && now.Sub(r.last) < failingTime
}

// errReplan ends an order that waits for its turn at a failing server: it may be given to another one.
var errReplan = errors.New("the server loads no tablets now")

// turn waits until the server that is to load a tablet can begin with it. Done is to be called with what came of the load. The
// error is errReplan if the server fails to load others meanwhile.
func (a *assigner) turn(ctx context.Context, server, key string) (done func(error), err error) {
	a.mu.Lock()
	e, ok := a.mu.ends[server]
	a.mu.Unlock()
	if !ok {
		return nil, errServerGone
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case e.loads <- struct{}{}:
			a.mu.Lock()
			if len(e.loads) == 1 {
				e.record.ended = time.Now()
			}
			a.mu.Unlock()
			return func(err error) {
				<-e.loads
				a.noteLoad(server, key, err)
			}, nil
		case <-e.ctx.Done():
			return nil, context.Cause(e.ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
			if a.noteStalled(server) {
				return nil, errReplan
			}
		}
	}
}

// noteLoad notes what came of a load on a server.
func (a *assigner) noteLoad(server, key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.mu.ends[server]
	if !ok {
		return
	}
	r := e.record
	r.ended = time.Now()
	switch {
	case err == nil:
		clear(r.failed)
		r.stalled = false
	case !errors.Is(err, ErrOvertaken) && !errors.Is(err, ErrNotMaster):
		r.failed[key], r.last = true, r.ended
	}
}

// noteStalled reports whether a server is failing. It is if none of its loads has ended for too long while one waits.
func (a *assigner) noteStalled(server string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.mu.ends[server]
	if !ok {
		return false
	}
	now := time.Now()
	if r := e.record; now.Sub(r.ended) >= stalledTime {
		r.stalled, r.last = true, now
	}
	return e.record.failing(now)
}

// noteFailing marks the servers that are failing.
func (a *assigner) noteFailing(s *TabletState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for i := range s.Servers {
		v := &s.Servers[i]
		if e, ok := a.mu.ends[v.Name]; ok {
			v.Failing = e.record.failing(now)
		}
	}
}
