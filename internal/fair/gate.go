// Package fair lets a few goroutines at a time do long work, and takes the users that they work for in
// turn: a user with many requests delays only those. Memory is shared among users in the same way, and so are the steps in which
// short requests are handled (Pacer).
package fair

import (
	"context"
	"errors"
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
	waiters rotation
}

// New returns a gate for so many turns at a time, for which at most waitMax goroutines of one user wait.
func New(turns, waitMax int) *Gate { return &Gate{free: turns, waitMax: waitMax} }

// TryAcquire takes a turn if one is free and nothing waits for it. It reports whether it did.
func (g *Gate) TryAcquire() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tryLocked()
}

func (g *Gate) tryLocked() bool {
	if g.free == 0 || len(g.waiters.ring) > 0 {
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
	if !first && g.waiters.waiting(user) >= g.waitMax {
		g.mu.Unlock()
		return ErrCrowded
	}
	ready := g.waiters.add(user, first)
	g.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waiters.remove(user, ready) { // the turn has come meanwhile
		g.releaseLocked()
	}
	return context.Cause(ctx)
}

// Awaited reports whether anything waits for a turn.
func (g *Gate) Awaited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiters.ring) > 0
}

// Release ends a turn.
func (g *Gate) Release() {
	g.mu.Lock()
	g.releaseLocked()
	g.mu.Unlock()
}

func (g *Gate) releaseLocked() {
	if len(g.waiters.ring) == 0 {
		g.free++
		return
	}
	g.waiters.next()
}
