package blockstore

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/timing"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// lists stores the block store's lists under the lock that makes this process the node: no other process can change them, and this
// one no longer after losing the lock. It implements blobfs.Lists.
type lists struct{ s *Service }

// listTimeout bounds one read or write. The store retries writes itself.
const listTimeout = 5 * time.Second

// listRetry is the pause before a read is repeated.
const listRetry = 500 * time.Millisecond

// untilAnswered repeats a read until it is answered or ctx ends: a node that starts during an outage reads its lists when the outage is
// over.
func untilAnswered(ctx context.Context, ask func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, listTimeout)
		err := ask(limited)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, metaapi.ErrNotReady) {
			return err
		}
		timing.Sleep(ctx, listRetry)
	}
}

// Load implements blobfs.Lists.
func (l lists) Load(ctx context.Context, path string) ([]byte, uint64, error) {
	var f metaapi.File
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		f, err = l.s.Meta.Client.Get(ctx, path)
		return err
	})
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	return f.Data, f.Generation, err
}

// Save implements blobfs.Lists.
func (l lists) Save(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	gen, err := l.s.Meta.Client.Set(ctx, path, data, gen, l.s.Locks.Guard())
	switch {
	case errors.Is(err, metaapi.ErrDiskFull):
		err = errors.Join(blobfs.ErrDiskFull, err)
	case errors.Is(err, metaapi.ErrStale): // another process has the lock, or will have it
		err = errors.Join(blobfs.ErrFenced, err)
	}
	return gen, err
}

// Delete implements blobfs.Lists.
func (l lists) Delete(ctx context.Context, path string, gen uint64) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return l.s.Meta.Client.Delete(ctx, path, gen, l.s.Locks.Guard())
}

// List implements blobfs.Lists.
func (l lists) List(ctx context.Context, dir string) ([]string, error) {
	var names []string
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		names, err = l.s.Catalog.List(ctx, dir)
		return err
	})
	return names, err
}
