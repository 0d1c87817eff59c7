package master

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/planted"
)

const (
	// failingTablets is the number of different tablets whose loads fail on a server, with no
	// successful load in between, at which the server counts as failing. One tablet that loads
	// nowhere is no sign of a failing server.
	failingTablets = 3
	// failingTime is how long a server counts as failing after its last failed load. Then it is
	// tried again.
	failingTime = time.Minute
	// stalledTime is how long none of a server's loads may end while others wait, before it counts
	// as stalled.
	stalledTime = 15 * time.Second
)

// loadRecord is the outcome of a server's recent loads. A failing server loads no tablets, so it
// has the fewest, and would be assigned all of them. It is assigned tablets only if there is no
// other server, and few at a time.
type loadRecord struct {
	failed  map[string]bool // keys of tablets since the last successful load
	last    time.Time       // when the last of them failed, or the server was last found stalled
	stalled bool
	ended   time.Time // when a load last ended, or when the first of those in progress began
}

// failing reports whether the server is to be assigned tablets only if there is no other.
func (r *loadRecord) failing(now time.Time) bool {
	return !planted.On(planted.FailingServerLightest) && (r.stalled || len(r.failed) >= failingTablets) && now.Sub(r.last) < failingTime
}

// errReplan ends an order that waits at a failing server: the tablet may be assigned to another
// one.
var errReplan = errors.New("the server fails to load tablets")

// acquireLoad waits until the server can start loading a tablet. The caller must call done with the
// outcome. The error is errReplan if the server is found failing meanwhile.
func (a *assigner) acquireLoad(ctx context.Context, server, key string) (done func(error), err error) {
	a.mu.Lock()
	e, ok := a.mu.live[server]
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

// noteLoad records the outcome of a load on a server.
func (a *assigner) noteLoad(server, key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.mu.live[server]
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

// noteStalled reports whether a server is failing. It marks the server stalled if none of its loads
// has ended for stalledTime. It is called only while a load waits.
func (a *assigner) noteStalled(server string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.mu.live[server]
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
		if e, ok := a.mu.live[v.Name]; ok {
			v.Failing = e.record.failing(now)
		}
	}
}
