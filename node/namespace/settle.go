package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/timing"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// ChangeAttempt bounds one write to the namespace, after which its outcome is looked up. A working disk needs less.
const ChangeAttempt = 30 * time.Second

// Set is the namespace's Set with a known outcome: it repeats a write whose outcome is unknown, which takes effect at most once
// at one generation. The error is that of the namespace, and metaapi.ErrOutcomeUnknown only if ctx ends or the session is over.
func (c *Catalog) Set(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.setBy(ctx, path, data, gen, c.Meta.Set)
}

// SetFor is set for a file that counts against a user's share of the lock service. Without an owner it counts for the cluster.
func (c *Catalog) SetFor(ctx context.Context, owner, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.setBy(ctx, path, data, gen, func(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
		return c.Meta.SetGuarded(ctx, path, data, gen, metaapi.SetOptions{Owner: owner})
	})
}

type setFunc = func(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)

func (c *Catalog) setBy(ctx context.Context, path string, data []byte, gen uint64, set setFunc) (made uint64, err error) {
	err = Settle(ctx, func(ctx context.Context, again bool) error {
		made, err = set(ctx, path, data, gen)
		if !again || !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
		f, getErr := c.Meta.Get(ctx, path)
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

// Remove is the namespace's Delete with a known outcome, as set is.
func (c *Catalog) Remove(ctx context.Context, path string, gen uint64) error {
	return Settle(ctx, func(ctx context.Context, again bool) error {
		err := c.Meta.Delete(ctx, path, gen)
		if again && errors.Is(err, metaapi.ErrNotFound) {
			return nil // an earlier attempt succeeded
		}
		return err
	})
}

// Settle calls try, and repeats it while the outcome is unknown. In the repeats only answers of the namespace itself count: a full
// disk does not settle the earlier attempt.
func Settle(ctx context.Context, try func(ctx context.Context, again bool) error) error {
	err := attempt(ctx, func(ctx context.Context) error { return try(ctx, false) })
	if !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		return err
	}
	pauses := timing.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for ; ; pauses.Sleep(ctx) {
		again := attempt(ctx, func(ctx context.Context) error { return try(ctx, true) })
		if again == nil || errors.Is(again, metaapi.ErrGeneration) || errors.Is(again, metaapi.ErrTooLarge) {
			return again
		}
		if ctx.Err() != nil || errors.Is(again, metaapi.ErrClosed) {
			return fmt.Errorf("%w; retried: %w", err, again)
		}
	}
}

func attempt(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, ChangeAttempt)
	defer cancel()
	return f(ctx)
}
