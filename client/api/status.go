package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// Pong is the result of ping.
type Pong struct {
	Server   string // "stele"
	Version  string // of the program
	Protocol int    // ProtocolVersion
	Node     string
	Cluster  string
}

func (p *Pong) fields() fields {
	return fields{
		{"server", &p.Server}, {"version", &p.Version}, {"protocol", &p.Protocol}, {"node", &p.Node}, {"cluster", &p.Cluster},
	}
}

// Append encodes the result.
func (p *Pong) Append(e *wire.Encoder) { p.fields().append(e) }

// Decode decodes the result.
func (p *Pong) Decode(d *wire.Decoder) error {
	*p = Pong{}
	return p.fields().decode(d)
}

// Status is the result of status: gauges of a node, and counters since its start.
type Status struct {
	Node    string
	Cluster string
	Version string
	Uptime  time.Duration // seconds on the wire
	// Ready reports whether the node serves requests; Reason is why it does not.
	Ready  bool
	Reason string

	NodeID string // Node is its name
	// Voter, Leader and Master are the node's roles in the lock service's group and in the cluster.
	Voter, Leader, Master bool
	// Nodes is the number of nodes known to this one, including itself. NodesAlive is the number of
	// those that gossip reports alive.
	Nodes, NodesAlive int64

	Tables, Tablets  int64
	MemtableBytes    int64
	MemtableBytesMax int64
	CacheBytes       int64
	CacheHits        int64
	CacheMisses      int64
	// ScanCacheHits and ScanCacheMisses count lookups of a row in a file.
	ScanCacheHits, ScanCacheMisses int64
	// OpenFileBytes is the memory of the indexes and filters of open files, PinnedBytes that of
	// in-memory locality groups. UnpinnedBytes is the part of in-memory groups that exceeds their
	// memory and is read through the cache.
	OpenFileBytes, PinnedBytes, UnpinnedBytes int64

	LogBytes int64 // of the commit log, to be read in a recovery
	// Replicas is the intended number of replicas of an extent, LogReplicas that of the commit log
	// being written. UnderReplicated is the number of under-replicated extents that this node
	// repairs. While Counting is set, the node has not yet scanned its extents after a start or a
	// change of the members.
	Replicas, LogReplicas, UnderReplicated int64
	Counting                               bool
	Reads, Scans                           int64
	Commits                                int64 // row mutations made durable
	Stalls, Overloads                      int64 // writes that waited for memory; writes rejected for lack of it

	MinorCompactions, MergingCompactions, MajorCompactions int64

	Disks []DiskStatus
}

// DiskStatus is one data directory of a node.
type DiskStatus struct {
	Path       string `json:"path"`
	TotalBytes int64  `json:"total_bytes"` // of the file system
	FreeBytes  int64  `json:"free_bytes"`  // of the file system
	UsedBytes  int64  `json:"used_bytes"`  // by this directory
	Retired    bool   `json:"retired"`     // failed; no longer written to
}

// disksMax is the maximum number of disks of a node that a client decodes.
const disksMax = 10_000

func (s *Status) fields() fields {
	return fields{
		{"node", &s.Node}, {"node_id", &s.NodeID}, {"cluster", &s.Cluster}, {"version", &s.Version}, {"reason", &s.Reason},
		{"ready", &s.Ready}, {"voter", &s.Voter}, {"leader", &s.Leader}, {"master", &s.Master},
		{"uptime_s", &s.Uptime},
		{"nodes", &s.Nodes}, {"nodes_alive", &s.NodesAlive},
		{"tables", &s.Tables}, {"tablets", &s.Tablets},
		{"memtable_bytes", &s.MemtableBytes}, {"memtable_bytes_max", &s.MemtableBytesMax},
		{"cache_bytes", &s.CacheBytes}, {"cache_hits", &s.CacheHits}, {"cache_misses", &s.CacheMisses},
		{"scan_cache_hits", &s.ScanCacheHits}, {"scan_cache_misses", &s.ScanCacheMisses},
		{"open_file_bytes", &s.OpenFileBytes}, {"pinned_bytes", &s.PinnedBytes}, {"unpinned_bytes", &s.UnpinnedBytes},
		{"log_bytes", &s.LogBytes}, {"replicas", &s.Replicas}, {"log_replicas", &s.LogReplicas},
		{"under_replicated", &s.UnderReplicated}, {"counting", &s.Counting}, {"reads", &s.Reads}, {"scans", &s.Scans}, {"commits", &s.Commits},
		{"stalls", &s.Stalls}, {"overloads", &s.Overloads},
		{"minor_compactions", &s.MinorCompactions}, {"merging_compactions", &s.MergingCompactions},
		{"major_compactions", &s.MajorCompactions},
		{"disks", &list[DiskStatus]{all: &s.Disks, fields: (*DiskStatus).fields, what: "disks", max: disksMax}},
	}
}

func (k *DiskStatus) fields() fields {
	return fields{
		{"path", &k.Path}, {"total_bytes", &k.TotalBytes}, {"free_bytes", &k.FreeBytes}, {"used_bytes", &k.UsedBytes},
		{"retired", &k.Retired},
	}
}

// Append encodes the result.
func (s *Status) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *Status) Decode(d *wire.Decoder) error {
	*s = Status{}
	return s.fields().decode(d)
}
