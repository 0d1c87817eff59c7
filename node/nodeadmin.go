package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// handleNodes registers the methods that manage nodes and report the Raft group.
func (n *Node) handleNodes() {
	n.handleNames(api.MethodListNodes, 0, n.listNodes)
	n.handleNames(api.MethodDrainNode, 1, n.drainNode)
	n.handleNames(api.MethodRemoveNode, 1, n.removeNode)
	n.handleNames(api.MethodRaftStatus, 0, n.raftStatus)
}

func (n *Node) listNodes(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all, err := n.nodesOrMembers(ctx)
	if err != nil {
		return nil, err
	}
	leader := n.leader()
	masterID, _ := n.epochs.Last()
	var infos []api.NodeInfo
	// The group's list of voters is more reliable than gossip.
	votes := map[string]bool{}
	group, _ := n.voter.Group()
	if group != nil {
		for _, m := range group.Members() {
			votes[m.ID] = m.Voter
		}
	}
	for _, x := range all {
		i := nodeInfo(&x, leader, masterID)
		if group != nil {
			i.Voter = votes[x.ID]
		}
		infos = append(infos, i)
	}
	return func(e *wire.Encoder) { api.AppendNodes(e, infos) }, nil
}

// nodesTimeout is how long list_nodes waits for the lock service before it uses gossip alone.
const nodesTimeout = 3 * time.Second

// nodesOrMembers returns the nodes of the registry, or what gossip knows if there is no leader.
func (n *Node) nodesOrMembers(ctx context.Context) (all []members.Node, err error) {
	short, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	if err = n.checkLeader(); err == nil {
		all, err = n.members.Nodes(short)
	}
	if err == nil || n.members.Ring() == nil || ctx.Err() != nil {
		return all, err
	}
	for _, m := range n.members.Ring().Members() {
		all = append(all, members.Node{ID: m.ID, Record: members.Record{Name: m.Name, Zone: m.Zone, RPC: m.RPC}, Member: m})
	}
	return all, nil
}

// nodeInfo returns a node as the API has it.
func nodeInfo(x *members.Node, leader, master string) api.NodeInfo {
	i := api.NodeInfo{
		ID: x.ID, Name: x.Record.Name, Zone: x.Record.Zone, RPC: x.Record.RPC, Gossip: x.Gossip, HTTP: x.HTTP, Version: x.Version,
		State: stateText(x.State), Voter: x.Voter, Leader: x.ID == leader, Master: x.ID == master, Draining: x.Draining, Self: x.Self,
		CapacityBytes: x.CapacityBytes, FreeBytes: x.FreeBytes, Load: x.Load,
	}
	if x.State == gossip.Alive {
		i.RPC = x.Member.RPC // may be newer
	}
	if !x.Since.IsZero() {
		i.SinceSeconds = time.Since(x.Since).Seconds()
	}
	return i
}

func stateText(s gossip.State) string {
	if s == 0 {
		return api.NodeUnknown
	}
	return s.String()
}

// leader returns the id of the leader of the lock service, as far as this node knows, or "".
func (n *Node) leader() string {
	if group, _ := n.voter.Group(); group != nil {
		id, _ := group.Leader()
		return id
	}
	return n.members.NodeAt(n.meta.Client.LeaderAddress())
}

func (n *Node) drainNode(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	return nil, n.members.SetDraining(ctx, r.Names[0], !r.Undrain)
}

// removeNode removes a node from the cluster for good.
func (n *Node) removeNode(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	by := authz.RequestIn(ctx)
	forwarded := by.Caller != nil && by.Caller.Forwarded // forwarded by another node, which returns the answer
	return nil, n.changes.Do(ctx, by, func(ctx context.Context) error { return n.remove(ctx, r.Names[0], r.Force, forwarded) })
}

// remove removes a node, within a change: the next change sees its mark.
func (n *Node) remove(ctx context.Context, name string, force, forwarded bool) error {
	short, cancel := context.WithTimeout(ctx, removal.MarkTimeout)
	defer cancel()
	x, err := n.removable(short, name, force, forwarded)
	if err != nil {
		if short.Err() != nil && ctx.Err() == nil {
			return reply.Recode(api.ErrUnavailable, fmt.Errorf("check that node %q may be removed: %w", name, err))
		}
		return err
	}
	if err := n.removed.Mark(ctx, x.ID, x.Record.Name); err != nil {
		return err
	}
	n.log.Info("node removed from the cluster", "node", x.ID, "name", x.Record.Name)
	return nil
}

// removable returns the node with that id or name if it may be removed now, otherwise an *api.NodeInUseError.
func (n *Node) removable(ctx context.Context, name string, force, forwarded bool) (members.Node, error) {
	x, err := n.members.Find(ctx, name)
	switch {
	case err != nil:
		return x, err
	case x.State == gossip.Alive && !force:
		return x, &api.NodeInUseError{Node: x.ID, Reason: "it is alive: stop it first"}
	case x.ID == n.id() && !forwarded:
		return x, &api.NodeInUseError{Node: x.ID, Reason: "it is the node that was asked: ask another one"}
	}
	return x, n.checkQuorumWithout(ctx, x.ID)
}

// checkQuorumWithout rejects a removal that would leave the lock service without a majority of live voters at once: a node that is marked as
// removed stops before the group has replaced it. Nodes that were marked earlier and have not stopped yet do not count as live.
func (n *Node) checkQuorumWithout(ctx context.Context, id string) error {
	gone, err := n.catalog.List(ctx, namespace.RemovedDir)
	if err != nil {
		return err
	}
	s, err := n.groupStatus(ctx)
	if err != nil {
		return err
	}
	voters, live, votes := 0, 0, false
	for _, r := range s.Servers {
		if !r.Voter {
			continue
		}
		voters++
		votes = votes || r.ID == id
		if r.ID != id && r.Alive && !slices.Contains(gone, r.ID) {
			live++
		}
	}
	if votes && live <= voters/2 {
		return &api.NodeInUseError{Node: id, Reason: fmt.Sprintf(
			"only %d of %d voters of the lock service would be left, and it takes %d: drain the node first, or bring others back", live, voters, voters/2+1)}
	}
	return nil
}

func (n *Node) raftStatus(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	s, err := n.groupStatus(ctx)
	if err != nil {
		return nil, err
	}
	return s.Append, nil
}

// groupStatus returns the state of the Raft group, as its leader knows it.
func (n *Node) groupStatus(ctx context.Context) (*api.RaftStatus, error) {
	group, _ := n.voter.Group()
	if group != nil {
		if leads, _ := group.Leads(); leads {
			return n.leaderStatus(ctx, group)
		}
	}
	// Only the leader knows the state of the other servers.
	to, err := n.towardsLeader()
	if err != nil {
		return nil, err
	}
	s := &api.RaftStatus{}
	return s, n.peers.Call(ctx, to, api.MethodRaftStatus, func(e *wire.Encoder) { e.Array(0) }, s.Decode)
}

func (n *Node) leaderStatus(ctx context.Context, group *raftmeta.Group) (*api.RaftStatus, error) {
	all, err := n.members.Nodes(ctx)
	if err != nil {
		return &api.RaftStatus{}, err
	}
	byID := map[string]*members.Node{}
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	name := func(id string) string {
		if x := byID[id]; x != nil {
			return x.Record.Name
		}
		return ""
	}
	st := group.Stats()
	leader, _ := group.Leader()
	masterID, epoch := n.epochs.Last()
	s := &api.RaftStatus{
		Cluster: n.cluster(), Leader: leader, LeaderName: name(leader), Term: st.Term, Applied: st.AppliedIndex, LastIndex: st.LastIndex,
		RaftEpoch: n.raftEpoch(), Master: masterID, MasterName: name(masterID), MasterEpoch: epoch,
		Sessions: int64(st.Sessions), Files: int64(st.Files), Directories: int64(st.Directories), Bytes: st.Bytes,
	}
	for _, m := range group.Members() {
		r := api.RaftServer{ID: m.ID, Name: name(m.ID), State: api.NodeUnknown, Voter: m.Voter, Leader: m.Leader, Lag: m.Lag, LastContactMS: -1}
		if m.Contact >= 0 {
			r.LastContactMS = m.Contact.Milliseconds()
		}
		r.Alive = m.Contact >= 0 && m.Contact < aliveContact
		if x := byID[m.ID]; x != nil {
			r.Zone, r.State = x.Record.Zone, stateText(x.State)
		}
		s.Servers = append(s.Servers, r)
	}
	return s, nil
}

// towardsLeader returns the id of the leader of the lock service if this node votes, and otherwise that of a node that votes.
func (n *Node) towardsLeader() (string, error) {
	if group, _ := n.voter.Group(); group != nil {
		if id, _ := group.Leader(); id != "" && id != n.id() {
			return id, nil
		}
		return "", &metaapi.NotLeaderError{}
	}
	if n.members.Ring() != nil {
		for _, m := range n.members.Ring().Members() {
			if m.Voter && m.State == gossip.Alive {
				return m.ID, nil
			}
		}
	}
	return "", &metaapi.NotLeaderError{}
}

// aliveContact is how recently a voter must have answered to be shown as alive.
const aliveContact = 2 * time.Second
