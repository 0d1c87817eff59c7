package gossip

import (
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// MetaBytesMax bounds a node's meta as encoded; it is memberlist's bound.
const MetaBytesMax = 512

// metaVersion is the version of the meta's form. Fields are only ever appended, so
// that a reader of an older version reads what it knows.
const metaVersion = 1

// metaFields is the number of elements of version 1, the version included.
const metaFields = 13

// Meta is what a node tells of itself.
type Meta struct {
	// ID is the node's, and Start grows with each start of it. Neither changes while it
	// runs.
	ID    string
	Start uint64

	Name    string // for people
	RPC     string // host:port that clients and nodes reach it by
	HTTP    string // host:port of metrics and health, empty for none
	Zone    string // voters and replicas are spread across zones
	Version string // the program's

	CapacityBytes int64 // of its disks
	FreeBytes     int64 // for data, on its disks
	// Load is how much of what the node can do is in use: 0 is idle, 1 is all.
	Load float64

	Voter     bool   // in the Raft group
	RaftEpoch uint64 // of the Raft group that it knows
}

// encode writes the meta as a MessagePack array:
//
//	[version, id, start, name, rpc, http, zone, program version,
//	 capacity, free, load, voter, raft epoch]
func (m *Meta) encode() ([]byte, error) {
	var e wire.Encoder
	e.Array(metaFields)
	e.Uint(metaVersion)
	e.Str(m.ID)
	e.Uint(m.Start)
	for _, s := range []string{m.Name, m.RPC, m.HTTP, m.Zone, m.Version} {
		e.Str(s)
	}
	e.Int(m.CapacityBytes)
	e.Int(m.FreeBytes)
	e.Float(m.Load)
	e.Bool(m.Voter)
	e.Uint(m.RaftEpoch)
	if e.Len() > MetaBytesMax {
		return nil, fmt.Errorf("what node %s tells of itself takes %d bytes, over %d: shorten its name, zone or addresses", m.ID, e.Len(), MetaBytesMax)
	}
	return e.Bytes(), nil
}

// decodeMeta reads what encode writes, of this version or a later one.
func decodeMeta(b []byte) (Meta, error) {
	var m Meta
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return m, err
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if version := d.Uint(); n < metaFields || version < metaVersion {
		return m, fmt.Errorf("meta of version %d with %d fields is not known", version, n)
	}
	m.ID = d.Str()
	m.Start = d.Uint()
	for _, s := range []*string{&m.Name, &m.RPC, &m.HTTP, &m.Zone, &m.Version} {
		*s = d.Str()
	}
	m.CapacityBytes = d.Int()
	m.FreeBytes = d.Int()
	m.Load = d.Float()
	m.Voter = d.Bool()
	m.RaftEpoch = d.Uint()
	if d.Err() == nil && m.ID == "" {
		return m, fmt.Errorf("meta names no node")
	}
	return m, d.Err()
}
