package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/assign"
	"github.com/steledb/stele/node/authority"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/voter"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// openLockService opens the node's Raft group, if it has one, and its session with the group's leader.
func (n *Node) openLockService(ctx context.Context) error {
	n.enter("the lock service's log")
	founding, err := n.voter.Start(ctx)
	if err != nil {
		return err
	}
	n.enter("a leader of the lock service")
	if err := n.locks.Open(ctx); err != nil {
		return fmt.Errorf("wait for the lock service: %w", err)
	}
	n.catalog = namespace.Catalog{Meta: &n.meta}
	if founding {
		if n.security != nil { // first: other nodes wait for the cluster's file
			if err := n.catalog.FoundRights(ctx, time.Now()); err != nil {
				return fmt.Errorf("found the cluster: %w", err)
			}
		}
		if err := n.catalog.Found(ctx, n.cluster()); err != nil {
			return fmt.Errorf("found the cluster: %w", err)
		}
	}
	var cluster namespace.ClusterFile
	read := func(ctx context.Context) (err error) { cluster, err = n.catalog.Cluster(ctx); return err }
	for err = n.locks.UntilLeader(ctx, read); errors.Is(err, metaapi.ErrNotFound); err = n.locks.UntilLeader(ctx, read) {
		n.enter("the founder of the cluster")
		if err := timing.Sleep(ctx, foundingPoll); err != nil {
			return fmt.Errorf("wait for the cluster to be founded: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("read the cluster's id: %w", err)
	}
	if cluster.Name != n.cluster() {
		return fmt.Errorf("the lock service belongs to cluster %s, but the data folders to cluster %s: use the folders of this cluster",
			cluster.Name, n.cluster())
	}
	if err := n.voter.SettleEpoch(ctx, cluster); err != nil {
		return err
	}
	n.confirmed.Store(true)
	n.enter("the lock of its own server file")
	if err := n.locks.Hold(ctx); err != nil {
		return err
	}
	if err := n.self.Change(func(f *identity.Folders) error { return f.Founded() }); err != nil {
		return err
	}
	n.members.Publish()
	return n.locks.UntilLeader(ctx, func(ctx context.Context) error {
		if err := n.removed.Check(ctx, n.id()); err != nil {
			return err
		}
		return n.members.Register(ctx)
	})
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
		err := n.server.Load().close()
		if err == nil || n.ctx.Err() == nil {
			err = n.locks.Hold(n.ctx)
		}
		if err == nil {
			err = n.startTabletServer(n.ctx)
		}
		if err != nil {
			if n.ctx.Err() == nil {
				n.fail(err)
			}
			return
		}
	}
}

// lockMessageTimeout closes a connection whose server stops in the middle of an answer.
const lockMessageTimeout = 10 * time.Second

// dialLockService connects to a node of the cluster for requests to the lock service.
func (n *Node) dialLockService(ctx context.Context, addr string) (*rpc.Conn, error) {
	return rpc.Dial(ctx, addr, rpc.ConnConfig{MessageTimeout: lockMessageTimeout, Dialer: n.security.Dialer("")})
}

// masterPause is the interval between rounds of the master.
const masterPause = time.Second

// startMaster makes the node a candidate: it is master while it leads the lock service.
func (n *Node) startMaster() {
	ctx, cancel := context.WithCancel(n.ctx)
	n.mastership = cancel
	n.master = master.New(master.Config{
		ID: n.id(), Group: n.voter.ForMaster(), Nodes: n.commands, Servers: n.members.Servers, Acquire: n.acquireMaster,
		Tablets: n.masterTablets(),
		Stable:  n.cfg.VoterStable, Pause: masterPause, Logger: n.log.With("part", "master"),
	})
	n.background.Go(func() { n.master.Run(ctx) })
}

// masterTablets returns the master's access to tablets.
func (n *Node) masterTablets() *assign.Tablets {
	return assign.New(assign.Config{Ctx: n.ctx, Background: &n.background, Log: n.log, Catalog: &n.catalog, Meta: &n.meta, Metadata: n.rows, Commands: n.commands, Store: n.store.Load,
		Members: n.blobMembers.Members, AddressOf: n.members.AddressOf, Sequencer: func() metaapi.Sequencer { return n.master.Sequencer() }})
}

func (n *Node) acquireMaster(ctx context.Context) (master.Lock, error) {
	l, err := n.meta.Current().Acquire(ctx, master.LockPath, metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// stopMaster ends the candidacy and transfers leadership, so that the others need not detect that this node is gone.
func (n *Node) stopMaster(ctx context.Context) {
	if n.mastership != nil {
		n.mastership()
	}
	if n.voter != nil {
		n.voter.TransferLeadership(ctx)
	}
}

// newVoter creates the node's voter, which accepts Raft's connections from claims.
func (n *Node) newVoter(claims net.Listener) *voter.Voter {
	return voter.New(voter.Config{
		Ctx: n.ctx, Log: n.log, Claims: claims, Self: &n.self, Catalog: &n.catalog, AddressOf: n.members.AddressOf, Addresses: n.members.Addresses,
		Dial: n.security.DialNode, DialAny: n.security.Dialer(""), RequireNode: n.nodeVerifier(),
		QuotaOf: func(owner string) raftmeta.Quota { return lockserver.ShareOf(n.cfg.MemoryBytes, owner) }, Reserve: n.disks.Reserve, CheckSpace: n.disks.CheckVoteSpace,
		TakeAuthority: n.takeAuthorityOf, Publish: n.members.Publish, Enter: n.enter, Fail: n.fail,
	})
}

// takeAuthorityOf fetches the authority's key from the master. A voter without the key is better than no voter.
func (n *Node) takeAuthorityOf(ctx context.Context, masterID string) error {
	err := n.authority.Take(ctx, []string{masterID})
	if errors.Is(err, authority.ErrNoKey) {
		return nil
	}
	return err
}
