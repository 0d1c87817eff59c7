package rowfile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/avro"

	"github.com/steledb/stele/table"
)

// avroDepthMax bounds how deep types are nested in each other, in a schema and in data.
const avroDepthMax = 32

// avroType is a type of a schema, as far as it is needed to find where a value ends.
type avroType struct {
	kind     string // that of Avro
	logical  string // its logical type
	size     int64  // of fixed
	items    *avroType
	branches []*avroType // of a union
	fields   []avroField
	empty    bool // its values have no bytes
}

type avroField struct {
	name string
	of   *avroType
}

// avroTypes converts schemas to types.
type avroTypes map[string]*avroType // those with a name

func (named avroTypes) of(n *avro.SchemaNode, depth int) (*avroType, error) {
	if depth > avroDepthMax {
		return nil, fmt.Errorf("types are nested more than %d deep", avroDepthMax)
	}
	if t, ok := named[n.Type]; ok {
		return t, nil
	}
	t := &avroType{kind: n.Type, logical: n.LogicalType, size: int64(n.Size)}
	name := n.Name
	if n.Namespace != "" {
		name = n.Namespace + "." + name
	}
	var err error
	switch n.Type {
	case "null":
		t.empty = true
	case "boolean", "int", "long", "float", "double", "bytes", "string":
	case "enum":
		named[name] = t
	case "fixed":
		named[name], t.empty = t, t.size == 0
	case "array":
		t.items, err = named.of(n.Items, depth+1)
	case "map":
		t.items, err = named.of(n.Values, depth+1)
	case "union":
		for i := 0; i < len(n.Branches) && err == nil; i++ {
			var b *avroType
			b, err = named.of(&n.Branches[i], depth+1)
			t.branches = append(t.branches, b)
		}
	case "record", "error":
		t.kind, named[name] = "record", t
		err = named.fields(t, n, depth)
	default:
		err = fmt.Errorf("type %.64q is not known", n.Type)
	}
	return t, err
}

// fields adds the fields of a record.
func (named avroTypes) fields(t *avroType, n *avro.SchemaNode, depth int) error {
	t.empty = true
	for i := range n.Fields {
		f, err := named.of(&n.Fields[i].Type, depth+1)
		if err != nil {
			return err
		}
		if logical, ok := n.Fields[i].Props["logicalType"].(string); ok && f.logical == "" { // the template writes it there
			f.logical = logical
		}
		t.fields = append(t.fields, avroField{n.Fields[i].Name, f})
		t.empty = t.empty && f.empty
	}
	return nil
}

// avroRow finds the fields of rows and cells in records. Other fields are skipped.
type avroRow struct {
	of         *avroType
	key, cells int // fields of rows
	item       *avroType
	// fields of cells
	family, qualifier, timestamp, value int
}

func newAvroRow(n *avro.SchemaNode) (*avroRow, error) {
	t, err := avroTypes{}.of(n, 0)
	if err != nil {
		return nil, err
	}
	r := &avroRow{of: t}
	if t.kind != "record" {
		return nil, fmt.Errorf("it is of type %s, want a record with the fields key and cells, as the template Cloud Bigtable to Cloud Storage Avro writes it", t.kind)
	}
	if r.key, err = t.field("", "key", "bytes", "string"); err != nil {
		return nil, err
	}
	if r.cells, err = t.field("", "cells", "array"); err != nil {
		return nil, err
	}
	r.item = t.fields[r.cells].of.only("array").items
	if r.item.kind != "record" {
		return nil, fmt.Errorf("field cells is an array of %s, want records with the fields family, qualifier, timestamp and value", r.item.kind)
	}
	for _, f := range []struct {
		name  string
		at    *int
		kinds []string
	}{
		{"family", &r.family, []string{"string", "bytes"}},
		{"qualifier", &r.qualifier, []string{"bytes", "string"}},
		{"timestamp", &r.timestamp, []string{"long", "int"}},
		{"value", &r.value, []string{"bytes", "string"}},
	} {
		if *f.at, err = r.item.field("cells.", f.name, f.kinds...); err != nil {
			return nil, err
		}
	}
	if t := r.item.fields[r.timestamp].of.only("long"); t != nil && t.logical != "" && t.logical != "timestamp-micros" && t.logical != "local-timestamp-micros" {
		return nil, fmt.Errorf("field cells.timestamp is of logical type %.32s, want timestamp-micros", t.logical)
	}
	return r, nil
}

// field returns the index of a field, which must be of one of the kinds, or a union of one and null.
func (t *avroType) field(of, name string, kinds ...string) (int, error) {
	for i, f := range t.fields {
		if f.name != name {
			continue
		}
		for _, kind := range kinds {
			if f.of.only(kind) != nil {
				return i, nil
			}
		}
		return 0, fmt.Errorf("field %s%s is of type %s, want %s", of, name, f.of.kind, kinds[0])
	}
	return 0, fmt.Errorf("field %s%s is missing: want those that the template Cloud Bigtable to Cloud Storage Avro writes", of, name)
}

// only returns the type if it is of that kind, or its branch of that kind if it is a union of that and null; otherwise nil.
func (t *avroType) only(kind string) *avroType {
	if t.kind == kind {
		return t
	}
	var found *avroType
	for _, b := range t.branches {
		if b.kind == kind {
			found = b
		} else if b.kind != "null" {
			return nil
		}
	}
	return found
}

// record reads a record up to its end, and leaves its cells to be read.
func (r *avroRow) record(b *avroBuffer, cells *avroCells) (key []byte, err error) {
	*cells = avroCells{row: r}
	for i, f := range r.of.fields {
		t := f.of
		if i == r.key || i == r.cells {
			if t, err = b.branch(t); err != nil {
				return nil, err
			}
		}
		switch {
		case t.kind == "null":
		case i == r.key:
			key, err = b.bytes()
		case i == r.cells:
			cells.b.b = b.b
			err = b.skip(t, 0)
		default:
			err = b.skip(t, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	return key, nil
}

// cell reads a cell.
func (r *avroRow) cell(b *avroBuffer, c *table.Cell, names *interner) (err error) {
	c.Timestamp = table.ServerTimestamp
	for i, f := range r.item.fields {
		t, err := b.branch(f.of)
		if err == nil {
			switch {
			case t.kind == "null":
			case i == r.family:
				var family []byte
				family, err = b.bytes()
				c.Family = names.get(family)
			case i == r.qualifier:
				c.Qualifier, err = b.bytes()
			case i == r.timestamp:
				c.Timestamp, err = b.long()
				c.Timestamp = defined(c.Timestamp)
			case i == r.value:
				c.Value, err = b.bytes()
			default:
				err = b.skip(t, 0)
			}
		}
		if err != nil {
			return fmt.Errorf("field cells.%s: %w", f.name, err)
		}
	}
	return nil
}

// avroBuffer reads values.
type avroBuffer struct{ b []byte }

// errAvroShort means that a value ends behind its block.
var errAvroShort = errors.New("the block ends within the record: the file is damaged, so copy or export it again")

func (b *avroBuffer) long() (int64, error) {
	v, n := binary.Varint(b.b)
	if n <= 0 {
		return 0, errAvroShort
	}
	b.b = b.b[n:]
	return v, nil
}

func (b *avroBuffer) bytes() ([]byte, error) {
	n, err := b.long()
	if err != nil {
		return nil, err
	}
	return b.take(n)
}

func (b *avroBuffer) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(b.b)) {
		return nil, errAvroShort
	}
	v := b.b[:n:n]
	b.b = b.b[n:]
	return v, nil
}

// branch reads which branch of a union follows. Another type has none.
func (b *avroBuffer) branch(t *avroType) (*avroType, error) {
	if t.kind != "union" {
		return t, nil
	}
	i, err := b.long()
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= int64(len(t.branches)) {
		return nil, fmt.Errorf("branch %d of a union of %d types", i, len(t.branches))
	}
	return t.branches[i], nil
}

// items reads the number of items in the part of an array or map that follows; 0 is its end.
func (b *avroBuffer) items() (int64, error) {
	n, err := b.long()
	if err == nil && n < 0 { // the size of the part follows
		n = -n
		_, err = b.long()
	}
	if err == nil && n < 0 {
		return 0, fmt.Errorf("an array of %d items", n)
	}
	return n, err
}

// skip skips a value.
func (b *avroBuffer) skip(t *avroType, depth int) (err error) {
	if depth > avroDepthMax {
		return fmt.Errorf("values are nested more than %d deep", avroDepthMax)
	}
	if t.empty {
		return nil
	}
	switch t.kind {
	case "boolean":
		_, err = b.take(1)
	case "int", "long", "enum":
		_, err = b.long()
	case "float":
		_, err = b.take(4)
	case "double":
		_, err = b.take(8)
	case "fixed":
		_, err = b.take(t.size)
	case "bytes", "string":
		_, err = b.bytes()
	case "array", "map":
		err = b.skipItems(t, depth)
	case "union":
		if t, err = b.branch(t); err == nil {
			err = b.skip(t, depth+1)
		}
	case "record":
		for i := 0; i < len(t.fields) && err == nil; i++ {
			err = b.skip(t.fields[i].of, depth+1)
		}
	}
	return err
}

// skipItems skips an array or map. An item has at least a byte, unless the type has none at all.
func (b *avroBuffer) skipItems(t *avroType, depth int) error {
	for {
		n, err := b.items()
		if err != nil || n == 0 {
			return err
		}
		if t.kind == "array" && t.items.empty {
			continue
		}
		for ; n > 0; n-- {
			if t.kind == "map" {
				if _, err := b.bytes(); err != nil {
					return err
				}
			}
			if err := b.skip(t.items, depth+1); err != nil {
				return err
			}
		}
	}
}
