package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/steledb/stele/node/authority"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/node/raftstreams"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// voter is the node's member of the Raft group of the lock service, if any. A node may become a voter, and stop being one, while it
// runs.
type voter struct {
	n      *Node
	claims net.Listener // Raft's connections, while the node runs

	// changing serializes opening and closing.
	changing sync.Mutex
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		group *raftmeta.Group
		// feed receives what claims accepts; nil while there is no group.
		feed *raftstreams.Feed
		// changed is closed, and replaced, when group changes.
		changed chan struct{}
		// unheard has the time since which servers that never answered have been observed.
		unheard map[string]time.Time
	}
}

// silence returns how long a server of the group has not answered this leader.
func (v *voter) silence(m raftmeta.Member) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.Contact >= 0 {
		delete(v.mu.unheard, m.ID)
		return m.Contact
	}
	since, ok := v.mu.unheard[m.ID]
	if !ok {
		since = time.Now()
		v.mu.unheard[m.ID] = since
	}
	return time.Since(since)
}

func newVoter(n *Node, claims net.Listener) *voter {
	v := &voter{n: n, claims: claims}
	v.mu.changed = make(chan struct{})
	return v
}

// group returns the node's Raft group, nil if it has none, and a channel that is closed when that changes.
func (v *voter) group() (*raftmeta.Group, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.group, v.mu.changed
}

// accept passes Raft's connections to the current group, until the server ends.
func (v *voter) accept() {
	for {
		c, err := v.claims.Accept()
		if err != nil {
			return
		}
		v.mu.Lock()
		feed := v.mu.feed
		v.mu.Unlock()
		if feed == nil || !feed.Offer(c) {
			_ = c.Close()
		}
	}
}

// open opens the Raft log in dir. With join, a new log waits for the group's leader.
func (v *voter) open(dir string, join bool) error {
	n := v.n
	feed := raftstreams.NewFeed(v.claims.Addr())
	log := n.log.With("part", "raftmeta")
	// High-priority blobs and logs use half of the reserve, and need the lock service: deleting
	// a log changes its list.
	group, err := raftmeta.Open(raftmeta.Config{
		Dir: dir, ID: n.id(), Join: join, Logger: log, OnFatal: n.fail, ReserveBytes: max(n.reserve()/4, 1),
		OnRemoved: func() {
			if err := n.stopVoting(); err != nil {
				log.Error("voting not stopped", "err", err)
			}
		},
		AddressOf: func(id string) string { addr, _ := n.members.AddressOf(id); return addr },
		QuotaOf:   func(owner string) raftmeta.Quota { return lockserver.ShareOf(n.cfg.MemoryBytes, owner) },
		Streams: raftstreams.New(raftstreams.Config{
			Listener: feed, Cluster: n.cluster(), Epoch: n.raftEpoch(), Node: n.id(), Resolve: n.members.AddressOf,
			Dial: n.security.DialNode, RequireNode: n.nodeVerifier(), Log: log,
		}),
	})
	if err != nil {
		return err
	}
	v.set(group, feed)
	return nil
}

func (v *voter) set(group *raftmeta.Group, feed *raftstreams.Feed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.group, v.mu.feed = group, feed
	v.mu.unheard = map[string]time.Time{}
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
}

// close closes the node's Raft group until the next open.
func (v *voter) close() error {
	group, _ := v.group()
	if group == nil {
		return nil
	}
	v.set(nil, nil)
	return group.Close()
}

// startVoting makes the node a server of the group. When it returns, the empty log exists, and the leader may add the node.
func (n *Node) startVoting(ctx context.Context, m command.Header) error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	// A voter without the authority's key is better than no voter.
	if err := n.authority.Take(ctx, []string{m.Master}); err != nil && !errors.Is(err, authority.ErrNoKey) {
		return err
	}
	if group, _ := n.voter.group(); group != nil {
		return nil
	}
	if err := n.checkVoteSpace(); err != nil {
		return err
	}
	if own := n.raftEpoch(); m.RaftEpoch != own {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("the group has epoch %d, but node %s has epoch %d", m.RaftEpoch, n.id(), own)}
	}
	dir := ""
	err := n.self.Change(func(f *identity.Folders) (err error) {
		dir, err = f.BeginVoter(m.RaftEpoch)
		return err
	})
	if err != nil {
		return err
	}
	if err := n.voter.open(dir, true); err != nil {
		return fmt.Errorf("become a voter: open the lock service's log: %w", err)
	}
	if err := n.self.Change(func(f *identity.Folders) error { return f.CompleteVoter() }); err != nil {
		return errors.Join(err, n.voter.close())
	}
	n.members.Publish()
	return nil
}

// checkVoteSpace returns an error if the disk for the lock service's log has less free space than the reserve. The log grows there, and a
// node that cannot write it ends.
func (n *Node) checkVoteSpace() error {
	dir := n.cfg.DataDirs[0]
	if free, ok := freeBytes(dir); ok && free < n.reserve() {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("%s has %d bytes free, less than its reserve of %d: too little for the lock service's log", dir, free, n.reserve())}
	}
	return nil
}

// stopVoting closes the node's log after the group has removed the node.
func (n *Node) stopVoting() error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if group, _ := n.voter.group(); group == nil {
		return nil
	}
	if err := n.voter.close(); err != nil {
		return fmt.Errorf("close the lock service's log: %w", err)
	}
	if err := n.self.Change(func(f *identity.Folders) error { return f.EndVoter() }); err != nil {
		return err
	}
	n.log.Info("node stopped voting in the lock service")
	n.members.Publish()
	return nil
}
