package api

import (
	"errors"
	"net/url"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
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
	// Error is why the directory failed, FailedForS how many seconds ago.
	Error      string  `json:"error,omitempty"`
	FailedForS float64 `json:"failed_for_s,omitempty"`
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
		{"retired", &k.Retired}, {"error", &k.Error}, {"failed_for_s", &k.FailedForS},
	}
}

// Append encodes the result.
func (s *Status) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *Status) Decode(d *wire.Decoder) error {
	*s = Status{}
	return s.fields().decode(d)
}

// ErrNoCluster means that the registry has no cluster with that name.
var ErrNoCluster = errors.New("no such cluster")

// Bounds of the registry of clusters.
const (
	ClustersMax        = 50
	ClusterAddrsMax    = 100
	ClusterSecretMax   = 64 << 10 // bytes of a credential
	ClusterConsoleMax  = 1000     // bytes of the address of a console
	ClusterProblemsMax = 10
)

// ClusterUnreachable is the state of a cluster that does not answer as it should; other states are the first words of a status.
const ClusterUnreachable = "unreachable"

// AddClusterRequest is a request for add_cluster.
type AddClusterRequest struct {
	Name    string
	Addrs   []string // of nodes of the cluster
	Secret  []byte   // access token, or certificate and key; none for an open cluster
	Console string   // URL of its console; empty: unknown
	Options Options
}

// Append encodes the parameters.
func (r *AddClusterRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, given := range []bool{len(r.Secret) > 0, r.Console != ""} {
		if given {
			n++
		}
	}
	e.Array(2 + min(n, 1))
	e.Str(r.Name)
	e.Array(len(r.Addrs))
	for _, addr := range r.Addrs {
		e.Str(addr)
	}
	r.Options.append(e, n)
	appendBytes(e, "secret", r.Secret)
	if r.Console != "" {
		e.Str("console")
		e.Str(r.Console)
	}
}

// Decode decodes the n parameters in d.
func (r *AddClusterRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodAddCluster, n, 2, 3); err != nil {
		return err
	}
	*r = AddClusterRequest{Name: d.Str()}
	if err := decodeList(d, "addresses", ClusterAddrsMax, func() error {
		r.Addrs = append(r.Addrs, d.Str())
		return nil
	}); err != nil {
		return err
	}
	if err := r.Options.decode(d, n > 2, r); err != nil {
		return err
	}
	if len(r.Addrs) == 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: addresses are required", MethodAddCluster)
	}
	if err := within("bytes of the address of a console", len(r.Console), ClusterConsoleMax); err != nil {
		return err
	}
	if u, err := url.Parse(r.Console); r.Console != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return rpc.Errorf(rpc.CodeBadRequest, "console %.80q is no URL such as https://host:7108", r.Console)
	}
	return within("bytes of a credential", len(r.Secret), ClusterSecretMax)
}

func (r *AddClusterRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "secret":
		r.Secret = append([]byte(nil), optionalBytes(d)...)
	case "console":
		r.Console = d.Str()
	default:
		return false
	}
	return true
}

// ClusterInfo is a cluster of the registry, and its state when the node that answers last asked it.
type ClusterInfo struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	Addrs   []string `json:"addrs"`
	Console string   `json:"console"` // URL; empty: unknown
	By      string   `json:"by"`      // the user who added it; empty on an open cluster
	// State is the first word of the cluster's status, or ClusterUnreachable; Sentence is its rest, or why there is no answer.
	State    string   `json:"state"`
	Sentence string   `json:"sentence"`
	Problems []string `json:"problems"`
	Version  string   `json:"version"` // of the node that answered
	// Nodes and the others are 0 if they are unknown, Tablets -1.
	Nodes      int64 `json:"nodes"`
	NodesAlive int64 `json:"nodes_alive"`
	Tablets    int64 `json:"tablets"`
	DiskBytes  int64 `json:"disk_bytes"`
	DiskFree   int64 `json:"disk_free_bytes"`
	AtMS       int64 `json:"at_ms"` // when it was asked, in ms since 1970
}

func (x *ClusterInfo) fields() fields {
	return fields{
		{"name", &x.Name}, {"id", &x.ID}, {"addrs", &texts{&x.Addrs, "addresses", ClusterAddrsMax}}, {"console", &x.Console}, {"by", &x.By},
		{"state", &x.State}, {"sentence", &x.Sentence}, {"problems", &texts{&x.Problems, "problems", ClusterProblemsMax}}, {"version", &x.Version},
		{"nodes", &x.Nodes}, {"nodes_alive", &x.NodesAlive}, {"tablets", &x.Tablets}, {"disk_bytes", &x.DiskBytes}, {"disk_free_bytes", &x.DiskFree}, {"at_ms", &x.AtMS},
	}
}

// Clusters is the result of list_clusters, by name.
type Clusters struct{ Clusters []ClusterInfo }

func (x *Clusters) fields() fields {
	return fields{{"clusters", &list[ClusterInfo]{all: &x.Clusters, fields: (*ClusterInfo).fields, what: "clusters", max: ClustersMax}}}
}

// Append encodes the result.
func (x *Clusters) Append(e *wire.Encoder) { x.fields().append(e) }

// Decode decodes the result.
func (x *Clusters) Decode(d *wire.Decoder) error {
	*x = Clusters{}
	return x.fields().decode(d)
}
