package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Pong is the result of ping.
type Pong struct {
	Server   string // "stele"
	Version  string // of the program
	Protocol int    // ProtocolVersion
	Node     string
	Cluster  string
}

// Append writes the result.
func (p *Pong) Append(e *wire.Encoder) {
	e.Map(5)
	e.Str("server")
	e.Str(p.Server)
	e.Str("version")
	e.Str(p.Version)
	e.Str("protocol")
	e.Int(int64(p.Protocol))
	e.Str("node")
	e.Str(p.Node)
	e.Str("cluster")
	e.Str(p.Cluster)
}

// Decode reads the result.
func (p *Pong) Decode(d *wire.Decoder) error {
	*p = Pong{}
	return decodeMap(d, func(key string) bool {
		switch key {
		case "server":
			p.Server = d.Str()
		case "version":
			p.Version = d.Str()
		case "protocol":
			p.Protocol = int(d.Int())
		case "node":
			p.Node = d.Str()
		case "cluster":
			p.Cluster = d.Str()
		default:
			return false
		}
		return true
	})
}

// Status is the result of status: figures of a node, of the moment or since it
// started.
type Status struct {
	Node    string
	Cluster string
	Version string
	Uptime  time.Duration // seconds on the wire
	// Ready tells whether the node serves. Reason says why not.
	Ready  bool
	Reason string

	NodeID string // Node is its name
	// Voter, Leader and Master are the node's parts in the lock service's group and in
	// the cluster.
	Voter, Leader, Master bool
	// Nodes is how many nodes this one knows of, itself included, NodesAlive how many
	// of them gossip hears of.
	Nodes, NodesAlive int64

	Tables, Tablets   int64
	MemtableBytes     int64
	MemtableBytesMax  int64
	CacheBytes        int64
	CacheHits         int64
	CacheMisses       int64
	LogBytes          int64 // of commit log that recovery would read
	Reads, Scans      int64
	Commits           int64 // row mutations made durable
	Stalls, Overloads int64 // writes that waited for memory; those refused for it

	MinorCompactions, MergingCompactions, MajorCompactions int64

	Disks []DiskStatus
}

// DiskStatus is one data folder of a node.
type DiskStatus struct {
	Path                  string
	TotalBytes, FreeBytes int64 // of the file system
	UsedBytes             int64 // by this folder
	Retired               bool  // failed; no longer written to
}

// figure is a number of a result and its key.
type figure struct {
	key   string
	value *int64
}

func (s *Status) figures() []figure {
	return []figure{
		{"nodes", &s.Nodes}, {"nodes_alive", &s.NodesAlive},
		{"tables", &s.Tables}, {"tablets", &s.Tablets},
		{"memtable_bytes", &s.MemtableBytes}, {"memtable_bytes_max", &s.MemtableBytesMax},
		{"cache_bytes", &s.CacheBytes}, {"cache_hits", &s.CacheHits}, {"cache_misses", &s.CacheMisses},
		{"log_bytes", &s.LogBytes}, {"reads", &s.Reads}, {"scans", &s.Scans}, {"commits", &s.Commits},
		{"stalls", &s.Stalls}, {"overloads", &s.Overloads},
		{"minor_compactions", &s.MinorCompactions}, {"merging_compactions", &s.MergingCompactions},
		{"major_compactions", &s.MajorCompactions},
	}
}

func (s *Status) texts() []text {
	return []text{{"node", &s.Node}, {"node_id", &s.NodeID}, {"cluster", &s.Cluster}, {"version", &s.Version}, {"reason", &s.Reason}}
}

func (s *Status) flags() []flag {
	return []flag{{"ready", &s.Ready}, {"voter", &s.Voter}, {"leader", &s.Leader}, {"master", &s.Master}}
}

// Append writes the result.
func (s *Status) Append(e *wire.Encoder) {
	texts, flags, figures := s.texts(), s.flags(), s.figures()
	e.Map(len(texts) + len(flags) + len(figures) + 2)
	appendTexts(e, texts)
	appendFlags(e, flags)
	e.Str("uptime_s")
	e.Float(s.Uptime.Seconds())
	for _, f := range figures {
		e.Str(f.key)
		e.Int(*f.value)
	}
	e.Str("disks")
	e.Array(len(s.Disks))
	for i := range s.Disks {
		s.Disks[i].append(e)
	}
}

func (k *DiskStatus) append(e *wire.Encoder) {
	e.Map(5)
	e.Str("path")
	e.Str(k.Path)
	e.Str("total_bytes")
	e.Int(k.TotalBytes)
	e.Str("free_bytes")
	e.Int(k.FreeBytes)
	e.Str("used_bytes")
	e.Int(k.UsedBytes)
	e.Str("retired")
	e.Bool(k.Retired)
}

// disksMax bounds the disks of a node that a client reads.
const disksMax = 10_000

// Decode reads the result.
func (s *Status) Decode(d *wire.Decoder) error {
	*s = Status{}
	texts, flags, figures := s.texts(), s.flags(), s.figures()
	return decodeMap(d, func(key string) bool {
		switch key {
		case "uptime_s":
			s.Uptime = time.Duration(d.Float() * float64(time.Second))
		case "disks":
			stick(d, decodeList(d, "disks", disksMax, func() error {
				s.Disks = append(s.Disks, DiskStatus{})
				return s.Disks[len(s.Disks)-1].decode(d)
			}))
		default:
			return decodeText(d, key, texts) || decodeFlag(d, key, flags) || decodeFigure(d, key, figures)
		}
		return true
	})
}

// decodeFigure reads the value of key, or returns false for one that is no figure's.
func decodeFigure(d *wire.Decoder, key string, figures []figure) bool {
	for _, f := range figures {
		if f.key == key {
			*f.value = d.Int()
			return true
		}
	}
	return false
}

func (k *DiskStatus) decode(d *wire.Decoder) error {
	return decodeMap(d, func(key string) bool {
		switch key {
		case "path":
			k.Path = d.Str()
		case "total_bytes":
			k.TotalBytes = d.Int()
		case "free_bytes":
			k.FreeBytes = d.Int()
		case "used_bytes":
			k.UsedBytes = d.Int()
		case "retired":
			k.Retired = d.Bool()
		default:
			return false
		}
		return true
	})
}

// TableInfo is the result of describe_table.
type TableInfo struct {
	Schema  *table.Schema
	Tablets []TabletInfo
}

// TabletInfo is a tablet of a table.
type TabletInfo struct {
	ID   uint64
	Node string
	// The tablet holds the rows that are after Start and not after End. Empty is no
	// bound.
	Start, End    []byte
	MemtableBytes int64
	Groups        []GroupInfo
}

// GroupInfo is what a tablet stores of one locality group.
type GroupInfo struct {
	Name     string
	Files    int64 // SSTables
	Bytes    int64 // on disk
	RawBytes int64 // of keys and values, before compression
	Entries  int64 // cells and deletions
}
