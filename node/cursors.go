package node

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// cursors are the scans that clients may go on with. A cursor is taken out while
// a batch is read, so two calls with one cursor cannot mix their rows.
type cursors struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		open map[uint64]openCursor
		stop chan struct{}
	}
}

type openCursor struct {
	scan *scan
	used time.Time
}

// take removes and returns the scan of a cursor, or nil if its owner has none.
func (cs *cursors) take(id uint64, owner string) *scan {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok := cs.mu.open[id]
	if !ok || c.scan.owner != owner {
		return nil
	}
	delete(cs.mu.open, id)
	return c.scan
}

// put keeps s under id, or under a new id if that is 0. The error is
// *api.OverloadedError.
func (cs *cursors) put(s *scan, id uint64) (uint64, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.mu.open) >= api.CursorsMax {
		return 0, &api.OverloadedError{Reason: "too many open scans", RetryAfter: time.Second}
	}
	for id == 0 {
		// Random, so that a client cannot meet another's by counting.
		if id = rand.Uint64N(wire.SafeIntegerMax + 1); cs.mu.open[id].scan != nil {
			id = 0
		}
	}
	if cs.mu.open == nil {
		cs.mu.open = map[uint64]openCursor{}
	}
	cs.mu.open[id] = openCursor{scan: s, used: time.Now()}
	return id, nil
}

// sweepPeriod is how often idle cursors are dropped.
const sweepPeriod = api.CursorIdle / 6

// sweep drops idle cursors until close.
func (cs *cursors) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			cs.mu.Lock()
			for id, c := range cs.mu.open {
				if now.Sub(c.used) > api.CursorIdle {
					delete(cs.mu.open, id)
				}
			}
			cs.mu.Unlock()
		}
	}
}

// start returns the channel that close closes.
func (cs *cursors) start() <-chan struct{} {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.mu.stop = make(chan struct{})
	return cs.mu.stop
}

func (cs *cursors) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.mu.stop != nil {
		close(cs.mu.stop)
		cs.mu.stop = nil
	}
}

// count returns the number of open cursors.
func (cs *cursors) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.mu.open)
}
