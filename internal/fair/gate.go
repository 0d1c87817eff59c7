// Package fair lets a few goroutines at a time do long work, and takes the users that they work for in
// turn: a user with many requests delays only those. Memory is shared among users in the same way.
package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrCrowded means that as many goroutines wait for one user as may.
var ErrCrowded = errors.New("too many requests of the user wait for their turn")

// Gate admits goroutines to turns. Users that wait get the next turns in rotation; the goroutines of one user
// get theirs in the order in which they came, but for AcquireFirst.
type Gate struct {
	mu      sync.Mutex
	free    int // turns that may begin
	waitMax int
	queues  map[string]*queue // of users that wait
	ring    []*queue          // the same, the next first
}

// queue is the goroutines of one user that wait.
type queue struct {
	user    string
	waiters []chan struct{} // closed when the turn is the waiter's
}

// New returns a gate for so many turns at a time, for which at most waitMax goroutines of one user wait.
func New(turns, waitMax int) *Gate {
	return &Gate{free: turns, waitMax: waitMax, queues: map[string]*queue{}}
}

// TryAcquire takes a turn if one is free and nothing waits for it. It reports whether it did.
func (g *Gate) TryAcquire() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tryLocked()
}

func (g *Gate) tryLocked() bool {
	if g.free == 0 || len(g.ring) > 0 {
		return false
	}
	g.free--
	return true
}

// Acquire waits for a turn, which ends with Release. Errors: ErrCrowded; ctx's.
func (g *Gate) Acquire(ctx context.Context, user string) error { return g.acquire(ctx, user, false) }

// AcquireFirst is Acquire for a goroutine for which others wait that are not known to the gate: it gets the user's next
// turn, however many goroutines of the user wait. Errors: ctx's.
func (g *Gate) AcquireFirst(ctx context.Context, user string) error {
	return g.acquire(ctx, user, true)
}

func (g *Gate) acquire(ctx context.Context, user string, first bool) error {
	g.mu.Lock()
	if g.tryLocked() {
		g.mu.Unlock()
		return nil
	}
	q := g.queues[user]
	if q == nil {
		q = &queue{user: user}
		g.queues[user], g.ring = q, append(g.ring, q)
	}
	if !first && len(q.waiters) >= g.waitMax {
		g.mu.Unlock()
		return ErrCrowded
	}
	ready := make(chan struct{})
	if first {
		q.waiters = slices.Insert(q.waiters, 0, ready)
	} else {
		q.waiters = append(q.waiters, ready)
	}
	g.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(q.waiters, ready)
	if i < 0 { // the turn has come meanwhile
		g.releaseLocked()
		return context.Cause(ctx)
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if len(q.waiters) == 0 {
		delete(g.queues, q.user)
		g.ring = slices.DeleteFunc(g.ring, func(x *queue) bool { return x == q })
	}
	return context.Cause(ctx)
}

// Awaited reports whether anything waits for a turn.
func (g *Gate) Awaited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ring) > 0
}

// Release ends a turn.
func (g *Gate) Release() {
	g.mu.Lock()
	g.releaseLocked()
	g.mu.Unlock()
}

func (g *Gate) releaseLocked() {
	if len(g.ring) == 0 {
		g.free++
		return
	}
	q := g.ring[0]
	close(q.waiters[0])
	g.ring = g.ring[1:]
	if q.waiters = q.waiters[1:]; len(q.waiters) > 0 {
		g.ring = append(g.ring, q)
	} else {
		delete(g.queues, q.user)
	}
}
