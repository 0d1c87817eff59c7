package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/identity"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// openStore opens the node's part of the block store.
func (n *Node) openStore(ctx context.Context) error {
	for {
		err := n.locks.UntilLeader(ctx, n.blobMembers.Read)
		if err == nil {
			break
		}
		if ctx.Err() != nil || n.meta.Current().Err() == nil {
			return err
		}
		n.log.Warn("lock service session lost while opening the block store; opening another", "err", err)
		if err := n.locks.Hold(ctx); err != nil {
			return err
		}
	}
	b := n.cfg.budget()
	store, err := blobfs.OpenIn(blobfs.Cluster{Membership: n.blobMembers, Lists: serverLists{n}, Logs: replog.Config{WindowBytes: int(b.LogWindow)},
		Repair: repair.Config{Workers: b.Copies}, WindowBytes: b.BlobWindow}, blobfs.Config{
		Folders: identity.BlobFolders(n.cfg.DataDirs), Logger: n.log.With("part", "blobfs"), ReserveBytes: n.disks.Reserve(), ExtentBytes: n.cfg.ExtentBytes,
		MasterKeys: n.masterKeys,
	})
	if err != nil {
		return err
	}
	n.store.Store(store)
	n.background.Go(n.blobMembers.Follow)
	return nil
}

func (n *Node) closeStore() (err error) {
	if store := n.store.Load(); store != nil {
		err = store.Close()
	}
	n.blobMembers.Close()
	return err
}

// servePeer returns the block store that this node offers to others.
func (n *Node) servePeer() (blobapi.Peer, error) {
	if store := n.store.Load(); store != nil {
		return store.Peer(), nil
	}
	return nil, fmt.Errorf("%w: %s", blobapi.ErrUnreachable, n.unready())
}

// retiredFolders returns which of the block store's directories have failed.
func (n *Node) retiredFolders() map[string]bool {
	retired := map[string]bool{}
	if store := n.store.Load(); store != nil {
		for _, f := range store.Stats().Folders {
			retired[f.Path] = f.Retired != nil
		}
	}
	return retired
}

// serverLists stores the block store's lists under the lock that makes this process the node: no other process can change them, and this
// one no longer after losing the lock. It implements blobfs.Lists.
type serverLists struct{ n *Node }

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
func (l serverLists) Load(ctx context.Context, path string) ([]byte, uint64, error) {
	var f metaapi.File
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		f, err = l.n.meta.Client.Get(ctx, path)
		return err
	})
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	return f.Data, f.Generation, err
}

// Save implements blobfs.Lists.
func (l serverLists) Save(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	gen, err := l.n.meta.Client.Set(ctx, path, data, gen, l.n.locks.Guard())
	switch {
	case errors.Is(err, metaapi.ErrDiskFull):
		err = errors.Join(blobfs.ErrDiskFull, err)
	case errors.Is(err, metaapi.ErrStale): // another process has the lock, or will have it
		err = errors.Join(blobfs.ErrFenced, err)
	}
	return gen, err
}

// Delete implements blobfs.Lists.
func (l serverLists) Delete(ctx context.Context, path string, gen uint64) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return l.n.meta.Client.Delete(ctx, path, gen, l.n.locks.Guard())
}

// List implements blobfs.Lists.
func (l serverLists) List(ctx context.Context, dir string) ([]string, error) {
	var names []string
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		names, err = l.n.catalog.List(ctx, dir)
		return err
	})
	return names, err
}
