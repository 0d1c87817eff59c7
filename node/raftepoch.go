package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// The raft epoch tells the Raft groups of one cluster apart: "stele raft recover" makes
// a new one of what a voter had, with the next epoch. A voter gives up its log for a
// group of a later epoch only if its own has no leader, and only on the word of the
// later group's leader, read from /cluster: gossip, or a message, may start the
// question but proves nothing. The recovered group in turn serves nobody before its
// node has made sure, as far as it can, that the old one has no leader any more.

const (
	// epochPatience is how long a voter's group must have had no leader before the
	// voter believes in another group.
	epochPatience = 5 * time.Second
	// epochTimeout bounds the questions to other nodes.
	epochTimeout = 3 * time.Second
	// epochPause is the time between two looks at the others' epochs.
	epochPause = 2 * time.Second
)

// settleEpoch makes the node's epoch and that in /cluster the same, which it has just
// read.
func (n *Node) settleEpoch(ctx context.Context, c clusterFile) error {
	own := n.raftEpoch()
	group, _ := n.voter.group()
	switch {
	case c.epoch == own:
		return nil
	case group == nil || c.epoch > own:
		return n.self.change(func(f *identity.Folders) error { return f.SetRaftEpoch(c.epoch) })
	}
	n.enter("the other nodes, to make sure that the lock service does not live on without this one")
	if other := n.livingGroup(ctx, own); other != nil {
		return n.undoRecovery(other)
	}
	// Before the epoch is settled no node or client reaches the recovered lock service: none gets an id before.
	if err := n.catalog.skipIDs(ctx); err != nil {
		return fmt.Errorf("skip the ids that the lost lock service may have issued: %w", err)
	}
	c.epoch = own
	if err := n.catalog.saveCluster(ctx, c); err != nil {
		return fmt.Errorf("write the epoch of the recovered lock service: %w", err)
	}
	n.log.Warn("the lock service goes on from what this node had", "epoch", own)
	return nil
}

// livingGroup asks the other nodes for the state of a group of an epoch before own, and
// returns it if one has a leader.
func (n *Node) livingGroup(ctx context.Context, own uint64) *api.RaftStatus {
	s, _ := n.askGroups(ctx, epochTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch < own })
	return s
}

// askGroups asks the nodes that are known for their group, and returns the first that
// has a leader and is wanted, with the address of who told.
func (n *Node) askGroups(ctx context.Context, timeout time.Duration, wanted func(*api.RaftStatus) bool) (*api.RaftStatus, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type told struct {
		s    *api.RaftStatus
		addr string
	}
	addrs := n.known.all()
	answers := make(chan told, len(addrs))
	for _, addr := range addrs {
		go func() {
			s, err := n.askRaftStatus(ctx, addr)
			if err != nil || s.Leader == "" || !wanted(s) {
				s = nil
			}
			answers <- told{s, addr}
		}()
	}
	for range addrs {
		if a := <-answers; a.s != nil {
			return a.s, a.addr
		}
	}
	return nil, ""
}

// returnTimeout is how long a voter that starts waits for the others to tell of a later
// group. Those that are down, or start as well, say so at once.
const returnTimeout = time.Second

// checkReturn has a voter that starts give up its log if the lock service was recovered
// without it: others that were away may start too, and be a majority of what was. The
// caller holds voter.changing.
func (n *Node) checkReturn(ctx context.Context) error {
	own := n.raftEpoch()
	_, addr := n.askGroups(ctx, returnTimeout, func(s *api.RaftStatus) bool { return s.RaftEpoch > own })
	if addr == "" {
		return nil
	}
	c, err := n.readCluster(session.Addresses{addr})
	if err != nil || c.id != n.cluster() || c.epoch <= own {
		n.log.Warn("a node tells of a later lock service, which does not confirm it", "node", addr, "error", err)
		return nil
	}
	n.log.Warn("the lock service was recovered without this node: its old log is set aside", "epoch", c.epoch, "was", own)
	return n.setLogAside(c.epoch)
}

func (n *Node) askRaftStatus(ctx context.Context, addr string) (*api.RaftStatus, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: n.security.dialer("")})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &api.RaftStatus{}
	return s, conn.Call(ctx, api.MethodRaftStatus, func(e *wire.Encoder) { e.Array(0) }, s.Decode)
}

// undoRecovery sets the recovered log aside: the group that it was to take the place of
// has a leader.
func (n *Node) undoRecovery(other *api.RaftStatus) error {
	if err := n.giveUpLog(other.RaftEpoch); err != nil {
		return err
	}
	return fmt.Errorf("the lock service was recovered on this node, but it lives on without it, led by %s (%s): "+
		"the recovered log was set aside; start this node again and it is part of that cluster as before", other.LeaderName, other.Leader)
}

// giveUpLog ends the node's part in its group, sets the log aside and takes over the
// epoch of another group.
func (n *Node) giveUpLog(epoch uint64) error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if n.raftEpoch() == epoch {
		return nil // somebody was faster; the log that there is now may be the new group's
	}
	if err := n.voter.close(); err != nil {
		return err
	}
	return n.setLogAside(epoch)
}

// setLogAside is the part of giveUpLog for a log that is not open.
func (n *Node) setLogAside(epoch uint64) error {
	return n.self.change(func(f *identity.Folders) error {
		if err := f.EndVoter(); err != nil {
			return err
		}
		return f.SetRaftEpoch(epoch)
	})
}

// epochWatch looks whether the node was left behind by a recovery.
type epochWatch struct {
	n *Node
	// leaderless is since when the own group has had no leader; zero if it has one.
	leaderless time.Time
}

// look is called every epochPause, and when members change.
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
	if err != nil || c.id != n.cluster() || c.epoch <= own {
		n.log.Debug("nodes tell of a later lock service, which does not confirm it", "nodes", addrs, "error", err)
		return
	}
	if group, _ := n.voter.group(); group != nil {
		n.log.Warn("the lock service was recovered without this node: its old log is set aside", "epoch", c.epoch, "was", own)
	}
	if err := n.giveUpLog(c.epoch); err != nil {
		n.log.Error("give up a lock service's log that was left behind", "error", err)
		return
	}
	n.tellOthers()
}

// readCluster reads /cluster from the leader that the nodes at addrs have.
func (n *Node) readCluster(addrs session.Addresses) (clusterFile, error) {
	ctx, cancel := context.WithTimeout(n.ctx, epochTimeout)
	defer cancel()
	client, err := session.NewClient(session.Config{Locator: addrs, Dial: n.security.dialer(""), Logger: n.log.With("part", "session")})
	if err != nil {
		return clusterFile{}, err
	}
	defer client.Close()
	f, err := client.Get(ctx, clusterPath)
	if err != nil {
		return clusterFile{}, err
	}
	return decodeCluster(f)
}

// clusterFile is what /cluster says, as a MessagePack map.
type clusterFile struct {
	id    string
	epoch uint64 // of the Raft group that has the file
	gen   uint64 // the file's generation
}

func decodeCluster(f metaapi.File) (clusterFile, error) {
	c := clusterFile{gen: f.Generation}
	d := wire.NewDecoder(f.Data)
	for range d.Map() {
		switch d.Str() {
		case "id":
			c.id = d.Str()
		case "raft_epoch":
			c.epoch = d.Uint()
		default:
			d.Skip()
		}
	}
	if err := d.Err(); err != nil || c.id == "" {
		return c, fmt.Errorf("%s does not tell the cluster's id: %w", clusterPath, err)
	}
	return c, nil
}

// cluster reads /cluster.
func (c *catalog) cluster(ctx context.Context) (clusterFile, error) {
	f, err := c.meta.Get(ctx, clusterPath)
	if err != nil {
		return clusterFile{}, err
	}
	return decodeCluster(f)
}

// saveCluster writes /cluster if it is of that generation, zero being none.
func (c *catalog) saveCluster(ctx context.Context, f clusterFile) error {
	e := wire.GetEncoder()
	defer e.Release()
	e.Map(3)
	e.Str("id")
	e.Str(f.id)
	e.Str("format")
	e.Int(1)
	e.Str("raft_epoch")
	e.Uint(f.epoch)
	_, err := c.set(ctx, clusterPath, append([]byte(nil), e.Bytes()...), f.gen)
	return err
}

// found puts the cluster's id into the namespace, unless it is there.
func (c *catalog) found(ctx context.Context, id string) error {
	err := c.saveCluster(ctx, clusterFile{id: id})
	if errors.Is(err, metaapi.ErrGeneration) {
		return nil
	}
	return err
}
