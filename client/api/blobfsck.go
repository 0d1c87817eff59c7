package api

import "github.com/steledb/stele/internal/wire"

// BlobFinding is an extent with missing or bad replicas.
type BlobFinding struct {
	Kind string `json:"kind"` // BlobOfUser, BlobOfTable, BlobOfBackup or BlobOfLog: the kind of its owner
	Name string `json:"name"` // of the blob, of the table, or of the node whose log it is
	ID   string `json:"id"`   // of the blob or log
	ExtentInfo
}

func (f *BlobFinding) fields() fields {
	return append(fields{{"kind", &f.Kind}, {"name", &f.Name}, {"id", &f.ID}}, f.ExtentInfo.fields()...)
}

// FsckStep is the result of blob_fsck: one step of a check of the whole block store.
type FsckStep struct {
	Next string // the argument of the next step; empty at the end
	// Done and Total are the progress of the check.
	Done, Total int64
	// Extents, Bytes and Replicas count what this step checked; Replicas counts the good ones.
	Extents, Bytes, Replicas int64
	Findings                 []BlobFinding
	// Unnamed lists blobs that nodes hold and nothing refers to. Blobs written in the last hour may
	// still get a reference.
	Unnamed []BlobInfo
	Silent  []string // names of nodes that did not list what they hold
}

// Bounds on what a client decodes of a step.
const (
	fsckFindingsMax = 100_000
	fsckUnnamedMax  = 100_000
)

func (s *FsckStep) fields() fields {
	return fields{
		{"next", &s.Next}, {"done", &s.Done}, {"total", &s.Total}, {"extents", &s.Extents}, {"bytes", &s.Bytes}, {"replicas", &s.Replicas},
		{"findings", &list[BlobFinding]{all: &s.Findings, fields: (*BlobFinding).fields, what: "findings", max: fsckFindingsMax}},
		{"unnamed", &list[BlobInfo]{all: &s.Unnamed, fields: (*BlobInfo).fields, what: "unnamed", max: fsckUnnamedMax}},
		{"silent", &texts{&s.Silent, "silent", nodesMax}},
	}
}

// Append encodes the result.
func (s *FsckStep) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *FsckStep) Decode(d *wire.Decoder) error {
	*s = FsckStep{}
	return s.fields().decode(d)
}
