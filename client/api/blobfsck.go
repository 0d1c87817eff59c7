package api

import "github.com/steledb/stele/internal/wire"

// BlobFinding is an extent that has not the replicas that it should.
type BlobFinding struct {
	Kind   string // BlobOfPerson, BlobOfTable or BlobOfLog: what needs it
	Name   string // of that blob, table, or of the node whose log it is
	ID     string // of the blob or log
	Extent ExtentInfo
}

func (f *BlobFinding) fields() fields {
	return append(fields{{"kind", &f.Kind}, {"name", &f.Name}, {"id", &f.ID}}, f.Extent.fields()...)
}

// FsckStep is the result of blob_fsck: what was found in one step of a check of the whole store.
type FsckStep struct {
	Next string // where to go on; empty at the end
	// Done and Total tell how far the check is.
	Done, Total int64
	// Extents, Bytes and Replicas are what was looked at in this step; the last counts the good ones.
	Extents, Bytes, Replicas int64
	Findings                 []BlobFinding
	// Unnamed are blobs that nodes hold and nothing needs. Those that were written in the last hour may be
	// on their way to be needed.
	Unnamed []BlobInfo
	Silent  []string // names of nodes that did not answer when they were asked what they hold
}

// Bounds on what a client reads of a step.
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

// Append writes the result.
func (s *FsckStep) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode reads the result.
func (s *FsckStep) Decode(d *wire.Decoder) error {
	*s = FsckStep{}
	return s.fields().decode(d)
}
