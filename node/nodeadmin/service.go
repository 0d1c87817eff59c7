package nodeadmin

import (
	"context"
	"log/slog"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/security/acl"
)

// Service lists, drains and removes nodes, and reports the Raft group.
type Service struct{ Config }

// Config has what the service needs of the node.
type Config struct {
	Log     *slog.Logger
	Self    *identity.Self
	Catalog *namespace.Catalog
	Members *members.Service
	Removed *removal.Service
	Changes *changes.Changes
	Peers   *peers.Set
	// Group returns the node's Raft group; nil if the node does not vote.
	Group func() *raftmeta.Group
	// CheckLeader returns an error if the lock service has no leader.
	CheckLeader func() error
	// LeaderAddress returns the address of the last known leader of the lock service, or "".
	LeaderAddress func() string
	// LastMaster returns the newest master that this node knows.
	LastMaster func() (id string, epoch uint64)
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers the methods that manage nodes and report the Raft group.
func (sv *Service) Register(r method.Registrar) {
	r.HandleNames(api.MethodListNodes, 0, authz.Guard{To: authz.Right, Right: acl.Monitor}, sv.listNodes)
	r.HandleNames(api.MethodDrainNode, 1, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Named("node")}, sv.drainNode)
	r.HandleNames(api.MethodRemoveNode, 1, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("node")}, sv.removeNode)
	r.HandleNames(api.MethodRaftStatus, 0, authz.Guard{To: authz.Right, Right: acl.Monitor}, sv.raftStatus)
}

func (sv *Service) listNodes(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all, err := sv.nodesOrMembers(ctx)
	if err != nil {
		return nil, err
	}
	leader := sv.Leader()
	masterID, _ := sv.LastMaster()
	var infos []api.NodeInfo
	// The group's list of voters is more reliable than gossip.
	votes := map[string]bool{}
	group := sv.Group()
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
func (sv *Service) nodesOrMembers(ctx context.Context) (all []members.Node, err error) {
	short, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	if err = sv.CheckLeader(); err == nil {
		all, err = sv.Members.Nodes(short)
	}
	if err == nil || sv.Members.Ring() == nil || ctx.Err() != nil {
		return all, err
	}
	for _, m := range sv.Members.Ring().Members() {
		all = append(all, members.Node{ID: m.ID, Record: members.Record{Name: m.Name, Zone: m.Zone, RPC: m.RPC}, Member: m})
	}
	return all, nil
}

// nodeInfo returns a node as the API has it.
func nodeInfo(x *members.Node, leader, master string) api.NodeInfo {
	i := api.NodeInfo{
		ID: x.ID, Name: x.Record.Name, Zone: x.Record.Zone, RPC: x.Record.RPC, Gossip: x.Gossip, HTTP: x.HTTP, Version: x.Version,
		State: stateText(x.State), Reason: x.Reason, Voter: x.Voter, Leader: x.ID == leader, Master: x.ID == master, Draining: x.Draining, Self: x.Self,
		CapacityBytes: x.CapacityBytes, FreeBytes: x.FreeBytes, DiskGrowthBytes: x.GrowthBytes, DiskGrowthOverS: int64(x.GrowthOver),
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

func (sv *Service) drainNode(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	return nil, sv.Members.SetDraining(ctx, r.Names[0], !r.Undrain)
}
