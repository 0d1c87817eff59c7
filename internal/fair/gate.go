// Package fair shares a resource among users. Gate limits the number of goroutines that do long
// work and serves users round-robin, so a user with many requests delays only its own. Memory
// shares memory in a similar way.
package fair

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrCrowded means that the maximum number of goroutines already wait for the user.
var ErrCrowded = errors.New("too many requests of the user wait for their turn")

// Gate admits goroutines to turns. Waiting users get turns round-robin. The goroutines of one user
// get theirs in order of arrival, except for AcquireFirst.
type Gate struct {
	mu      sync.Mutex
	free    int // unused turns
	waitMax int
	queues  map[string]*queue // by user, of users with waiters
	ring    []*queue          // the queues in order of their next turn
}

// queue is the waiting goroutines of one user.
type queue struct {
	user    string
	waiters []chan struct{} // closed when the turn is granted
}

// New returns a gate for the given number of concurrent turns. At most waitMax goroutines of one
// user may wait.
func New(turns, waitMax int) *Gate {
	return &Gate{free: turns, waitMax: waitMax, queues: map[string]*queue{}}
}

// TryAcquire starts a turn if one is free and no goroutine waits for it. It reports whether it did.
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

// Acquire waits for a turn, which Release ends. Errors: ErrCrowded; context.Cause(ctx).
func (g *Gate) Acquire(ctx context.Context, user string) error { return g.acquire(ctx, user, false) }

// AcquireFirst is Acquire for a goroutine on which others depend that the gate does not know of. It
// gets the user's next turn, ahead of the user's other waiters and regardless of their number.
// Errors: context.Cause(ctx).
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
	if i < 0 { // granted meanwhile
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

// Awaited reports whether any goroutine waits for a turn.
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
