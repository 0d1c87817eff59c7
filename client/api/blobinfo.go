package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// BlobUpload is the result of blob_open.
type BlobUpload struct {
	Upload uint64
	ID     string // of the future blob
}

func (u *BlobUpload) fields() fields { return fields{{"upload", &u.Upload}, {"id", &u.ID}} }

// Append encodes the result.
func (u *BlobUpload) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode decodes the result.
func (u *BlobUpload) Decode(d *wire.Decoder) error {
	*u = BlobUpload{}
	return u.fields().decode(d)
}

// The kinds of blobs, by what refers to them.
const (
	BlobOfUser   = "blob"    // stored by a user
	BlobOfBackup = "backup"  // the manifest of a backup, or a file that only backups have
	BlobOfTable  = "sstable" // a file of a table
	BlobOfLog    = "log"     // part of a node's commit log
	BlobUnnamed  = "unnamed" // not referred to: being written, or garbage
)

// BlobInfo is the result of blob_seal, and an element of the result of blob_list.
type BlobInfo struct {
	ID      string
	Kind    string // BlobOfUser and the other kinds
	Name    string // of a user's blob; the table of an SSTable
	Bytes   int64
	Extents int64
	// Replicas is the smallest number of replicas of an extent of the blob, if that was requested.
	Replicas int64
	Created  time.Time // in milliseconds on the wire
}

func (b *BlobInfo) fields() fields {
	return fields{
		{"id", &b.ID}, {"kind", &b.Kind}, {"name", &b.Name}, {"bytes", &b.Bytes}, {"extents", &b.Extents},
		{"replicas", &b.Replicas}, {"created_ms", (*millis)(&b.Created)},
	}
}

// Append encodes the result.
func (b *BlobInfo) Append(e *wire.Encoder) { b.fields().append(e) }

// Decode decodes the result.
func (b *BlobInfo) Decode(d *wire.Decoder) error {
	*b = BlobInfo{}
	return b.fields().decode(d)
}

// BlobPage is the result of blob_list.
type BlobPage struct {
	Blobs []BlobInfo
	Next  string // the argument of the next call; empty at the end
	// Silent lists the names of nodes that did not answer. Blobs that only they hold are missing.
	Silent []string
}

func (p *BlobPage) fields() fields {
	return fields{
		{"blobs", &list[BlobInfo]{all: &p.Blobs, fields: (*BlobInfo).fields, what: "blobs", max: BlobListMax}},
		{"next", &p.Next}, {"silent", &texts{&p.Silent, "silent", nodesMax}},
	}
}

// Append encodes the result.
func (p *BlobPage) Append(e *wire.Encoder) { p.fields().append(e) }

// Decode decodes the result.
func (p *BlobPage) Decode(d *wire.Decoder) error {
	*p = BlobPage{}
	return p.fields().decode(d)
}

// The states of a replica.
const (
	ReplicaGood        = "good"
	ReplicaMissing     = "missing"     // the node should have it, but does not
	ReplicaCorrupt     = "rotten"      // corrupt
	ReplicaUnreachable = "unreachable" // the node did not answer
)

// ReplicaInfo is one node's replica of an extent.
type ReplicaInfo struct {
	Node   string `json:"node"`             // its id
	Name   string `json:"name"`             // for display
	State  string `json:"state"`            // ReplicaGood and the other states
	File   string `json:"file,omitempty"`   // of a corrupt replica: its file
	Offset int64  `json:"offset,omitempty"` // in the file
	Reason string `json:"reason,omitempty"` // why the replica is not good
}

func (r *ReplicaInfo) fields() fields {
	return fields{
		{"node", &r.Node}, {"name", &r.Name}, {"state", &r.State}, {"file", &r.File}, {"offset", &r.Offset}, {"reason", &r.Reason},
	}
}

// ExtentInfo is an extent and its replicas.
type ExtentInfo struct {
	Index             int64         `json:"index"`
	Bytes             int64         `json:"bytes"`  // -1 for the open extent of a log
	ReplicationFactor int64         `json:"wanted"` // the number of replicas to maintain
	Replicas          []ReplicaInfo `json:"replicas"`
}

func (x *ExtentInfo) fields() fields {
	return fields{
		{"index", &x.Index}, {"bytes", &x.Bytes}, {"wanted", &x.ReplicationFactor},
		{"replicas", &list[ReplicaInfo]{all: &x.Replicas, fields: (*ReplicaInfo).fields, what: "replicas", max: nodesMax}},
	}
}

// Count returns the number of replicas in a state.
func (x *ExtentInfo) Count(state string) int {
	n := 0
	for i := range x.Replicas {
		if x.Replicas[i].State == state {
			n++
		}
	}
	return n
}

// BlobStatus is the result of blob_stat: a blob and some of its extents.
type BlobStatus struct {
	BlobInfo
	Parts []ExtentInfo
}

func (s *BlobStatus) fields() fields {
	return append(s.BlobInfo.fields(), field{"parts", extentList(&s.Parts)})
}

func extentList(all *[]ExtentInfo) *list[ExtentInfo] {
	return &list[ExtentInfo]{all: all, fields: (*ExtentInfo).fields, what: "extents", max: BlobListMax}
}

// Append encodes the result.
func (s *BlobStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *BlobStatus) Decode(d *wire.Decoder) error {
	*s = BlobStatus{}
	return s.fields().decode(d)
}

// millis is a time, encoded as milliseconds since 1970.
type millis time.Time

func (m *millis) append(e *wire.Encoder) { e.Int(time.Time(*m).UnixMilli()) }

func (m *millis) decode(d *wire.Decoder) error {
	*m = millis(time.UnixMilli(d.Int()))
	return d.Err()
}

// texts is an array of strings.
type texts struct {
	all  *[]string
	what string
	max  int64
}

func (t *texts) clear() { *t.all = []string{} }

func (t *texts) append(e *wire.Encoder) {
	e.Array(len(*t.all))
	for _, s := range *t.all {
		e.Str(s)
	}
}

func (t *texts) decode(d *wire.Decoder) error {
	return decodeList(d, t.what, t.max, func() error {
		*t.all = append(*t.all, d.Str())
		return d.Err()
	})
}
