package node

import (
	"context"
	"sync"
	"sync/atomic"
)

// lifecycle is how far a node has started, or why it has failed. It fails once.
type lifecycle struct {
	waiting func(what string) // see Config.Waiting
	failed  func(err error)   // called before done is closed by an error
	stage   atomic.Pointer[string]
	serving atomic.Bool // while the node serves data
	once    sync.Once
	done    chan struct{}
	err     error // after done is closed
}

// enter records what the start waits for.
func (l *lifecycle) enter(stage string) {
	l.stage.Store(&stage)
	if l.waiting != nil {
		l.waiting(stage)
	}
}

// fail stops the node after an error that prevents it from acknowledging anything; nil after Close.
func (l *lifecycle) fail(err error) {
	l.once.Do(func() {
		l.serving.Store(false)
		if err != nil && l.failed != nil {
			l.failed(err)
		}
		l.err = err
		close(l.done)
	})
}

// failure returns why the node failed; nil if it has not, or was closed.
func (l *lifecycle) failure() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// whileRunning returns a context that ends with ctx, or when the node has failed.
func (l *lifecycle) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
