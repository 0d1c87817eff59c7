package api

import "github.com/steledb/stele/internal/wire"

// Usage is the result of usage: the space used by tables, sorted by name.
type Usage struct {
	Tables []TableUsage
	// Silent lists the ids of nodes that did not answer, and of dead nodes to which tablets of
	// these tables are still assigned. The usage of the tablets that they serve is missing.
	Silent []string
}

// TableUsage is the space used by a table on all nodes.
type TableUsage struct {
	Name string `json:"table"`
	// Owner is the user whose byte quota the table counts against; empty if there is none.
	Owner   string `json:"owner,omitempty"`
	Tablets int64  `json:"tablets"`
	Files   int64  `json:"files"`
	// DiskBytes is the size of SSTables, without replicas. A file that two tablets share after a
	// split counts for each with the approximate size of its own rows.
	DiskBytes int64 `json:"disk_bytes"`
	// UndividedBytes is the part of DiskBytes in files of an older format, which lacks sizes by
	// family. They are divided in proportion to the rest of the locality group until a compaction
	// rewrites them.
	UndividedBytes int64 `json:"undivided_bytes"`
	// MemtableBytes is the size of memtables, InMemoryBytes that of files of in-memory groups in
	// memory.
	MemtableBytes int64         `json:"memtable_bytes"`
	InMemoryBytes int64         `json:"in_memory_bytes"`
	Families      []FamilyUsage `json:"families"`
	// Unserved is the number of tablets whose usage is missing: they are unassigned, or their
	// server is gone, has not answered or has not loaded them yet. -1 means unknown.
	Unserved int64 `json:"unserved_tablets"`
}

// FamilyUsage is a family's part of a TableUsage. Files and memtables are divided in proportion to
// the uncompressed keys and values of each family.
type FamilyUsage struct {
	Name          string `json:"family"` // empty: remains of dropped families
	Group         string `json:"group"`
	Files         int64  `json:"files"` // files that contain cells of the family
	DiskBytes     int64  `json:"disk_bytes"`
	MemtableBytes int64  `json:"memtable_bytes"`
	InMemoryBytes int64  `json:"in_memory_bytes"`
}

// usageTablesMax is the maximum number of tables, and of families of each, that a client decodes.
const usageTablesMax = 1_000_000

func (u *Usage) fields() fields {
	return fields{
		{"tables", &list[TableUsage]{all: &u.Tables, fields: (*TableUsage).fields, what: "tables", max: usageTablesMax}},
		{"silent", &texts{&u.Silent, "silent", nodesMax}},
	}
}

func (u *TableUsage) fields() fields {
	return fields{
		{"name", &u.Name}, {"owner", &u.Owner}, {"tablets", &u.Tablets}, {"files", &u.Files}, {"disk_bytes", &u.DiskBytes}, {"undivided_bytes", &u.UndividedBytes},
		{"memtable_bytes", &u.MemtableBytes}, {"in_memory_bytes", &u.InMemoryBytes},
		{"families", &list[FamilyUsage]{all: &u.Families, fields: (*FamilyUsage).fields, what: "families", max: usageTablesMax}},
		{"unserved_tablets", &u.Unserved},
	}
}

func (f *FamilyUsage) fields() fields {
	return fields{
		{"name", &f.Name}, {"group", &f.Group}, {"disk_bytes", &f.DiskBytes}, {"memtable_bytes", &f.MemtableBytes},
		{"in_memory_bytes", &f.InMemoryBytes}, {"files", &f.Files},
	}
}

// Append encodes the result.
func (u *Usage) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode decodes the result.
func (u *Usage) Decode(d *wire.Decoder) error {
	*u = Usage{}
	return u.fields().decode(d)
}
