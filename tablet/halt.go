package tablet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
)

// A halt is a time in which a tablet takes no writes, because it is being unloaded,
// split or merged. Writers that come meanwhile wait for its end and then look for
// the row's tablet anew.
type halt struct {
	over chan struct{}
}

// overHalt is the halt of a tablet that was taken out of service.
var overHalt = func() *halt {
	h := &halt{over: make(chan struct{})}
	close(h.over)
	return h
}()

// errHalted means that nothing was done because the tablet takes no writes now.
var errHalted = errors.New("tablet takes no writes for a moment")

// errGone is what a read gets of a tablet that was taken out of service after it was
// looked up.
var errGone = fmt.Errorf("tablet was taken out of service: %w", api.ErrNotServing)

// halt ends the writes of t and returns when all that were accepted are visible. It
// must be followed by resume or retire, and there is one at a time: see claim. If ctx ends first, writes go on,
// and the error is ctx's cause.
//
// A writer holds a latch from before it looks whether the tablet is halted until its
// commit is done. So when each latch was held once, nobody is left who did not look
// or whose commit is under way. While the tablet has no latches nobody holds one, and who has them made
// looks later.
func (t *Tablet) halt(ctx context.Context) error {
	t.mu.Lock()
	if !t.mu.gone {
		t.halted.Store(&halt{over: make(chan struct{})})
	}
	t.mu.Unlock()
	t.server.signalRoom() // a writer that waits for memory with a latch in hand lets go of it
	if err := t.latches.passAll(ctx); err != nil {
		t.resume()
		return err
	}
	return nil
}

// haltSoon is halt that waits for writes under way no longer than writers wait for it: the commit log may make no
// progress, and then nothing has changed. The error is ctx's, or *api.OverloadedError.
func (t *Tablet) haltSoon(ctx context.Context) error {
	within, cancel := context.WithTimeoutCause(ctx, t.server.cfg.OverloadWait, t.server.logStalled(t))
	defer cancel()
	return t.halt(within)
}

// logStalled returns the error of an operation on t that would have to wait for the commit log.
func (s *Server) logStalled(t *Tablet) error {
	return &api.OverloadedError{
		Reason:     fmt.Sprintf("the commit log has not finished the writes of tablet %d under way within %v", t.id, s.cfg.OverloadWait),
		RetryAfter: overloadRetry,
	}
}

// resume lets writes in again, unless the tablet was taken out of service.
func (t *Tablet) resume() {
	t.mu.Lock()
	h := t.halted.Load()
	if !t.mu.gone {
		t.halted.Store(nil)
	}
	t.mu.Unlock()
	h.end()
}

// retire takes t out of service for writers, for ever. Those that wait look for the
// row's tablet anew, so what is served in its place must be in the tables by then.
func (t *Tablet) retire() {
	t.mu.Lock()
	h := t.halted.Load()
	t.mu.gone = true
	t.halted.Store(overHalt)
	t.mu.Unlock()
	h.end()
}

func (h *halt) end() {
	if h != nil && h != overHalt {
		close(h.over)
	}
}

// waitOut waits until the halt of t, if there is one, is over. since is when the
// caller began to wait, and is set by the first call. Errors: api.ErrNotServing when
// OverloadWait has passed, ErrClosed, ctx's.
func (s *Server) waitOut(ctx context.Context, t *Tablet, since *time.Time) error {
	h := t.halted.Load()
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
	case <-h.over:
		return nil
	case <-s.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("tablet %d takes no writes since %v: %w", t.id, s.cfg.OverloadWait, api.ErrNotServing)
	}
}

// claim makes the caller the only one who unloads, splits or merges t. The error is
// ctx's, or errGone.
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

// errInterrupted ends a merging or major compaction that stands in the way of a
// split, a merge or an unloading.
var errInterrupted = errors.New("compaction interrupted")

// interruptible returns a context that ends with ctx or with the next call of
// stopMerging. mergeMu is held; done must be called before it is released.
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

// stopMerging ends the tablet's merging or major compaction, if one runs, and holds
// mergeMu when it returns.
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
