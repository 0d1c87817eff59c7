package node

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// The Raft epoch distinguishes the Raft groups of one cluster: "stele raft recover" makes a new group from a voter's log, with the
// next epoch. A voter gives up its log for a group with a later epoch only if its own group has no leader, and only if the later
// group's leader confirms it by /cluster. Gossip, or a message, may start the check but proves nothing. The recovered group serves no
// client before its node has verified, as far as it can, that the old group has no leader.

const (
	// epochPatience is how long a voter's group must have had no leader before the voter accepts another group.
	epochPatience = 5 * time.Second
	// epochTimeout bounds requests to other nodes.
	epochTimeout = 3 * time.Second
)

// settleEpoch makes the node's epoch and that of /cluster, which was just read, equal.
func (n *Node) settleEpoch(ctx context.Context, c namespace.ClusterFile) error {
	own := n.raftEpoch()
	group, _ := n.voter.group()
	switch {
	case c.Epoch == own:
		return nil
	case group == nil || c.Epoch > own:
		return n.self.Change(func(f *identity.Folders) error { return f.SetRaftEpoch(c.Epoch) })
	}
	n.enter("the other nodes, to verify that the lock service does not run without this one")
	if other := n.livingGroup(ctx, own); other != nil {
		return n.undoRecovery(other)
	}
	// No node or client reaches the recovered lock service, and gets an id, before the epoch is settled.
	if err := n.catalog.SkipIDs(ctx); err != nil {
		return fmt.Errorf("skip the ids that the lost lock service may have issued: %w", err)
	}
	c.Epoch = own
	if err := n.catalog.SaveCluster(ctx, c); err != nil {
		return fmt.Errorf("write the epoch of the recovered lock service: %w", err)
	}
	n.log.Warn("lock service recovered from this node's state", "epoch", own)
	return nil
}

// livingGroup asks the other nodes for a group with an epoch before own, and returns its status if it has a leader.
func (n *Node) livingGroup(ctx context.Context, own uint64) *api.RaftStatus {
	s, _ := n.askGroups(ctx, epochTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch < own })
	return s
}

// askGroups asks all known nodes for the status of their Raft group. It returns the first status that has a leader and for which
// wanted returns true, and the address of that node.
func (n *Node) askGroups(ctx context.Context, timeout time.Duration, wanted func(*api.RaftStatus) bool) (*api.RaftStatus, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type groupAnswer struct {
		s    *api.RaftStatus
		addr string
	}
	addrs := n.members.Addresses()
	answers := make(chan groupAnswer, len(addrs))
	for _, addr := range addrs {
		go func() {
			s, err := n.askRaftStatus(ctx, addr)
			if err != nil || s.Leader == "" || !wanted(s) {
				s = nil
			}
			answers <- groupAnswer{s, addr}
		}()
	}
	for range addrs {
		if a := <-answers; a.s != nil {
			return a.s, a.addr
		}
	}
	return nil, ""
}

// returnTimeout is how long a starting voter waits for other nodes to report a later group. Nodes that are down, or starting, answer
// at once.
const returnTimeout = time.Second

// checkReturn makes a starting voter give up its log if the lock service was recovered without it: other old voters may be starting,
// too, and together be a majority of the old group. The caller holds voter.changing.
func (n *Node) checkReturn(ctx context.Context) error {
	own := n.raftEpoch()
	_, addr := n.askGroups(ctx, returnTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch > own })
	if addr == "" {
		return nil
	}
	c, err := n.readCluster(session.Addresses{addr})
	if err != nil || c.Name != n.cluster() || c.Epoch <= own {
		n.log.Warn("later lock service not confirmed", "node", addr, "err", err)
		return nil
	}
	n.log.Warn("lock service recovered without this node: its old log is set aside", "epoch", c.Epoch, "old_epoch", own)
	return n.setLogAside(c.Epoch)
}

func (n *Node) askRaftStatus(ctx context.Context, addr string) (*api.RaftStatus, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: n.security.Dialer("")})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &api.RaftStatus{}
	return s, conn.Call(ctx, api.MethodRaftStatus, func(e *wire.Encoder) { e.Array(0) }, s.Decode)
}

// undoRecovery sets the recovered log aside, because the group that it was to replace has a leader.
func (n *Node) undoRecovery(other *api.RaftStatus) error {
	if err := n.giveUpLog(other.RaftEpoch); err != nil {
		return err
	}
	return fmt.Errorf("the lock service was recovered on this node, but it still runs without it, led by %s (%s): "+
		"the recovered log was set aside; restart this node and it is part of that cluster as before", other.LeaderName, other.Leader)
}

// giveUpLog closes the node's group, sets its log aside and takes over the epoch of another group.
func (n *Node) giveUpLog(epoch uint64) error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if n.raftEpoch() == epoch {
		return nil // done by another goroutine; the current log may be the new group's
	}
	if err := n.voter.close(); err != nil {
		return err
	}
	return n.setLogAside(epoch)
}

// setLogAside is giveUpLog for a log that is not open.
func (n *Node) setLogAside(epoch uint64) error {
	return n.self.Change(func(f *identity.Folders) error {
		if err := f.EndVoter(); err != nil {
			return err
		}
		return f.SetRaftEpoch(epoch)
	})
}

// epochWatch checks whether the node was left behind by a recovery.
type epochWatch struct {
	n *Node
	// leaderless is the time since which the node's own group has had no leader; zero if it has one.
	leaderless time.Time
}

// lookAtEpochs returns the function that is called with the members every two seconds, and when they change.
func (n *Node) lookAtEpochs() func([]gossip.Member) { return (&epochWatch{n: n}).look }

// look checks the epochs of the members.
func (w *epochWatch) look(members []gossip.Member) {
	n := w.n
	if group, _ := n.voter.group(); group != nil {
		if leader, _ := group.Leader(); leader != "" {
			w.leaderless = time.Time{}
			return
		}
		if w.leaderless.IsZero() {
			w.leaderless = time.Now()
		}
		if time.Since(w.leaderless) < epochPatience {
			return
		}
	}
	own := n.raftEpoch()
	var addrs session.Addresses
	for _, m := range members {
		if !m.Self && m.State == gossip.Alive && m.RaftEpoch > own {
			addrs = append(addrs, m.RPC)
		}
	}
	if len(addrs) == 0 {
		return
	}
	c, err := n.readCluster(addrs)
	if err != nil || c.Name != n.cluster() || c.Epoch <= own {
		n.log.Debug("later lock service not confirmed", "nodes", addrs, "err", err)
		return
	}
	if group, _ := n.voter.group(); group != nil {
		n.log.Warn("lock service recovered without this node: its old log is set aside", "epoch", c.Epoch, "old_epoch", own)
	}
	if err := n.giveUpLog(c.Epoch); err != nil {
		n.log.Error("old log of the lock service not set aside", "err", err)
		return
	}
	n.members.Publish()
}

// readCluster reads /cluster from the leader of the nodes at addrs.
func (n *Node) readCluster(addrs session.Addresses) (namespace.ClusterFile, error) {
	ctx, cancel := context.WithTimeout(n.ctx, epochTimeout)
	defer cancel()
	client, err := session.NewClient(session.Config{Locator: addrs, Dial: n.security.Dialer(""), Logger: n.log.With("part", "session")})
	if err != nil {
		return namespace.ClusterFile{}, err
	}
	defer client.Close()
	f, err := client.Get(ctx, namespace.ClusterPath)
	if err != nil {
		return namespace.ClusterFile{}, err
	}
	return namespace.DecodeCluster(f)
}
