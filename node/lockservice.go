package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/voter"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// openLockService opens the node's Raft group, if it has one, and its session with the group's leader.
func (n *Node) openLockService(ctx context.Context) error {
	n.life.enter("the lock service's log")
	founding, err := n.voter.Start(ctx)
	if err != nil {
		return err
	}
	n.life.enter("a leader of the lock service")
	if err := n.locks.Open(ctx); err != nil {
		return fmt.Errorf("wait for the lock service: %w", err)
	}
	n.catalog = namespace.Catalog{Meta: &n.meta}
	if founding {
		if err := n.locks.UntilLeader(ctx, func(ctx context.Context) error { return foundCluster(ctx, n) }); err != nil {
			return fmt.Errorf("found the cluster: %w", err)
		}
	}
	settle := func(ctx context.Context) error { return settleCluster(ctx, n) }
	for err = n.locks.UntilLeader(ctx, settle); errors.Is(err, metaapi.ErrNotFound); err = n.locks.UntilLeader(ctx, settle) {
		n.life.enter("the founder of the cluster")
		if err := timing.Sleep(ctx, foundingPoll); err != nil {
			return fmt.Errorf("wait for the cluster to be founded: %w", err)
		}
	}
	if err != nil {
		return err
	}
	n.confirmed.Store(true)
	n.life.enter("the lock of its own server file")
	if err := n.locks.Hold(ctx); err != nil {
		return err
	}
	if err := n.self.Change(func(f *identity.Folders) error { return f.Founded() }); err != nil {
		return err
	}
	n.members.Publish()
	return n.locks.UntilLeader(ctx, n.members.Register)
}

// foundCluster writes what makes the lock service that of a cluster. It may be repeated.
func foundCluster(ctx context.Context, n *Node) error {
	if n.security != nil { // first: other nodes wait for the cluster's file
		if err := n.catalog.FoundRights(ctx, time.Now()); err != nil {
			return err
		}
	}
	return n.catalog.Found(ctx, n.self.Cluster())
}

// settleCluster checks that the lock service is that of the node's cluster, and settles its epoch. It may be repeated. The error is an
// ErrNotFound if the cluster has not been founded.
func settleCluster(ctx context.Context, n *Node) error {
	cluster, err := n.catalog.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("read the cluster's id: %w", err)
	}
	if cluster.Name != n.self.Cluster() {
		return fmt.Errorf("the lock service belongs to cluster %s, but the data folders to cluster %s: use the folders of this cluster",
			cluster.Name, n.self.Cluster())
	}
	return n.voter.SettleEpoch(ctx, cluster)
}

// foundingPoll is the interval at which a node checks whether the cluster that it joins has been founded.
const foundingPoll = 50 * time.Millisecond

// closeLockService closes the session and the node's Raft group.
func (n *Node) closeLockService(ctx context.Context) error {
	n.meta.Close(ctx, n.log)
	if n.voter == nil {
		return nil
	}
	return n.voter.Stop()
}

// keepSession opens another session when the node's has expired, until the node closes. The tablet server ended with the lock, and
// its tablets are reassigned. Under the new lock the node starts as another server without tablets.
func (n *Node) keepSession() {
	for {
		select {
		case <-n.meta.Current().Done():
		case <-n.locks.ServerLock().Done():
		case <-n.ctx.Done():
			return
		}
		n.log.Warn("server lock lost: serving nothing until it is reacquired")
		if err := n.tabletServer.Restart(n.ctx); err != nil {
			if n.ctx.Err() == nil {
				n.life.fail(err)
			}
			return
		}
	}
}

// lockMessageTimeout closes a connection whose server stops in the middle of an answer.
const lockMessageTimeout = 10 * time.Second

// newVoter creates the node's voter, which accepts Raft's connections from claims.
func (n *Node) newVoter(claims net.Listener) *voter.Voter {
	cfg := voter.Config{
		Ctx: n.ctx, Log: n.log, Claims: claims, Self: &n.self, Catalog: &n.catalog, AddressOf: n.members.AddressOf, Addresses: n.members.Addresses, Members: n.members.Gossiped,
		Dial: connector{n}.toNode, DialAny: connector{n}.toAny,
		FS: n.cfg.FS, OpenLog: n.cfg.OpenRaftLog, SnapshotBytes: n.cfg.Tuning.SnapshotBytes, TrailingLogs: n.cfg.Tuning.TrailingLogs,
		QuotaOf: func(owner string) raftmeta.Quota { return lockserver.ShareOf(n.cfg.MemoryBytes, owner) }, Reserve: n.disks.Reserve, CheckSpace: n.disks.CheckVoteSpace,
		TakeAuthority: n.authority.TakeFrom, Publish: n.members.Publish, Enter: n.life.enter, Fail: n.life.fail,
	}
	if n.security != nil {
		cfg.RequireNode = n.security.RequireNode
	}
	return voter.New(cfg)
}
