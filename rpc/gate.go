package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// gate is a counting semaphore for bytes, or for any other unit. Acquiring free units costs one
// atomic addition. Otherwise callers wait in FIFO order, preferred ones before the others.
type gate struct {
	max      int64
	reserved int64 // part of max reserved for preferred callers
	used     atomic.Int64
	// forced is the number of units that non-preferred callers acquired by force. It does not count
	// against preferred callers.
	forced atomic.Int64
	// waiting is len(mu.queue), or more while a waiter is being added; preferred counts the
	// preferred ones.
	waiting, preferred atomic.Int32
	mu                 struct {
		sync.Mutex
		queue []*gateWaiter
	}
}

type gateWaiter struct {
	n         int64
	preferred bool
	ready     chan struct{} // closed when n has been acquired for the waiter
}

func newGate(max, reserved int64) *gate { return &gate{max: max, reserved: reserved} }

// tryAcquire acquires n if it is free and no caller is waiting. An amount over max fits if nothing
// else is acquired, so that no caller can block forever.
func (g *gate) tryAcquire(n int64) bool {
	return g.waiting.Load() == 0 && g.fits(n, false)
}

// tryAcquirePreferred is tryAcquire for a preferred caller, which waits only behind other preferred
// ones.
func (g *gate) tryAcquirePreferred(n int64) bool {
	return g.preferred.Load() == 0 && g.fits(n, true)
}

func (g *gate) fits(n int64, preferred bool) bool {
	if g.admits(g.used.Add(n), n, preferred) {
		return true
	}
	g.release(n)
	return false
}

// admits reports whether n fits, where used already includes n.
func (g *gate) admits(used, n int64, preferred bool) bool {
	return used == n || used <= g.max-g.reserved || preferred && used-g.forced.Load() <= g.max
}

// acquire waits until n is free, for at most wait and until done is closed. It reports whether it
// acquired n.
func (g *gate) acquire(n int64, preferred bool, wait time.Duration, done <-chan struct{}) bool {
	if wait <= 0 {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	return g.enqueue(n, preferred, t.C, nil, done)
}

// acquireCtx is acquire for a non-preferred caller, limited by ctx instead of a time.
func (g *gate) acquireCtx(ctx context.Context, n int64, done <-chan struct{}) bool {
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
	return g.cancelWait(w)
}

// cancelWait removes w from the queue. It reports true if n had already been acquired for w.
func (g *gate) cancelWait(w *gateWaiter) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, x := range g.mu.queue {
		if x == w {
			g.mu.queue = slices.Delete(g.mu.queue, i, i+1)
			g.leftLocked(w)
			g.grantLocked() // waiters behind a large one may fit now
			return false
		}
	}
	return true
}

// force acquires n unconditionally, for bytes that already exist.
func (g *gate) force(n int64, preferred bool) {
	g.used.Add(n)
	if !preferred {
		g.forced.Add(n)
	}
}

// releaseForced releases n that force acquired.
func (g *gate) releaseForced(n int64, preferred bool) {
	if !preferred {
		g.forced.Add(-n)
	}
	g.release(n)
}

// release returns n to the gate.
func (g *gate) release(n int64) {
	g.used.Add(-n)
	// A caller of acquire increments waiting before it checks used; this function changes used
	// before it checks waiting. So at least one of the two sees the other.
	if g.waiting.Load() != 0 {
		g.mu.Lock()
		g.grantLocked()
		g.mu.Unlock()
	}
}

func (g *gate) grantLocked() {
	for len(g.mu.queue) > 0 {
		w := g.mu.queue[0]
		if !g.admits(g.used.Add(w.n), w.n, w.preferred) {
			// Not release, which would recurse. The next release calls grantLocked again.
			g.used.Add(-w.n)
			return
		}
		g.mu.queue[0] = nil
		g.mu.queue = g.mu.queue[1:]
		g.leftLocked(w)
		close(w.ready)
	}
}

// leftLocked uncounts a waiter that was removed from the queue.
func (g *gate) leftLocked(w *gateWaiter) {
	g.waiting.Add(-1)
	if w.preferred {
		g.preferred.Add(-1)
	}
}
