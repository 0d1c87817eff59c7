package status

import (
	"context"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/blobs"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Service reports the state of a node.
type Service struct{ Config }

// Config has what the service needs of the node.
type Config struct {
	Name    string // the node's
	Version string // the program's
	Began   time.Time
	FS      vfs.FS // of the data directories
	Self    *identity.Self
	Members *members.Service
	Serving func() bool
	// Unready returns why the node does not serve, or "".
	Unready func() string
	// Votes reports whether the node is in the Raft group, and Leader returns the id of the group's leader, or "".
	Votes  func() bool
	Leader func() string
	Master func() *master.Master // of this node, which may be no master

	// The functions below are called only while the node serves.

	// Stats returns the statistics of both tablet servers together.
	Stats func() tablet.Stats
	// Users and Metadata return the current tablet servers.
	Users, Metadata func() *tablet.Server
	Store           func() *blobfs.Store
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers ping and status, which are answered from the start.
func (sv *Service) Register(r method.Registrar) {
	// Ping is served by the connection's reader: clients use it to check that the node is alive, however busy it is.
	r.Handle(api.MethodPing, rpc.Inline, authz.Guard{To: authz.Strangers}, func(c *rpc.Call) {
		var q api.NamesRequest
		if !reply.Begin(c, q.Decode(&c.Params, c.NumParams, api.MethodPing, 0), &q.Options) {
			return
		}
		c.Reply(sv.ping())
	})
	r.HandleNames(api.MethodStatus, 0, authz.Guard{To: authz.Right, Right: acl.Monitor}, sv.status)
}

// ping answers without waiting for anything.
func (sv *Service) ping() reply.Result {
	p := api.Pong{Server: "stele", Version: sv.Version, Protocol: api.ProtocolVersion, Node: sv.Name, Cluster: sv.Self.DurableCluster()}
	return p.Append
}

// status also answers while the node starts, with little more than the reason.
func (sv *Service) status(context.Context, *api.NamesRequest) (reply.Result, error) {
	if !sv.Serving() {
		s := api.Status{Node: sv.Name, NodeID: sv.Self.ID(), Cluster: sv.Self.Cluster(), Version: sv.Version, Uptime: time.Since(sv.Began), Reason: sv.Unready()}
		return s.Append, nil
	}
	t, reason := sv.Stats(), sv.Unready()
	s := api.Status{
		Node: sv.Name, Cluster: sv.Self.Cluster(), Version: sv.Version, Uptime: time.Since(sv.Began),
		Ready: reason == "", Reason: reason,
		MemtableBytes: t.MemtableBytes, MemtableBytesMax: t.MemtableBytesMax,
		CacheBytes: t.Cache.Bytes, CacheHits: int64(t.Cache.Hits), CacheMisses: int64(t.Cache.Misses),
		ScanCacheHits: int64(t.Cache.RowHits), ScanCacheMisses: int64(t.Cache.RowMisses),
		OpenFileBytes: t.Memory.Open, PinnedBytes: t.Memory.Pinned, UnpinnedBytes: t.Memory.Lacking,
		LogBytes: t.LogPendingBytes, Reads: t.Reads, Scans: t.Scans, Commits: t.Log.Commits,
		Stalls: t.Stalls, Overloads: t.Overloads,
		MinorCompactions: t.MinorCompactions, MergingCompactions: t.MergingCompactions, MajorCompactions: t.MajorCompactions,
	}
	s.NodeID = sv.Self.ID()
	s.Tables, s.Tablets = sv.ServedTables()
	store := sv.Store()
	k := store.Repairs()
	s.Replicas = int64(store.Wanted())
	s.UnderReplicated, _ = blobs.Under(&k)
	s.Counting = !k.Known
	_, s.LogReplicas = blobs.OpenLogs(store)
	s.Nodes, s.NodesAlive = 1, 1
	if sv.Members.Ring() != nil {
		s.Nodes, s.NodesAlive = 0, 0
		for _, m := range sv.Members.Ring().Members() {
			if s.Nodes++; m.State == gossip.Alive {
				s.NodesAlive++
			}
		}
	}
	s.Voter = sv.Votes()
	s.Leader = sv.Leader() == sv.Self.ID()
	s.Master = sv.Master().Epoch() != 0
	for _, f := range store.Stats().Folders {
		s.Disks = append(s.Disks, blobs.Disk(sv.FS, &f))
	}
	return s.Append, nil
}

// ServedTables returns the numbers of users' tables and tablets served here, without those of dropped tables that are kept.
func (sv *Service) ServedTables() (tables, tablets int64) {
	served := sv.Users().Served()
	seen, dropped := map[uint64]bool{}, map[uint64]bool{}
	for name, id := range served.Tables() {
		dropped[id] = table.IsDropped(name)
	}
	for _, t := range served.Loaded() {
		if !dropped[t.Table] {
			seen[t.Table] = true
			tablets++
		}
	}
	return int64(len(seen)), tablets
}
