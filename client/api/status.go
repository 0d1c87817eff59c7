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

// figure is a number of a Status and its key.
type figure struct {
	key   string
	value *int64
}

func (s *Status) figures() []figure {
	return []figure{
		{"tables", &s.Tables}, {"tablets", &s.Tablets},
		{"memtable_bytes", &s.MemtableBytes}, {"memtable_bytes_max", &s.MemtableBytesMax},
		{"cache_bytes", &s.CacheBytes}, {"cache_hits", &s.CacheHits}, {"cache_misses", &s.CacheMisses},
		{"log_bytes", &s.LogBytes}, {"reads", &s.Reads}, {"scans", &s.Scans}, {"commits", &s.Commits},
		{"stalls", &s.Stalls}, {"overloads", &s.Overloads},
		{"minor_compactions", &s.MinorCompactions}, {"merging_compactions", &s.MergingCompactions},
		{"major_compactions", &s.MajorCompactions},
	}
}

// Append writes the result.
func (s *Status) Append(e *wire.Encoder) {
	figures := s.figures()
	e.Map(7 + len(figures))
	for _, f := range [][2]string{{"node", s.Node}, {"cluster", s.Cluster}, {"version", s.Version}, {"reason", s.Reason}} {
		e.Str(f[0])
		e.Str(f[1])
	}
	e.Str("uptime_s")
	e.Float(s.Uptime.Seconds())
	e.Str("ready")
	e.Bool(s.Ready)
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
	figures := s.figures()
	return decodeMap(d, func(key string) bool {
		switch key {
		case "node":
			s.Node = d.Str()
		case "cluster":
			s.Cluster = d.Str()
		case "version":
			s.Version = d.Str()
		case "reason":
			s.Reason = d.Str()
		case "uptime_s":
			s.Uptime = time.Duration(d.Float() * float64(time.Second))
		case "ready":
			s.Ready = d.Bool()
		case "disks":
			stick(d, decodeList(d, "disks", disksMax, func() error {
				s.Disks = append(s.Disks, DiskStatus{})
				return s.Disks[len(s.Disks)-1].decode(d)
			}))
		default:
			for _, f := range figures {
				if f.key == key {
					*f.value = d.Int()
					return true
				}
			}
			return false
		}
		return true
	})
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
