package api

import (
	"bytes"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// TableInfo is the result of describe_table.
type TableInfo struct {
	Schema  *table.Schema
	Tablets []TabletInfo
	// SizesHidden means that the caller may not see the sizes of the table, as one without admin on it and read on the cluster:
	// tablets have no groups, and MemtableBytes is 0.
	SizesHidden bool
}

// TabletInfo is a tablet of a table.
type TabletInfo struct {
	ID   uint64
	Node string
	// The tablet holds the rows after Start, up to and including End. Empty means unbounded.
	Start, End    []byte
	MemtableBytes int64
	Groups        []GroupInfo
}

// GroupInfo holds the stored sizes of one locality group of a tablet.
type GroupInfo struct {
	Name     string `json:"name"`
	Files    int64  `json:"files"`     // SSTables
	Bytes    int64  `json:"bytes"`     // on disk
	RawBytes int64  `json:"raw_bytes"` // of keys and values, before compression
	Entries  int64  `json:"entries"`   // cells and deletions
}

// Bounds on what a client decodes of a table.
const (
	tabletsMax = 10_000_000
	groupsMax  = 1001
)

func (t *TableInfo) fields() fields {
	return fields{
		{"schema", &t.Schema},
		{"tablets", &list[TabletInfo]{all: &t.Tablets, fields: (*TabletInfo).fields, what: "tablets", max: tabletsMax}},
		{"sizes_hidden", &t.SizesHidden},
	}
}

func (t *TabletInfo) fields() fields {
	return fields{
		{"id", &t.ID}, {"node", &t.Node}, {"start", &t.Start}, {"end", &t.End}, {"memtable_bytes", &t.MemtableBytes},
		{"groups", &list[GroupInfo]{all: &t.Groups, fields: (*GroupInfo).fields, what: "groups", max: groupsMax}},
	}
}

func (g *GroupInfo) fields() fields {
	return fields{
		{"name", &g.Name}, {"files", &g.Files}, {"bytes", &g.Bytes}, {"raw_bytes", &g.RawBytes}, {"entries", &g.Entries},
	}
}

// Append encodes the result of describe_table.
func (t *TableInfo) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode decodes the result of describe_table.
func (t *TableInfo) Decode(d *wire.Decoder) error {
	*t = TableInfo{}
	return t.fields().decode(d)
}

// AppendSchemas encodes the result of list_tables.
func AppendSchemas(e *wire.Encoder, schemas []*table.Schema) {
	e.Array(len(schemas))
	for _, s := range schemas {
		table.AppendSchema(e, s)
	}
}

// DecodeSchemas decodes the result of list_tables.
func DecodeSchemas(d *wire.Decoder) (schemas []*table.Schema, err error) {
	err = decodeList(d, "tables", tabletsMax, func() error {
		s, err := table.DecodeSchema(d, nil)
		schemas = append(schemas, s)
		return err
	})
	return schemas, err
}

// RowSample is an element of the result of sample_row_keys: all rows up to Key take about Offset
// bytes. The last element has an empty Key, which means the end of the table.
type RowSample struct {
	Key    []byte
	Offset int64
}

// AppendSamples encodes the result of sample_row_keys: [[key, offset]…].
func AppendSamples(e *wire.Encoder, samples []RowSample) {
	e.Array(len(samples))
	for _, s := range samples {
		e.Array(2)
		e.Bin(s.Key)
		e.Int(s.Offset)
	}
}

// DecodeSamples decodes the result of sample_row_keys.
func DecodeSamples(d *wire.Decoder) (samples []RowSample, err error) {
	err = decodeList(d, "samples", tabletsMax, func() error {
		if n := d.Array(); n != 2 && d.Err() == nil {
			return malformed("sample of %d elements, want 2", n)
		}
		samples = append(samples, RowSample{bytes.Clone(d.Bytes()), d.Int()})
		return d.Err()
	})
	return samples, err
}
