package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/latch"
)

// writeFence orders a tablet's writes. Latches order those of a row. While the fence is up, the
// tablet accepts no writes because it is being unloaded, split or merged, or rows are being cleared: writers wait until it is
// lifted and then look up the row's tablet again.
type writeFence struct {
	views   *viewSet
	memory  *budget.Writes
	latches latch.Stripes

	// raised is not nil while the tablet accepts no writes.
	raised atomic.Pointer[raisedFence]

	// claimed has capacity 1. It holds a value while the tablet is unloaded, split or merged, or rows are cleared.
	claimed chan struct{}

	// mu guards gone and changes of raised. Never held across I/O.
	mu   sync.Mutex
	gone bool // permanently out of service; see retire
}

// raisedFence is one fence, from when it is raised until it is lifted.
type raisedFence struct {
	lifted chan struct{}
}

// liftedFence is the fence of a tablet that was taken out of service.
var liftedFence = func() *raisedFence {
	h := &raisedFence{lifted: make(chan struct{})}
	close(h.lifted)
	return h
}()

// errFenced means that nothing was done because the tablet accepts no writes now.
var errFenced = errors.New("tablet writes are fenced")

// errGone is the error of a read whose tablet was taken out of service after it was looked up.
var errGone = fmt.Errorf("tablet was taken out of service: %w", api.ErrNotServing)

// raise fences writes and returns when all accepted ones are visible. The caller must call lift or
// retire afterwards, and must hold the claim, so that there is one fence at a time. If ctx ends
// first, the fence is lifted, and the error is ctx's cause.
//
// A writer holds a latch from before it checks the fence until its commit is done. So once each
// latch has been free, every writer that did not see the fence has finished. A tablet whose latches
// are not allocated has no such writer, and a writer that allocates them checks the fence later.
func (f *writeFence) raise(ctx context.Context) error {
	f.mu.Lock()
	if !f.gone {
		f.raised.Store(&raisedFence{lifted: make(chan struct{})})
	}
	f.mu.Unlock()
	f.memory.Signal() // wake writers that wait for memory while holding a latch, so that they release it
	if err := f.latches.PassAll(ctx); err != nil {
		f.lift()
		return err
	}
	return nil
}

// raiseSoon is raise that waits for pending writes at most for the given time, as long as writers wait
// for the fence. The commit log may make no progress; then nothing has changed. The error is ctx's, or
// stalled.
func (f *writeFence) raiseSoon(ctx context.Context, wait time.Duration, stalled error) error {
	within, cancel := context.WithTimeoutCause(ctx, wait, stalled)
	defer cancel()
	return f.raise(within)
}

// logStalled returns the error of an operation on t that would have to wait for the commit log.
func (s *Server) logStalled(t *Tablet) error {
	return &api.OverloadedError{
		Reason:     fmt.Sprintf("commit log did not finish pending writes of tablet %d within %v", t.id, s.cfg.OverloadWait),
		RetryAfter: overloadRetry,
	}
}

// lift lifts the fence, unless the tablet was taken out of service.
func (f *writeFence) lift() {
	f.mu.Lock()
	h := f.raised.Load()
	if !f.gone {
		f.raised.Store(nil)
	}
	f.mu.Unlock()
	h.lift()
}

// retire takes the tablet out of service for writers permanently. Waiting writers look up the row's
// tablet again, so its replacement must be in the tables by then.
func (f *writeFence) retire() {
	f.mu.Lock()
	h := f.raised.Load()
	f.gone = true
	f.raised.Store(liftedFence)
	f.mu.Unlock()
	h.lift()
}

func (h *raisedFence) lift() {
	if h != nil && h != liftedFence {
		close(h.lifted)
	}
}

// waitForFence waits until the fence of t, if any, is lifted. since is when the caller began to
// wait; the first call sets it. Errors: api.ErrNotServing when OverloadWait has passed, ErrClosed,
// ctx's.
func (as For) waitForFence(ctx context.Context, t *Tablet, since *time.Time) error {
	s, h := as.s, t.fence.raised.Load()
	if h == nil {
		return nil
	}
	defer as.trace.Since(trace.Fence, as.trace.Now())
	now := time.Now()
	if since.IsZero() {
		*since = now
	}
	timer := time.NewTimer(s.cfg.OverloadWait - now.Sub(*since))
	defer timer.Stop()
	select {
	case <-h.lifted:
		return nil
	case <-s.life.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("tablet %d has accepted no writes for %v: %w", t.id, s.cfg.OverloadWait, api.ErrNotServing)
	}
}

// claim gives the caller the exclusive right to unload, split or merge the tablet. The error is
// ctx's, or errGone.
func (f *writeFence) claim(ctx context.Context) error {
	select {
	case f.claimed <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.mu.Lock()
	gone := f.gone
	f.mu.Unlock()
	if gone || f.views.isUnloaded() {
		f.unclaim()
		return errGone
	}
	return nil
}

func (f *writeFence) unclaim() { <-f.claimed }
