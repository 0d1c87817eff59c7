package api

import "github.com/steledb/stele/internal/wire"

// Usage is the result of usage: what tables take, by name.
type Usage struct {
	Tables []TableUsage
	// Silent are the ids of nodes that did not answer, or are dead and have tablets of these tables still: what they
	// serve is missing.
	Silent []string
}

// TableUsage is what a table takes, on all nodes.
type TableUsage struct {
	Name string
	// Owner is whose quota of bytes the table counts for; empty: nobody's.
	Owner          string
	Tablets, Files int64
	// DiskBytes are of SSTables, each counted once, whatever its replicas; of one that two tablets
	// share since a split, each has the part with its rows, about.
	DiskBytes int64
	// UndividedBytes are those of them in files that were written before files said what they have of each
	// family. They are divided as the rest of the locality group is, until a compaction writes them anew.
	UndividedBytes int64
	// MemtableBytes are of memtables; InMemoryBytes of files of in-memory groups that are in memory.
	MemtableBytes, InMemoryBytes int64
	Families                     []FamilyUsage
	// Unserved is how many tablets nobody told of: METADATA gives them to nobody, or to a server that is gone, has not answered
	// or not loaded them yet. What they take is missing. -1: it is not known.
	Unserved int64
}

// FamilyUsage is a family's part of a TableUsage. Files and memtables are divided by what keys and
// values of each family come to before compression.
type FamilyUsage struct {
	Name                                    string // empty: what is left of dropped families
	Group                                   string
	DiskBytes, MemtableBytes, InMemoryBytes int64
	Files                                   int64 // that have some of it
}

// usageTablesMax bounds the tables, and the families of each, that are read.
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

// Append writes the result.
func (u *Usage) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode reads the result.
func (u *Usage) Decode(d *wire.Decoder) error {
	*u = Usage{}
	return u.fields().decode(d)
}
