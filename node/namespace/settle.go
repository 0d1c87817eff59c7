package namespace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/steledb/stele/internal/timing"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// ChangeAttempt bounds one write to the namespace, after which its outcome is looked up. A working disk needs less.
const ChangeAttempt = 30 * time.Second

// Set is the namespace's Set with a known outcome: it repeats a write whose outcome is unknown, which takes effect at most once
// at one generation. The error is that of the namespace, and metaapi.ErrOutcomeUnknown only if ctx ends, the session is over, or
// others have changed the file meanwhile: before the write, which is then not done, or after it. In this last case the error is also a
// metaapi.ErrGeneration.
func (c *Catalog) Set(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.SetWith(ctx, path, data, gen, MastershipIn(ctx).options())
}

// SetFor is Set for a file that counts against a user's share of the lock service. Without an owner it counts for the cluster.
func (c *Catalog) SetFor(ctx context.Context, owner, path string, data []byte, gen uint64) (made uint64, err error) {
	return c.SetWith(ctx, path, data, gen, metaapi.SetOptions{Owner: owner})
}

// SetWith is Set with options.
func (c *Catalog) SetWith(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (made uint64, err error) {
	w := write{c.Meta, path, data, gen, o}
	err = Settle(ctx, func(ctx context.Context, again bool) error {
		if made, err = w.once(ctx, again); !again || !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
		f, getErr := c.Meta.Get(ctx, path)
		switch {
		case getErr == nil && string(f.Data) == string(data): // an earlier attempt succeeded
			made = f.Generation
			return nil
		case getErr == nil || errors.Is(getErr, metaapi.ErrNotFound):
			return undecided(err)
		}
		return getErr
	})
	return made, err
}

// write is a Set.
type write struct {
	files Files
	path  string
	data  []byte
	gen   uint64
	o     metaapi.SetOptions
}

// once makes one attempt. One that creates a file is made under AbsentSince, so that it does not create the file again if it arrives
// after the caller gave it up and the file was deleted.
func (w *write) once(ctx context.Context, again bool) (uint64, error) {
	if w.gen != 0 || w.o.From != "" { // a rename has the generation of the former file
		return w.files.SetGuarded(ctx, w.path, w.data, w.gen, w.o)
	}
	if w.o.AbsentSince == 0 {
		st, err := w.files.Stat(ctx, path.Dir(w.path))
		if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
			return 0, err
		}
		w.o.AbsentSince = max(st.Generation, 1)
	}
	for {
		made, err := w.files.SetGuarded(ctx, w.path, w.data, 0, w.o)
		var differs *metaapi.GenerationError
		if !errors.As(err, &differs) || differs.Removed <= w.o.AbsentSince {
			return made, err
		}
		if again { // what was removed may be what an earlier attempt created
			return 0, undecided(err)
		}
		w.o.AbsentSince = differs.Removed
	}
}

// Remove is the namespace's Delete with a known outcome, as Set is. Of a file at any generation it deletes the one that exists when it
// is called: an attempt that arrives late deletes none that was created later.
func (c *Catalog) Remove(ctx context.Context, path string, gen uint64) error {
	return c.RemoveWith(ctx, path, gen, MastershipIn(ctx).options())
}

// RemoveWith is Remove with options.
func (c *Catalog) RemoveWith(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	instance := uint64(0)
	return Settle(ctx, func(ctx context.Context, again bool) error {
		for {
			at := gen
			if gen == metaapi.AnyGeneration {
				f, err := c.Meta.Get(ctx, path)
				if again && err == nil && instance != 0 && f.Instance != instance {
					return nil // the file that existed before is gone
				}
				if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
					return err
				}
				at, instance = f.Generation, max(instance, f.Instance) // 0: it must not exist
			}
			err := c.Meta.DeleteGuarded(ctx, path, at, o)
			switch {
			case again && errors.Is(err, metaapi.ErrNotFound):
				return nil // an earlier attempt succeeded
			case again && gen != metaapi.AnyGeneration && errors.Is(err, metaapi.ErrGeneration): // it was written, or deleted and created again
				return undecided(err)
			case errors.Is(err, metaapi.ErrOutcomeUnknown): // it may have been deleted by this attempt, whatever a repetition has found
				return err
			case gen == metaapi.AnyGeneration && errors.Is(err, metaapi.ErrGeneration):
				continue // it was written, or deleted, meanwhile
			}
			return err
		}
	})
}

// undecided makes the error of a repeated attempt, for which the file is not at the expected generation, one of unknown outcome: an
// earlier attempt may have succeeded before others changed the file. A client that took it for one of a change that was not made would
// repeat, for example, the drop of a table that was created again.
func undecided(err error) error { return fmt.Errorf("%w: %w", metaapi.ErrOutcomeUnknown, err) }

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
