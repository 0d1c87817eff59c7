package tablet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
)

// writeFence is a write fence: while it is up, the tablet accepts no writes because it is being
// unloaded, split or merged. Writers wait until it is lifted and then look up the row's tablet
// again.
type writeFence struct {
	lifted chan struct{}
}

// liftedFence is the fence of a tablet that was taken out of service.
var liftedFence = func() *writeFence {
	h := &writeFence{lifted: make(chan struct{})}
	close(h.lifted)
	return h
}()

// errFenced means that nothing was done because the tablet accepts no writes now.
var errFenced = errors.New("tablet writes are fenced")

// errGone is the error of a read whose tablet was taken out of service after it was looked up.
var errGone = fmt.Errorf("tablet was taken out of service: %w", api.ErrNotServing)

// fenceWrites fences writes to t and returns when all accepted ones are visible. The caller must
// call liftFence or retire afterwards, and must hold the claim, so that there is one fence at a
// time. If ctx ends first, the fence is lifted, and the error is ctx's cause.
//
// A writer holds a latch from before it checks the fence until its commit is done. So once each
// latch has been free, every writer that did not see the fence has finished. A tablet whose latches
// are not allocated has no such writer, and a writer that allocates them checks the fence later.
func (t *Tablet) fenceWrites(ctx context.Context) error {
	t.mu.Lock()
	if !t.mu.gone {
		t.fence.Store(&writeFence{lifted: make(chan struct{})})
	}
	t.mu.Unlock()
	t.server.writeMemory.Signal() // wake writers that wait for memory while holding a latch, so that they release it
	if err := t.latches.PassAll(ctx); err != nil {
		t.liftFence()
		return err
	}
	return nil
}

// fenceWritesSoon is fenceWrites that waits for pending writes at most for OverloadWait, as long as
// writers wait for the fence. The commit log may make no progress; then nothing has changed. The
// error is ctx's, or *api.OverloadedError.
func (t *Tablet) fenceWritesSoon(ctx context.Context) error {
	within, cancel := context.WithTimeoutCause(ctx, t.server.cfg.OverloadWait, t.server.logStalled(t))
	defer cancel()
	return t.fenceWrites(within)
}

// logStalled returns the error of an operation on t that would have to wait for the commit log.
func (s *Server) logStalled(t *Tablet) error {
	return &api.OverloadedError{
		Reason:     fmt.Sprintf("commit log did not finish pending writes of tablet %d within %v", t.id, s.cfg.OverloadWait),
		RetryAfter: overloadRetry,
	}
}

// liftFence lifts the fence, unless the tablet was taken out of service.
func (t *Tablet) liftFence() {
	t.mu.Lock()
	h := t.fence.Load()
	if !t.mu.gone {
		t.fence.Store(nil)
	}
	t.mu.Unlock()
	h.lift()
}

// retire takes t out of service for writers permanently. Waiting writers look up the row's tablet
// again, so its replacement must be in the tables by then.
func (t *Tablet) retire() {
	t.mu.Lock()
	h := t.fence.Load()
	t.mu.gone = true
	t.fence.Store(liftedFence)
	t.mu.Unlock()
	h.lift()
}

func (h *writeFence) lift() {
	if h != nil && h != liftedFence {
		close(h.lifted)
	}
}

// waitForFence waits until the fence of t, if any, is lifted. since is when the caller began to
// wait; the first call sets it. Errors: api.ErrNotServing when OverloadWait has passed, ErrClosed,
// ctx's.
func (s *Server) waitForFence(ctx context.Context, t *Tablet, since *time.Time) error {
	h := t.fence.Load()
	if h == nil {
		return nil
	}
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

// claim gives the caller the exclusive right to unload, split or merge t. The error is ctx's, or
// errGone.
func (t *Tablet) claim(ctx context.Context) error {
	select {
	case t.claimed <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.mu.Lock()
	gone := t.mu.gone || t.mu.current == nil
	t.mu.Unlock()
	if gone {
		t.unclaim()
		return errGone
	}
	return nil
}

func (t *Tablet) unclaim() { <-t.claimed }

// errInterrupted ends a merging or major compaction that blocks a split, a merge or an unload.
var errInterrupted = errors.New("compaction interrupted")

// interruptible returns a context that ends with ctx or with the next call of stopMerging. mergeMu
// is held; done must be called before it is released.
func (t *Tablet) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	t.mu.interrupt = cancel
	if t.mu.interrupts > 0 {
		cancel(errInterrupted)
	}
	t.mu.Unlock()
	return ctx, func() {
		t.mu.Lock()
		t.mu.interrupt = nil
		t.mu.Unlock()
		cancel(nil)
	}
}

// stopMerging ends the tablet's running merging or major compaction, if any, and returns with
// mergeMu held.
func (t *Tablet) stopMerging() {
	t.mu.Lock()
	t.mu.interrupts++
	if t.mu.interrupt != nil {
		t.mu.interrupt(errInterrupted)
	}
	t.mu.Unlock()
	t.mergeMu.Lock()
	t.mu.Lock()
	t.mu.interrupts--
	t.mu.Unlock()
}
