package client

import (
	"context"
	"sync"
)

// lifetime is the time from Open to Close, and the goroutines that must end by then.
type lifetime struct {
	ctx    context.Context // cancelled by end
	cancel context.CancelFunc

	// mu guards the field in it.
	mu struct {
		sync.Mutex
		closed bool
	}
	background sync.WaitGroup
}

// begin starts the lifetime, which outlives ctx.
func (l *lifetime) begin(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
}

// end cancels the context. No goroutine starts after it.
func (l *lifetime) end() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.cancel()
}

// wait waits for the goroutines.
func (l *lifetime) wait() { l.background.Wait() }

func (l *lifetime) closed() bool { return l.ctx.Err() != nil }

// spawn runs f on a goroutine that wait joins. It reports false after end.
func (l *lifetime) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false
	}
	l.background.Go(f)
	return true
}
