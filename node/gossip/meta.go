package gossip

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// MetaBytesMax bounds a node's encoded meta, in bytes; it is memberlist's bound.
const MetaBytesMax = 512

// metaVersion is the version of the encoding. Fields are only ever appended, so that older versions
// can read newer metas.
const metaVersion = 1

const (
	// metaFieldsMin is the number of elements of the first version 1, including the version.
	metaFieldsMin = 13
	// metaFields is the number of elements that this version knows.
	metaFields = 15
)

// Meta is the information that a node announces about itself.
type Meta struct {
	// ID is the node's id. Start grows with each start. Neither changes while the node runs.
	ID    string
	Start uint64

	Name    string // for messages
	RPC     string // host:port for clients and nodes
	HTTP    string // host:port of metrics and health, empty for none
	Zone    string // voters and replicas are spread across zones
	Version string // program version

	CapacityBytes int64 // of its disks, in total
	FreeBytes     int64 // free for data, on its disks

	Voter     bool   // a voter of the Raft group
	RaftEpoch uint64 // of the Raft group that it knows

	// GrowthBytes is by how much the used space of its disks grows in a day, as GrowthOver shows: an hour, a day or a week, in s. Zero
	// if unknown. Nodes of older versions do not announce them.
	GrowthBytes int64
	GrowthOver  uint64
}

// encode returns the meta as a MessagePack array:
//
//	[version, id, start, name, rpc, http, zone, program version,
//	 capacity, free, 0.0, voter, raft epoch, growth, growth over]
//
// The 0.0 is in the place of a field that is no longer used.
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
	e.Float(0)
	e.Bool(m.Voter)
	e.Uint(m.RaftEpoch)
	e.Int(m.GrowthBytes)
	e.Uint(m.GrowthOver)
	if e.Len() > MetaBytesMax {
		return nil, fmt.Errorf("meta of node %s has %d bytes, over %d: shorten its name, zone or addresses", m.ID, e.Len(), MetaBytesMax)
	}
	return e.Bytes(), nil
}

// decodeMeta decodes the output of encode, of this version or a later one.
func decodeMeta(b []byte) (Meta, error) {
	var m Meta
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return m, err
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if version := d.Uint(); n < metaFieldsMin || version < metaVersion {
		return m, fmt.Errorf("unknown meta version %d with %d fields", version, n)
	}
	m.ID = d.Str()
	m.Start = d.Uint()
	for _, s := range []*string{&m.Name, &m.RPC, &m.HTTP, &m.Zone, &m.Version} {
		*s = d.Str()
	}
	m.CapacityBytes = d.Int()
	m.FreeBytes = d.Int()
	d.Float() // unused
	m.Voter = d.Bool()
	m.RaftEpoch = d.Uint()
	if n >= metaFields { // older versions have no growth
		m.GrowthBytes = d.Int()
		m.GrowthOver = d.Uint()
	}
	if d.Err() == nil && m.ID == "" {
		return m, errors.New("meta has no node id")
	}
	return m, d.Err()
}
