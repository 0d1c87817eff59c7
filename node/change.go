package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// changeAttempt is how long one write to the namespace may take before it is looked
// at again. Longer than any disk that still works needs.
const changeAttempt = 30 * time.Second

// change makes a change of the catalog, one at a time. Once begun it is finished,
// whatever becomes of the caller: namespace and tablet server would tell different
// tables otherwise, and what was written to a table that only one of them knows is
// lost. A caller whose ctx ends first is told that its time is up; the change goes
// on, under the node's context. In a cluster with certificates the master's node makes
// it, and only if who asks still may when it is its turn: asMaster.
func (n *Node) change(ctx context.Context, a asked, do func(ctx context.Context) error) error {
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: "the deadline passed while other changes of the schema were made",
			Details: map[string]any{"executed": 0}}
	case <-n.ctx.Done():
		return metaapi.ErrClosed
	}
	if n.ctx.Err() != nil { // select picks any that is ready
		<-n.changing
		return metaapi.ErrClosed
	}
	done := make(chan error, 1)
	go func() { // at most one: it holds n.changing
		defer func() { <-n.changing }()
		err := n.asMaster(n.ctx, a, do)
		if err != nil && ctx.Err() != nil {
			n.log.Warn("a change of the schema whose caller has left failed", "error", err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return rpc.Errorf(rpc.CodeDeadlineExceeded, "the deadline passed while the schema is changed; the change goes on")
	}
}

// endChanges lets the running change finish until ctx ends, then gives it up, and
// lets none begin. The next start takes from the namespace what was done.
func (n *Node) endChanges(ctx context.Context) {
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		n.cancel()
		n.changing <- struct{}{}
	}
	n.cancel()
	<-n.changing
}

// set is the namespace's Set, but knows the outcome: it repeats a write of unknown fate,
// which at one generation happens once at most. The error is the namespace's, and
// metaapi.ErrOutcomeUnknown only when ctx ends or the session is over.
func (c *catalog) set(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.setBy(ctx, path, data, gen, c.meta.Set)
}

// setFor is set for a user, in whose share of the lock service the file counts. Without owner it is the cluster's.
func (c *catalog) setFor(ctx context.Context, owner, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.setBy(ctx, path, data, gen, func(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
		return c.meta.SetGuarded(ctx, path, data, gen, metaapi.SetOptions{Owner: owner})
	})
}

type setFunc = func(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)

func (c *catalog) setBy(ctx context.Context, path string, data []byte, gen uint64, set setFunc) (made uint64, err error) {
	err = settle(ctx, func(ctx context.Context, again bool) error {
		made, err = set(ctx, path, data, gen)
		if !again || !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
		f, getErr := c.meta.Get(ctx, path)
		switch {
		case getErr == nil && string(f.Data) == string(data): // an earlier try came through
			made = f.Generation
			return nil
		case getErr == nil || errors.Is(getErr, metaapi.ErrNotFound):
			return err
		}
		return getErr
	})
	return made, err
}

// remove is the namespace's Delete in the same way.
func (c *catalog) remove(ctx context.Context, path string, gen uint64) error {
	return settle(ctx, func(ctx context.Context, again bool) error {
		err := c.meta.Delete(ctx, path, gen)
		if again && errors.Is(err, metaapi.ErrNotFound) {
			return nil // an earlier try came through
		}
		return err
	})
}

// settle does try, and if its fate is unknown again until it is known. Then only
// what the namespace itself answers counts: a full disk says nothing of the try
// before.
func settle(ctx context.Context, try func(ctx context.Context, again bool) error) error {
	err := attempt(ctx, func(ctx context.Context) error { return try(ctx, false) })
	if !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		return err
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		again := attempt(ctx, func(ctx context.Context) error { return try(ctx, true) })
		if again == nil || errors.Is(again, metaapi.ErrGeneration) || errors.Is(again, metaapi.ErrTooLarge) {
			return again
		}
		if ctx.Err() != nil || errors.Is(again, metaapi.ErrClosed) {
			return fmt.Errorf("%w; tried again: %w", err, again)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func attempt(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeAttempt)
	defer cancel()
	return f(ctx)
}
