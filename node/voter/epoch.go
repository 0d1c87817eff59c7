package voter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

const (
	// epochPatience is how long a voter's group must have had no leader before the voter accepts another group.
	epochPatience = 5 * time.Second
	// settleTime is how long a recovered voter waits for a leader of the old group.
	settleTime = 5 * time.Second
	// returnPatience is how long a starting voter waits for a node with a later epoch to confirm it, longer than that node needs; returnPoll
	// is the pause between two attempts.
	returnPatience = 20 * time.Second
	returnPoll     = 200 * time.Millisecond
	// epochTimeout bounds requests to other nodes.
	epochTimeout = 3 * time.Second
)

// SettleEpoch makes the node's epoch and that of /cluster, which was just read, equal. A voter whose group has no leader read /cluster
// from another group: if that is a later one, the voter gives up its log.
func (v *Voter) SettleEpoch(ctx context.Context, c namespace.ClusterFile) error {
	own := v.Self.RaftEpoch()
	group, _ := v.Group()
	switch {
	case c.Epoch == own:
		return nil
	case group != nil && c.Epoch > own && leaderless(group):
		v.Log.Warn("lock service recovered without this node: its old log is set aside", "epoch", c.Epoch, "old_epoch", own)
		return v.giveUpLog(c.Epoch)
	case group == nil || c.Epoch > own:
		return v.Self.Change(func(f *identity.Folders) error { return f.SetRaftEpoch(c.Epoch) })
	}
	v.Enter("the other nodes, to verify that the lock service does not run without this one")
	if other, err := v.awaitLivingGroup(ctx, own); err != nil || other != nil {
		if err != nil {
			return err
		}
		return v.undoRecovery(other)
	}
	// No node or client reaches the recovered lock service, and gets an id, before the epoch is settled.
	if !planted.On(planted.IDsRolledBack) {
		if err := v.Catalog.SkipIDs(ctx); err != nil {
			return fmt.Errorf("skip the ids that the lost lock service may have issued: %w", err)
		}
	}
	c.Epoch = own
	if err := v.Catalog.SaveCluster(ctx, c); err != nil {
		return fmt.Errorf("write the epoch of the recovered lock service: %w", err)
	}
	v.Log.Warn("lock service recovered from this node's state", "epoch", own)
	return nil
}

func leaderless(group *raftmeta.Group) bool {
	leader, _ := group.Leader()
	return leader == ""
}

// awaitLivingGroup calls livingGroup until one call began settleTime after the start of the node. Old voters that start later see its epoch
// and wait (checkReturn). Those that started before have elected a leader by then, if they are a majority.
func (v *Voter) awaitLivingGroup(ctx context.Context, own uint64) (*api.RaftStatus, error) {
	for {
		left := settleTime - time.Since(v.started)
		if other := v.livingGroup(ctx, own); other != nil || left <= 0 {
			return other, nil
		}
		if err := timing.Sleep(ctx, left); err != nil {
			return nil, fmt.Errorf("wait for a leader of the old lock service: %w", err)
		}
	}
}

// livingGroup asks the other nodes for a group with an epoch before own, and returns its status if it has a leader.
func (v *Voter) livingGroup(ctx context.Context, own uint64) *api.RaftStatus {
	s, _ := v.askGroups(ctx, epochTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch < own })
	return s
}

// askGroups asks all known nodes for the status of their Raft group. It returns the first status that has a leader and for which
// wanted returns true, and the address of that node.
func (v *Voter) askGroups(ctx context.Context, timeout time.Duration, wanted func(*api.RaftStatus) bool) (*api.RaftStatus, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type groupAnswer struct {
		s    *api.RaftStatus
		addr string
	}
	addrs := v.Addresses()
	answers := make(chan groupAnswer, len(addrs))
	for _, addr := range addrs {
		go func() {
			s, err := v.askRaftStatus(ctx, addr)
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
// too, and together be a majority of the old group. While a node has a later epoch that no leader confirms yet, the voter waits: that node
// is about to verify that the old group has no leader.
func (v *Voter) checkReturn(ctx context.Context) error {
	old := false
	v.Self.View(func(f *identity.Folders) { old = f.Voter() && !f.Founding })
	if !old {
		return nil
	}
	own := v.Self.RaftEpoch()
	for {
		_, addr := v.askGroups(ctx, returnTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch > own })
		addrs := laterNodes(v.Members(), own)
		if addr != "" {
			addrs = append(addrs, addr)
		}
		if len(addrs) == 0 {
			return nil
		}
		c, err := v.readCluster(addrs)
		switch {
		case err == nil && c.Name == v.Self.Cluster() && c.Epoch > own:
			v.Log.Warn("lock service recovered without this node: its old log is set aside", "epoch", c.Epoch, "old_epoch", own)
			return v.giveUpLog(c.Epoch)
		case time.Since(v.started) > returnPatience:
			v.Log.Warn("later lock service not confirmed", "nodes", addrs, "err", err)
			return nil
		}
		if err := timing.Sleep(ctx, returnPoll); err != nil {
			return fmt.Errorf("wait for the recovered lock service: %w", err)
		}
	}
}

// laterNodes returns the addresses of the other nodes that are alive and have a later epoch, by gossip.
func laterNodes(members []gossip.Member, own uint64) (addrs session.Addresses) {
	for _, m := range members {
		if !m.Self && m.State == gossip.Alive && m.RaftEpoch > own {
			addrs = append(addrs, m.RPC)
		}
	}
	return addrs
}

func (v *Voter) askRaftStatus(ctx context.Context, addr string) (*api.RaftStatus, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: v.DialAny})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &api.RaftStatus{}
	return s, conn.Call(ctx, api.MethodRaftStatus, func(e *wire.Encoder) { e.Array(0) }, s.Decode)
}

// ErrStillRuns ends the start of a node on which the lock service was recovered although the old group has a leader. The node's recovered
// log was set aside, so the node is part of the old group's cluster at its next start.
var ErrStillRuns = errors.New("the lock service was recovered on this node, but it still runs without it")

// undoRecovery sets the recovered log aside, because the group that it was to replace has a leader. It returns an ErrStillRuns.
func (v *Voter) undoRecovery(other *api.RaftStatus) error {
	if err := v.giveUpLog(other.RaftEpoch); err != nil {
		return err
	}
	return fmt.Errorf("%w, led by %s (%s): the recovered log was set aside; restart this node and it is part of that cluster as before",
		ErrStillRuns, other.LeaderName, other.Leader)
}

// giveUpLog closes the node's group, sets its log aside and takes over the epoch of another group.
func (v *Voter) giveUpLog(epoch uint64) error {
	v.changing.Lock()
	defer v.changing.Unlock()
	if v.Self.RaftEpoch() == epoch {
		return nil // done by another goroutine; the current log may be the new group's
	}
	if err := v.close(); err != nil {
		return err
	}
	return v.setLogAside(epoch)
}

// setLogAside is giveUpLog for a log that is not open.
func (v *Voter) setLogAside(epoch uint64) error {
	return v.Self.Change(func(f *identity.Folders) error {
		if err := f.EndVoter(); err != nil {
			return err
		}
		return f.SetRaftEpoch(epoch)
	})
}

// CheckEpochs checks whether the node was left behind by a recovery, from the epochs of the members. It is called when the members change, and
// every two seconds, by one goroutine.
func (v *Voter) CheckEpochs(members []gossip.Member) {
	if group, _ := v.Group(); group != nil {
		if !leaderless(group) {
			v.leaderless = time.Time{}
			return
		}
		if v.leaderless.IsZero() {
			v.leaderless = time.Now()
		}
		if time.Since(v.leaderless) < epochPatience {
			return
		}
	}
	own := v.Self.RaftEpoch()
	addrs := laterNodes(members, own)
	if len(addrs) == 0 {
		return
	}
	c, err := v.readCluster(addrs)
	if err != nil || c.Name != v.Self.Cluster() || c.Epoch <= own {
		v.Log.Debug("later lock service not confirmed", "nodes", addrs, "err", err)
		return
	}
	if group, _ := v.Group(); group != nil {
		v.Log.Warn("lock service recovered without this node: its old log is set aside", "epoch", c.Epoch, "old_epoch", own)
	}
	if err := v.giveUpLog(c.Epoch); err != nil {
		v.Log.Error("old log of the lock service not set aside", "err", err)
		return
	}
	v.Publish()
}

// readCluster reads /cluster from the leader of the nodes at addrs.
func (v *Voter) readCluster(addrs session.Addresses) (namespace.ClusterFile, error) {
	ctx, cancel := context.WithTimeout(v.Ctx, epochTimeout)
	defer cancel()
	client, err := session.NewClient(session.Config{Locator: addrs, Dial: v.DialAny, Logger: v.Log.With("part", "session")})
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
