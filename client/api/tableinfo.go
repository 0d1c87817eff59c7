package api

import (
	"bytes"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Append writes the result of describe_table.
func (t *TableInfo) Append(e *wire.Encoder) {
	e.Map(2)
	e.Str("schema")
	table.AppendSchema(e, t.Schema)
	e.Str("tablets")
	e.Array(len(t.Tablets))
	for i := range t.Tablets {
		t.Tablets[i].append(e)
	}
}

func (t *TabletInfo) append(e *wire.Encoder) {
	e.Map(6)
	e.Str("id")
	e.Uint(t.ID)
	e.Str("node")
	e.Str(t.Node)
	e.Str("start")
	e.Bin(t.Start)
	e.Str("end")
	e.Bin(t.End)
	e.Str("memtable_bytes")
	e.Int(t.MemtableBytes)
	e.Str("groups")
	e.Array(len(t.Groups))
	for i := range t.Groups {
		t.Groups[i].append(e)
	}
}

func (g *GroupInfo) append(e *wire.Encoder) {
	e.Map(5)
	e.Str("name")
	e.Str(g.Name)
	e.Str("files")
	e.Int(g.Files)
	e.Str("bytes")
	e.Int(g.Bytes)
	e.Str("raw_bytes")
	e.Int(g.RawBytes)
	e.Str("entries")
	e.Int(g.Entries)
}

// Bounds on what a client reads of a table.
const (
	tabletsMax = 10_000_000
	groupsMax  = 1001
)

// Decode reads the result of describe_table.
func (t *TableInfo) Decode(d *wire.Decoder) error {
	*t = TableInfo{}
	return decodeMap(d, func(key string) bool {
		switch key {
		case "schema":
			t.Schema, _ = table.DecodeSchema(d, nil) // its error sticks to d
		case "tablets":
			stick(d, decodeList(d, "tablets", tabletsMax, func() error {
				t.Tablets = append(t.Tablets, TabletInfo{})
				return t.Tablets[len(t.Tablets)-1].decode(d)
			}))
		default:
			return false
		}
		return true
	})
}

func (t *TabletInfo) decode(d *wire.Decoder) error {
	return decodeMap(d, func(key string) bool {
		switch key {
		case "id":
			t.ID = d.Uint()
		case "node":
			t.Node = d.Str()
		case "start":
			t.Start = bytes.Clone(d.Bytes())
		case "end":
			t.End = bytes.Clone(d.Bytes())
		case "memtable_bytes":
			t.MemtableBytes = d.Int()
		case "groups":
			stick(d, decodeList(d, "groups", groupsMax, func() error {
				t.Groups = append(t.Groups, GroupInfo{})
				return t.Groups[len(t.Groups)-1].decode(d)
			}))
		default:
			return false
		}
		return true
	})
}

func (g *GroupInfo) decode(d *wire.Decoder) error {
	return decodeMap(d, func(key string) bool {
		switch key {
		case "name":
			g.Name = d.Str()
		case "files":
			g.Files = d.Int()
		case "bytes":
			g.Bytes = d.Int()
		case "raw_bytes":
			g.RawBytes = d.Int()
		case "entries":
			g.Entries = d.Int()
		default:
			return false
		}
		return true
	})
}

// AppendSchemas writes the result of list_tables.
func AppendSchemas(e *wire.Encoder, schemas []*table.Schema) {
	e.Array(len(schemas))
	for _, s := range schemas {
		table.AppendSchema(e, s)
	}
}

// DecodeSchemas reads the result of list_tables.
func DecodeSchemas(d *wire.Decoder) (schemas []*table.Schema, err error) {
	err = decodeList(d, "tables", tabletsMax, func() error {
		s, err := table.DecodeSchema(d, nil)
		schemas = append(schemas, s)
		return err
	})
	return schemas, err
}

// RowSample is an element of the result of sample_row_keys: all rows up to Key
// take about Offset bytes. The last has an empty Key, for the end of the table.
type RowSample struct {
	Key    []byte
	Offset int64
}

// AppendSamples writes the result of sample_row_keys: [[key, offset]…].
func AppendSamples(e *wire.Encoder, samples []RowSample) {
	e.Array(len(samples))
	for _, s := range samples {
		e.Array(2)
		e.Bin(s.Key)
		e.Int(s.Offset)
	}
}

// DecodeSamples reads the result of sample_row_keys.
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
