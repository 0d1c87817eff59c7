package node

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/reply"
)

// version is set by the linker: -X github.com/steledb/stele/node.version=v1.2.3.
var version string

// Version returns the program's version.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// status also answers while the node starts, with little more than the reason.
func (n *Node) status(context.Context, *api.NamesRequest) (reply.Result, error) {
	if !n.serving.Load() {
		s := api.Status{Node: n.cfg.Name, NodeID: n.id(), Cluster: n.cluster(), Version: Version(), Uptime: time.Since(n.started), Reason: n.unready()}
		return s.Append, nil
	}
	t, reason := n.tabletStats(), n.unready()
	s := api.Status{
		Node: n.cfg.Name, Cluster: n.cluster(), Version: Version(), Uptime: time.Since(n.started),
		Ready: reason == "", Reason: reason,
		MemtableBytes: t.MemtableBytes, MemtableBytesMax: t.MemtableBytesMax,
		CacheBytes: t.Cache.Bytes, CacheHits: int64(t.Cache.Hits), CacheMisses: int64(t.Cache.Misses),
		ScanCacheHits: int64(t.Cache.RowHits), ScanCacheMisses: int64(t.Cache.RowMisses),
		OpenFileBytes: t.Memory.Open, PinnedBytes: t.Memory.Pinned, UnpinnedBytes: t.Memory.Lacking,
		LogBytes: t.LogPendingBytes, Reads: t.Reads, Scans: t.Scans, Commits: t.Log.Commits,
		Stalls: t.Stalls, Overloads: t.Overloads,
		MinorCompactions: t.MinorCompactions, MergingCompactions: t.MergingCompactions, MajorCompactions: t.MajorCompactions,
	}
	s.NodeID = n.id()
	s.Tables, s.Tablets = n.servedTables()
	store := n.store.Load()
	k := store.Repairs()
	s.Replicas = int64(store.Wanted())
	s.UnderReplicated, _ = under(&k)
	s.Counting = !k.Known
	_, s.LogReplicas = openLogs(store)
	s.Nodes, s.NodesAlive = 1, 1
	if n.members.Ring() != nil {
		s.Nodes, s.NodesAlive = 0, 0
		for _, m := range n.members.Ring().Members() {
			if s.Nodes++; m.State == gossip.Alive {
				s.NodesAlive++
			}
		}
	}
	group, _ := n.voter.Group()
	s.Voter = group != nil
	s.Leader = n.leader() == n.id()
	s.Master = n.master.Epoch() != 0
	for _, f := range store.Stats().Folders {
		d := api.DiskStatus{Path: f.Path, FreeBytes: f.FreeBytes, UsedBytes: f.BlobBytes + f.LogBytes, Retired: f.Retired != nil}
		d.TotalBytes, _ = totalBytes(f.Path)
		s.Disks = append(s.Disks, d)
	}
	return s.Append, nil
}

// servedTables returns the numbers of users' tables and tablets served here.
func (n *Node) servedTables() (tables, tablets int64) {
	seen := map[uint64]bool{}
	for _, t := range n.tablets().Served().Loaded() {
		seen[t.Table] = true
		tablets++
	}
	return int64(len(seen)), tablets
}
