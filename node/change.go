package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// changeAttempt bounds one write to the namespace, after which its outcome is looked up. A working disk needs less.
const changeAttempt = 30 * time.Second

// change runs a change of the catalog. Changes run one at a time. A change that has begun is finished even if the caller leaves:
// otherwise namespace and tablet servers could disagree on the tables, and writes to a table that only one of them knows would be
// lost. A caller whose ctx ends first gets a deadline error, and the change continues under the node's context. In a cluster with
// certificates the master's node makes the change, if the caller is still authorized when it is its turn: see asMaster.
func (n *Node) change(ctx context.Context, a asked, do func(ctx context.Context) error) error {
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: "the deadline passed while other changes of the schema were made",
			Details: map[string]any{"executed": 0}}
	case <-n.ctx.Done():
		return metaapi.ErrClosed
	}
	if n.ctx.Err() != nil { // select chooses at random among ready cases
		<-n.changing
		return metaapi.ErrClosed
	}
	done := make(chan error, 1)
	go func() { // at most one at a time: it holds n.changing
		defer func() { <-n.changing }()
		err := n.asMaster(n.ctx, a, do)
		if err != nil && ctx.Err() != nil {
			n.log.Warn("schema change failed after its caller left", "err", err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return rpc.Errorf(rpc.CodeDeadlineExceeded, "the deadline passed while the schema is changed; the change continues")
	}
}

// endChanges waits for the running change until ctx ends, then cancels it, and prevents new ones. The next start reads the
// outcome from the namespace.
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

// set is the namespace's Set with a known outcome: it repeats a write whose outcome is unknown, which takes effect at most once
// at one generation. The error is that of the namespace, and metaapi.ErrOutcomeUnknown only if ctx ends or the session is over.
func (c *catalog) set(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.setBy(ctx, path, data, gen, c.meta.Set)
}

// setFor is set for a file that counts against a user's share of the lock service. Without an owner it counts for the cluster.
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
		case getErr == nil && string(f.Data) == string(data): // an earlier attempt succeeded
			made = f.Generation
			return nil
		case getErr == nil || errors.Is(getErr, metaapi.ErrNotFound):
			return err
		}
		return getErr
	})
	return made, err
}

// remove is the namespace's Delete with a known outcome, as set is.
func (c *catalog) remove(ctx context.Context, path string, gen uint64) error {
	return settle(ctx, func(ctx context.Context, again bool) error {
		err := c.meta.Delete(ctx, path, gen)
		if again && errors.Is(err, metaapi.ErrNotFound) {
			return nil // an earlier attempt succeeded
		}
		return err
	})
}

// settle calls try, and repeats it while the outcome is unknown. In the repeats only answers of the namespace itself count: a full
// disk says nothing about the earlier attempt.
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
			return fmt.Errorf("%w; retried: %w", err, again)
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
