package rowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const parquetMagic = "PAR1"

// Bounds of a footer.
const (
	parquetFooterMax = 64 << 20
	parquetNodesMax  = 10_000 // of the schema
	parquetGroupsMax = 32_767 // as many as have a number in the format
)

// Types of Parquet's columns that are read.
const (
	parquetInt64      = 2
	parquetByteArray  = 6
	parquetFixedBytes = 7
)

// parquetNode is an element of the schema, with its place in the tree.
type parquetNode struct {
	kind       int // of a column; -1 of a group
	size       int // of parquetFixedBytes
	repetition int // 0 required, 1 optional, 2 repeated
	name       string
	wants      int // how many children it has
	children   []*parquetNode
	unit       string // of a timestamp; empty if it has none
	column     int    // number of the column
	rep, def   int    // the largest levels
}

// child returns a child by its name, or nil.
func (n *parquetNode) child(name string) *parquetNode {
	i := slices.IndexFunc(n.children, func(c *parquetNode) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return n.children[i]
}

// parquetChunk is where the values of a column in a row group are.
type parquetChunk struct {
	codec         int
	values        int
	offset, bytes int
	dictionary    int // its offset; 0 if there is none
	external      bool
}

// parquetGroup is a row group.
type parquetGroup struct {
	rows   int
	chunks [parquetColumns]parquetChunk
}

// The columns that are read.
const (
	parquetKey = iota
	parquetFamily
	parquetQualifier
	parquetTimestamp
	parquetValue
	parquetColumns
)

// parquetFooter is what a footer has of the columns that are read.
type parquetFooter struct {
	columns [parquetColumns]*parquetNode
	element int // the definition level at which a row has a cell
	groups  []parquetGroup

	nodes     []*parquetNode // while it is read
	encrypted bool
}

// readParquetFooter reads the footer, which ends the file.
func readParquetFooter(in io.ReaderAt, size int64) (f *parquetFooter, offset int64, err error) {
	var magic [4]byte
	var end [8]byte
	if size < int64(len(magic)+len(end)) {
		return nil, size, errTruncated
	}
	if _, err := in.ReadAt(magic[:], 0); err != nil {
		return nil, 0, err
	}
	if string(magic[:]) != parquetMagic {
		return nil, 0, fmt.Errorf("the file begins with %q, not with %q: it is not a Parquet file", magic[:], parquetMagic)
	}
	if _, err := in.ReadAt(end[:], size-8); err != nil {
		return nil, size, err
	}
	if string(end[4:]) != parquetMagic {
		return nil, size, fmt.Errorf("the file ends with %q, not with %q: it is not complete, or encrypted: copy or export it again", end[4:], parquetMagic)
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if n > parquetFooterMax || n > size-12 {
		return nil, size, fmt.Errorf("a footer of %d bytes, more than %d MiB or than the file has: write smaller files", n, parquetFooterMax>>20)
	}
	b := make([]byte, n)
	offset = size - 8 - n
	if _, err := in.ReadAt(b, offset); err != nil {
		return nil, offset, orTruncated(err)
	}
	f, err = parseParquetFooter(b)
	return f, offset, err
}

// parseParquetFooter parses a footer. Its schema is before its row groups in all files; if not, it is an error.
func parseParquetFooter(b []byte) (*parquetFooter, error) {
	f, t := &parquetFooter{}, thrift{b: b}
	err := t.structure(func(id int, kind byte) (bool, error) {
		switch {
		case id == 2 && kind == thriftList:
			if err := t.structs(func() error { return f.node(&t) }); err != nil {
				return true, fmt.Errorf("its schema: %w", err)
			}
			return true, f.resolve()
		case id == 4 && kind == thriftList:
			return true, t.structs(func() error { return f.group(&t) })
		}
		f.encrypted = f.encrypted || id == 8
		return false, nil
	})
	switch {
	case errors.Is(err, errThriftShort):
		return nil, errors.New("the footer ends too early: the file is damaged, so copy or export it again")
	case err != nil:
		return nil, err
	case f.encrypted:
		return nil, errors.New("the file is encrypted: export it without encryption")
	case f.columns[0] == nil:
		return nil, errors.New("the schema is missing")
	}
	return f, nil
}

// node reads an element of the schema.
func (f *parquetFooter) node(t *thrift) error {
	n := &parquetNode{kind: -1}
	if len(f.nodes) == parquetNodesMax {
		return fmt.Errorf("more than %d fields", parquetNodesMax)
	}
	err := t.structure(func(id int, kind byte) (known bool, err error) {
		switch {
		case id == 4 && kind == thriftBinary:
			var name []byte
			name, err = t.bytes()
			n.name = string(name)
		case id == 10 && kind == thriftStruct:
			err = t.structure(func(id int, kind byte) (bool, error) { return n.logical(t, id, kind) })
		case kind != thriftI32:
			return false, nil
		case id == 1:
			n.kind, err = t.int()
		case id == 2:
			n.size, err = t.int()
		case id == 3:
			n.repetition, err = t.int()
		case id == 5:
			n.wants, err = t.int()
		case id == 6:
			var converted int
			converted, err = t.int()
			n.unit = map[int]string{9: "milliseconds", 10: "microseconds"}[converted]
		default:
			return false, nil
		}
		return true, err
	})
	if n.wants > 0 {
		n.kind = -1
	}
	f.nodes = append(f.nodes, n)
	return err
}

// logical reads the logical type of an element: the unit of a timestamp.
func (n *parquetNode) logical(t *thrift, id int, kind byte) (bool, error) {
	if id != 8 || kind != thriftStruct {
		return false, nil
	}
	return true, t.structure(func(id int, kind byte) (bool, error) {
		if id != 2 || kind != thriftStruct {
			return false, nil
		}
		return true, t.structure(func(id int, _ byte) (bool, error) {
			n.unit = map[int]string{1: "milliseconds", 2: "microseconds", 3: "nanoseconds"}[id]
			return false, nil
		})
	})
}

// resolve makes a tree of the nodes, and finds the columns.
func (f *parquetFooter) resolve() error {
	if len(f.nodes) == 0 {
		return errors.New("its schema is empty")
	}
	left, columns := f.nodes[1:], 0
	if err := f.nodes[0].adopt(&left, &columns, 0); err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	if err := f.find(f.nodes[0]); err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	return nil
}

// adopt gives a group its children, the nodes that follow, and counts levels and columns.
func (n *parquetNode) adopt(left *[]*parquetNode, columns *int, depth int) error {
	if depth > thriftDepthMax {
		return fmt.Errorf("groups are nested more than %d deep", thriftDepthMax)
	}
	if n.kind >= 0 {
		n.column = *columns
		*columns++
	}
	for range n.wants {
		if len(*left) == 0 {
			return errors.New("fields of a group are missing")
		}
		c := (*left)[0]
		*left = (*left)[1:]
		c.rep, c.def = n.rep, n.def
		if c.repetition != 0 {
			c.def++
		}
		if c.repetition == 2 {
			c.rep++
		}
		n.children = append(n.children, c)
		if err := c.adopt(left, columns, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// find finds the columns. Cells are a list in one of the forms that programs write: a group of a repeated group, which is the cell, or has it.
func (f *parquetFooter) find(root *parquetNode) error {
	var err error
	if f.columns[parquetKey], err = root.leaf("", "key", 0, parquetByteArray, parquetFixedBytes); err != nil {
		return err
	}
	cell := root.child("cells")
	if cell == nil {
		return errors.New("field cells is missing: want those that the template Cloud Bigtable to Cloud Storage Parquet writes")
	}
	for cell.child("family") == nil && len(cell.children) == 1 {
		cell = cell.children[0]
	}
	if cell.rep != 1 {
		return errors.New("field cells is not a list of groups with the fields family, qualifier, timestamp and value")
	}
	f.element = cell.def
	if cell.repetition == 1 { // an element that may be null; the list has it all the same
		f.element--
	}
	for i, name := range map[int]string{parquetFamily: "family", parquetQualifier: "qualifier", parquetValue: "value"} {
		if f.columns[i], err = cell.leaf("cells.", name, 1, parquetByteArray, parquetFixedBytes); err != nil {
			return err
		}
	}
	t, err := cell.leaf("cells.", "timestamp", 1, parquetInt64)
	if err == nil && t.unit != "" && t.unit != "microseconds" {
		err = fmt.Errorf("field cells.timestamp has %s, want microseconds", t.unit)
	}
	f.columns[parquetTimestamp] = t
	return err
}

// leaf returns a column of one of the kinds.
func (n *parquetNode) leaf(of, name string, rep int, kinds ...int) (*parquetNode, error) {
	c := n.child(name)
	if c == nil {
		return nil, fmt.Errorf("field %s%s is missing: want those that the template Cloud Bigtable to Cloud Storage Parquet writes", of, name)
	}
	if !slices.Contains(kinds, c.kind) || c.rep != rep || c.kind == parquetFixedBytes && c.size <= 0 {
		return nil, fmt.Errorf("field %s%s is not a column of %s", of, name, map[int]string{parquetInt64: "INT64", parquetByteArray: "BYTE_ARRAY"}[kinds[0]])
	}
	return c, nil
}

// group reads a row group.
func (f *parquetFooter) group(t *thrift) error {
	if f.columns[0] == nil {
		return errors.New("row groups without a schema")
	}
	g, n := parquetGroup{rows: -1}, 0
	err := t.structure(func(id int, kind byte) (known bool, err error) {
		switch {
		case id == 1 && kind == thriftList:
			n = 0
			err = t.structs(func() error { return f.chunk(t, &g, &n) })
		case id == 3 && kind == thriftI64:
			g.rows, err = t.int()
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if len(f.groups) == parquetGroupsMax {
		return fmt.Errorf("more than %d row groups: write smaller files", parquetGroupsMax)
	}
	if g.rows < 0 {
		return errors.New("a row group without a number of rows")
	}
	for i, c := range f.columns {
		if c.column >= n {
			return fmt.Errorf("row group %d has no column %s", len(f.groups)+1, parquetNames[i])
		}
	}
	f.groups = append(f.groups, g)
	return nil
}

var parquetNames = [parquetColumns]string{"key", "cells.family", "cells.qualifier", "cells.timestamp", "cells.value"}

// chunk reads the description of a column in a row group, the n-th.
func (f *parquetFooter) chunk(t *thrift, g *parquetGroup, n *int) error {
	var c parquetChunk
	err := t.structure(func(id int, kind byte) (bool, error) {
		if id == 3 && kind == thriftStruct {
			return true, t.structure(func(id int, kind byte) (bool, error) { return c.field(t, id, kind) })
		}
		c.external = c.external || id == 1
		f.encrypted = f.encrypted || id == 8 || id == 9
		return false, nil
	})
	for i, column := range f.columns {
		if column.column == *n {
			g.chunks[i] = c
		}
	}
	*n++
	return err
}

// field reads a field of the metadata of a column.
func (c *parquetChunk) field(t *thrift, id int, kind byte) (known bool, err error) {
	var to *int
	switch {
	case id == 4 && kind == thriftI32:
		to = &c.codec
	case kind != thriftI64:
	case id == 5:
		to = &c.values
	case id == 7:
		to = &c.bytes
	case id == 9:
		to = &c.offset
	case id == 11:
		to = &c.dictionary
	}
	if to == nil {
		return false, nil
	}
	*to, err = t.int()
	return true, err
}
