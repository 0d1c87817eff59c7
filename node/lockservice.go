package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// openLockService opens the node's Raft group, if it has one, and its session with the group's leader.
func (n *Node) openLockService(ctx context.Context) error {
	n.enter("the lock service's log")
	founding, err := n.openVoter(ctx)
	if err != nil {
		return err
	}
	n.enter("a leader of the lock service")
	if err := n.openSession(ctx); err != nil {
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
	for err = n.untilLeader(ctx, read); errors.Is(err, metaapi.ErrNotFound); err = n.untilLeader(ctx, read) {
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
	if err := n.settleEpoch(ctx, cluster); err != nil {
		return err
	}
	n.confirmed.Store(true)
	n.enter("the lock of its own server file")
	if err := n.hold(ctx); err != nil {
		return err
	}
	if err := n.self.Change(func(f *identity.Folders) error { return f.Founded() }); err != nil {
		return err
	}
	n.members.Publish()
	return n.untilLeader(ctx, func(ctx context.Context) error {
		if err := n.removed.Check(ctx, n.id()); err != nil {
			return err
		}
		return n.members.Register(ctx)
	})
}

// openVoter opens the node's Raft group, if it has one, and reports whether that founds the cluster.
func (n *Node) openVoter(ctx context.Context) (founding bool, err error) {
	// Gossip runs already, and may reveal that the log was left behind.
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	dir := ""
	look := func(f *identity.Folders) {
		dir, founding = "", f.Founding
		if f.Voter() || f.Founding {
			dir = f.RaftDir()
		}
	}
	n.self.View(look)
	if dir != "" && !founding {
		if err := n.checkReturn(ctx); err != nil {
			return false, err
		}
		n.self.View(look)
	}
	if dir == "" {
		return false, nil
	}
	if err := n.voter.open(dir, false); err != nil {
		return false, fmt.Errorf("open the lock service: %w", err)
	}
	// A single voter becomes leader at once; searching for a leader would take longer.
	if group, _ := n.voter.group(); len(group.Members()) == 1 {
		if err := group.WaitReady(ctx); err != nil {
			return false, fmt.Errorf("wait for the lock service: %w", err)
		}
	}
	return founding, nil
}

// foundingPoll is the interval at which a node checks whether the cluster that it joins has been founded.
const foundingPoll = 50 * time.Millisecond

// closeLockService closes the session and the node's Raft group.
func (n *Node) closeLockService(ctx context.Context) error {
	n.meta.Close(ctx, n.log)
	if n.voter == nil {
		return nil
	}
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	return n.voter.close()
}

// masterPause is the interval between rounds of the master.
const masterPause = time.Second

// startMaster makes the node a candidate: it is master while it leads the lock service.
func (n *Node) startMaster() {
	ctx, cancel := context.WithCancel(n.ctx)
	n.mastership = cancel
	n.master = master.New(master.Config{
		ID: n.id(), Group: masterGroup{n.voter}, Nodes: commander{n}, Servers: n.members.Servers, Acquire: n.acquireMaster,
		Tablets: &clusterTablets{n: n, rows: n.rows, to: commander{n}, allCreated: map[uint64]bool{}},
		Stable:  n.cfg.VoterStable, Pause: masterPause, Logger: n.log.With("part", "master"),
	})
	n.background.Go(func() { n.master.Run(ctx) })
}

func (n *Node) acquireMaster(ctx context.Context) (master.Lock, error) {
	l, err := n.meta.Current().Acquire(ctx, master.LockPath, metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// handOverTimeout bounds the transfer of leadership before the node stops.
const handOverTimeout = 3 * time.Second

// stopMaster ends the candidacy and transfers leadership, so that the others need not detect that this node is gone.
func (n *Node) stopMaster(ctx context.Context) {
	if n.mastership != nil {
		n.mastership()
	}
	if n.voter == nil {
		return
	}
	group, _ := n.voter.group()
	if group == nil || len(group.Members()) < 2 {
		return
	}
	if leads, _ := group.Leads(); !leads {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := group.TransferLeadership(ctx, ""); err != nil {
		n.log.Info("leadership of the lock service not transferred", "err", err)
	}
}

// masterGroup adapts the Raft group for the master. It implements master.Group.
type masterGroup struct{ v *voter }

var errNoVoter = errors.New("this node is not a voter of the lock service")

// Leads implements master.Group.
func (m masterGroup) Leads() (bool, <-chan struct{}) {
	group, changed := m.v.group()
	if group == nil {
		return false, changed
	}
	return group.Leads()
}

// Voters implements master.Group.
func (m masterGroup) Voters() []master.Voter {
	group, _ := m.v.group()
	if group == nil {
		return nil
	}
	var all []master.Voter
	for _, x := range group.Members() {
		all = append(all, master.Voter{ID: x.ID, Staged: !x.Voter, CaughtUp: caughtUp(x), Leader: x.Leader, Silent: m.v.silence(x)})
	}
	return all
}

// caughtUpLag is the most entries that a server may lack to be promoted: Promote waits for the rest.
const caughtUpLag = 1000

func caughtUp(m raftmeta.Member) bool { return m.Match > 0 && m.Lag < caughtUpLag }

func (m masterGroup) do(f func(*raftmeta.Group) error) error {
	group, _ := m.v.group()
	if group == nil {
		return errNoVoter
	}
	return f(group)
}

// Stage implements master.Group.
func (m masterGroup) Stage(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.AddNonvoter(ctx, id) })
}

// Promote implements master.Group.
func (m masterGroup) Promote(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.Promote(ctx, id) })
}

// Remove implements master.Group.
func (m masterGroup) Remove(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.Remove(ctx, id) })
}

// StepDown implements master.Group.
func (m masterGroup) StepDown(ctx context.Context, to string) error {
	return m.do(func(g *raftmeta.Group) error { return g.TransferLeadership(ctx, to) })
}
