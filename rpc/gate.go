package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// gate bounds a sum of bytes (or of anything else that is counted) across many
// goroutines. Taking what is free costs one atomic addition; when nothing is
// free, takers wait in the order they came, the preferred before the others.
type gate struct {
	max  int64
	kept int64 // of max, for the preferred alone
	used atomic.Int64
	// forced is how much of it those that are not preferred have taken without asking, and is no concern of the preferred.
	forced atomic.Int64
	// waiting is len(mu.queue), or more while one is being added; preferred is how many of them are.
	waiting, preferred atomic.Int32
	mu                 struct {
		sync.Mutex
		queue []*gateWaiter
	}
}

type gateWaiter struct {
	n         int64
	preferred bool
	ready     chan struct{} // closed when n has been taken for the waiter
}

func newGate(max, kept int64) *gate { return &gate{max: max, kept: kept} }

// tryTake takes n if it is free and nobody is waiting. An amount over max fits
// when nothing else is taken, so that no single taker can be stuck for good.
func (g *gate) tryTake(n int64) bool {
	return g.waiting.Load() == 0 && g.fits(n, false)
}

// tryTakePreferred is tryTake for one who waits for none but the preferred.
func (g *gate) tryTakePreferred(n int64) bool {
	return g.preferred.Load() == 0 && g.fits(n, true)
}

func (g *gate) fits(n int64, preferred bool) bool {
	if g.has(g.used.Add(n), n, preferred) {
		return true
	}
	g.give(n)
	return false
}

// has tells whether there was room for n, with which so much is used now.
func (g *gate) has(used, n int64, preferred bool) bool {
	return used == n || used <= g.max-g.kept || preferred && used-g.forced.Load() <= g.max
}

// take waits until n is free, at most for wait and no longer than until done is
// closed. It tells whether n has been taken.
func (g *gate) take(n int64, preferred bool, wait time.Duration, done <-chan struct{}) bool {
	if wait <= 0 {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	return g.enqueue(n, preferred, t.C, nil, done)
}

// takeCtx is take with no time limit but ctx's.
func (g *gate) takeCtx(ctx context.Context, n int64, done <-chan struct{}) bool {
	return g.enqueue(n, false, nil, ctx.Done(), done)
}

func (g *gate) enqueue(n int64, preferred bool, timeout <-chan time.Time, stop, done <-chan struct{}) bool {
	w := &gateWaiter{n: n, preferred: preferred, ready: make(chan struct{})}
	g.mu.Lock()
	g.waiting.Add(1)
	if preferred {
		g.mu.queue = slices.Insert(g.mu.queue, int(g.preferred.Add(1))-1, w)
	} else {
		g.mu.queue = append(g.mu.queue, w)
	}
	g.grantLocked()
	g.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-timeout:
	case <-stop:
	case <-done:
	}
	return g.giveUp(w)
}

// giveUp takes w out of the queue, unless it has been served meanwhile.
func (g *gate) giveUp(w *gateWaiter) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, x := range g.mu.queue {
		if x == w {
			g.mu.queue = slices.Delete(g.mu.queue, i, i+1)
			g.leftLocked(w)
			g.grantLocked() // those behind a large one may fit
			return false
		}
	}
	return true
}

// force takes n whether it is free or not, for bytes that exist already.
func (g *gate) force(n int64, preferred bool) {
	g.used.Add(n)
	if !preferred {
		g.forced.Add(n)
	}
}

// giveForced returns n that was forced.
func (g *gate) giveForced(n int64, preferred bool) {
	if !preferred {
		g.forced.Add(-n)
	}
	g.give(n)
}

// give returns n.
func (g *gate) give(n int64) {
	g.used.Add(-n)
	// A taker announces itself in waiting before it looks at used, and we look at
	// waiting after changing used: one of the two sees the other.
	if g.waiting.Load() != 0 {
		g.mu.Lock()
		g.grantLocked()
		g.mu.Unlock()
	}
}

func (g *gate) grantLocked() {
	for len(g.mu.queue) > 0 {
		w := g.mu.queue[0]
		if !g.has(g.used.Add(w.n), w.n, w.preferred) {
			// Not give: the one who makes room grants again.
			g.used.Add(-w.n)
			return
		}
		g.mu.queue[0] = nil
		g.mu.queue = g.mu.queue[1:]
		g.leftLocked(w)
		close(w.ready)
	}
}

// leftLocked counts one who is not in the queue any more.
func (g *gate) leftLocked(w *gateWaiter) {
	g.waiting.Add(-1)
	if w.preferred {
		g.preferred.Add(-1)
	}
}
