package nodeadmin

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// aliveContact is how recently a voter must have answered to be shown as alive.
const aliveContact = 2 * time.Second

func (sv *Service) raftStatus(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	s, err := sv.groupStatus(ctx)
	if err != nil {
		return nil, err
	}
	return s.Append, nil
}

// groupStatus returns the state of the Raft group, as its leader knows it.
func (sv *Service) groupStatus(ctx context.Context) (*api.RaftStatus, error) {
	group := sv.Group()
	if group != nil {
		if leads, _ := group.Leads(); leads {
			return sv.leaderStatus(ctx, group)
		}
	}
	// Only the leader knows the state of the other servers.
	to, err := sv.towardsLeader()
	if err != nil {
		return nil, err
	}
	s := &api.RaftStatus{}
	return s, sv.Peers.Call(ctx, to, api.MethodRaftStatus, func(e *wire.Encoder) { e.Array(0) }, s.Decode)
}

func (sv *Service) leaderStatus(ctx context.Context, group *raftmeta.Group) (*api.RaftStatus, error) {
	all, err := sv.Members.Nodes(ctx)
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
	masterID, epoch := sv.LastMaster()
	s := &api.RaftStatus{
		Cluster: sv.Self.Cluster(), Leader: leader, LeaderName: name(leader), Term: st.Term, Applied: st.AppliedIndex, LastIndex: st.LastIndex,
		RaftEpoch: sv.Self.RaftEpoch(), Master: masterID, MasterName: name(masterID), MasterEpoch: epoch,
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
func (sv *Service) towardsLeader() (string, error) {
	if group := sv.Group(); group != nil {
		if id, _ := group.Leader(); id != "" && id != sv.Self.ID() {
			return id, nil
		}
		return "", &metaapi.NotLeaderError{}
	}
	if sv.Members.Ring() != nil {
		for _, m := range sv.Members.Ring().Members() {
			if m.Voter && m.State == gossip.Alive {
				return m.ID, nil
			}
		}
	}
	return "", &metaapi.NotLeaderError{}
}

// Leader returns the id of the leader of the lock service, as far as this node knows, or "".
func (sv *Service) Leader() string {
	if group := sv.Group(); group != nil {
		id, _ := group.Leader()
		return id
	}
	return sv.Members.NodeAt(sv.LeaderAddress())
}
