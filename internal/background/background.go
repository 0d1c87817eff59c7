// Package background runs the goroutines of a component, so that its Close can cancel and await them.
package background

import (
	"context"
	"sync"
)

// Group is the goroutines of one component. It is safe for concurrent use.
type Group struct {
	ctx    context.Context // canceled by Stop
	cancel context.CancelFunc

	// mu guards stopped. Never held across I/O.
	mu      sync.Mutex
	stopped bool
	work    sync.WaitGroup
}

// New returns an empty group.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns the context that Stop cancels.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f in a goroutine of the group. It returns false, and does not run f, after Stop.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.work.Go(f)
	return true
}

// Stopped reports whether Stop was called.
func (g *Group) Stopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// Stop cancels the context and accepts no more goroutines. It does not wait.
func (g *Group) Stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.cancel()
}

// Wait waits until all goroutines have ended.
func (g *Group) Wait() { g.work.Wait() }
