package rowfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steledb/stele/table"
)

// Classes of the pairs that HBase's Export writes.
const (
	hbaseKeyClass   = "org.apache.hadoop.hbase.io.ImmutableBytesWritable"
	hbaseValueClass = "org.apache.hadoop.hbase.client.Result"
)

// Types of cells in HBase. All but hbasePut are marks of deletions.
const (
	hbasePut                 = 4
	hbaseDelete              = 8  // of the version with this timestamp
	hbaseDeleteFamilyVersion = 10 // of the versions of all columns with this timestamp
	hbaseDeleteColumn        = 12 // of the versions up to this timestamp
	hbaseDeleteFamily        = 14 // of the versions of all columns up to this timestamp
)

const (
	// hbaseLatest is the timestamp of a cell that gets its timestamp when it is written; as that of a mark it is behind all cells.
	hbaseLatest = math.MaxInt64
	// hbaseMillisMax is the largest timestamp, in milliseconds, that has a number of microseconds.
	hbaseMillisMax = math.MaxInt64/1000 - 1
	// hbaseMarksMax bounds the marks of a row, which are held while its cells are read.
	hbaseMarksMax = 100_000
)

// hbaseReader reads the rows of a sequence file of HBase's Export. A value is a ClientProtos.Result, behind its length.
type hbaseReader struct {
	file  *sequenceFile
	key   []byte
	cells []byte // those of the record that have not been read: the rest of a Result
	marks hbaseMarks
	names interner
	last  hbaseCell // the last put of the record
	left  bool      // cells of the record were left out
}

func newHBaseReader(in *bufio.Reader) (*hbaseReader, error) {
	f, err := newSequenceFile(in)
	if err != nil {
		return nil, err
	}
	if f.keyClass != hbaseKeyClass || f.valueClass != hbaseValueClass {
		return nil, &FileError{Offset: 4, Err: fmt.Errorf("pairs of %.100q and %.100q, want %s and %s, as HBase's Export writes them", f.keyClass, f.valueClass, hbaseKeyClass, hbaseValueClass)}
	}
	return &hbaseReader{file: f}, nil
}

// record implements recordReader.
func (r *hbaseReader) record() ([]byte, error) {
	key, value, err := r.file.next()
	if err != nil {
		var bad *FileError
		if errors.As(err, &bad) {
			bad.Record = -1
		}
		return nil, err
	}
	if err := r.begin(key, value); err != nil {
		return nil, r.error(err)
	}
	return r.key, nil
}

func (r *hbaseReader) error(err error) error {
	return &FileError{Offset: r.file.at, Record: -1, Err: err}
}

// begin begins a record. Rows with many cells have several records, and marks of the first hide cells of the others.
func (r *hbaseReader) begin(key, value []byte) error {
	if len(key) < 4 || int64(binary.BigEndian.Uint32(key)) != int64(len(key)-4) {
		return errors.New("the key is not an ImmutableBytesWritable")
	}
	if key = key[4:]; !bytes.Equal(key, r.key) {
		r.marks = hbaseMarks{}
	}
	r.key = key
	n, size := protowire.ConsumeVarint(value)
	if size < 0 || n != uint64(len(value)-size) {
		return errors.New("the value is not a Result of HBase 0.96 or later: export it with such a version")
	}
	r.cells, r.left, r.last = value[size:], false, hbaseCell{}
	return r.readMarks()
}

// readMarks reads the marks of deletions in the record, and checks its form.
func (r *hbaseReader) readMarks() error {
	left, cells := r.cells, 0
	for {
		c, err := nextHBaseCell(&left)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cell %d: %w", cells, err)
		}
		if c.kind != hbasePut {
			if r.marks.n++; r.marks.n > hbaseMarksMax {
				return fmt.Errorf("the row has more than %d deletions: export the table without deleted rows", hbaseMarksMax)
			}
			r.marks.add(&c)
		}
		cells++
	}
}

// entry implements recordReader.
func (r *hbaseReader) entry(e *entry) error {
	for {
		c, err := nextHBaseCell(&r.cells)
		if errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			return r.error(err)
		}
		switch {
		case c.kind == hbasePut && (r.marks.hide(&c) || r.last.replaces(&c)):
			r.left = true
		case c.kind == hbasePut:
			r.last = c
			e.cell = table.Cell{Family: r.names.get(c.family), Qualifier: c.qualifier, Value: c.value}
			e.cell.Timestamp, e.bad = c.micros()
			return nil
		case c.kind != hbasePut && c.deletion(&e.deletion, &r.names):
			return nil
		}
	}
}

// hidden implements recordReader.
func (r *hbaseReader) hidden() bool { return r.left }

// replaces reports whether a cell replaces the one behind it, of the same column and timestamp: the later one is first.
func (c *hbaseCell) replaces(next *hbaseCell) bool {
	return c.family != nil && c.timestamp == next.timestamp && bytes.Equal(c.qualifier, next.qualifier) && bytes.Equal(c.family, next.family)
}

// hbaseCell is a CellProtos.Cell.
type hbaseCell struct {
	family, qualifier, value []byte
	timestamp                int64 // in milliseconds
	kind                     uint64
}

// nextHBaseCell reads the next cell of a Result. Errors: io.EOF at its end.
func nextHBaseCell(b *[]byte) (hbaseCell, error) {
	for len(*b) > 0 {
		number, kind, n := protowire.ConsumeTag(*b)
		if n < 0 {
			return hbaseCell{}, errHBaseForm
		}
		*b = (*b)[n:]
		if number == 1 && kind == protowire.BytesType {
			cell, n := protowire.ConsumeBytes(*b)
			if n < 0 {
				return hbaseCell{}, errHBaseForm
			}
			*b = (*b)[n:]
			return parseHBaseCell(cell)
		}
		if n = protowire.ConsumeFieldValue(number, kind, *b); n < 0 {
			return hbaseCell{}, errHBaseForm
		}
		if count, _ := protowire.ConsumeVarint(*b); number == 2 && count > 0 {
			return hbaseCell{}, errors.New("the cells of the Result are not in it")
		}
		*b = (*b)[n:]
	}
	return hbaseCell{}, io.EOF
}

var errHBaseForm = errors.New("the value is not a Result of HBase: the file is damaged, so copy or export it again")

func parseHBaseCell(b []byte) (c hbaseCell, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return hbaseCell{}, errHBaseForm
		}
		b = b[n:]
		field, v := []byte(nil), uint64(0)
		switch kind {
		case protowire.BytesType:
			field, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return hbaseCell{}, errHBaseForm
		}
		b = b[n:]
		c.set(number, kind, field, v)
	}
	switch c.kind {
	case hbasePut, hbaseDelete, hbaseDeleteFamilyVersion, hbaseDeleteColumn, hbaseDeleteFamily:
	default:
		return hbaseCell{}, fmt.Errorf("type %d of a cell is not known", c.kind)
	}
	if len(c.family) == 0 {
		return hbaseCell{}, errors.New("the family is missing")
	}
	return c, nil
}

// set sets a field, if it is of the right type. The row is the key of the record, and tags are not kept.
func (c *hbaseCell) set(number protowire.Number, kind protowire.Type, field []byte, v uint64) {
	switch {
	case number == 2 && kind == protowire.BytesType:
		c.family = field
	case number == 3 && kind == protowire.BytesType:
		c.qualifier = field
	case number == 4 && kind == protowire.VarintType:
		c.timestamp = int64(v)
	case number == 5 && kind == protowire.VarintType:
		c.kind = v
	case number == 6 && kind == protowire.BytesType:
		c.value = field
	}
}

// micros returns the timestamp of a cell, or the number in the file and the reason for which it is none.
func (c *hbaseCell) micros() (int64, error) {
	switch {
	case c.timestamp == hbaseLatest:
		return table.ServerTimestamp, nil
	case c.timestamp > hbaseMillisMax:
		return c.timestamp, fmt.Errorf("%s:%.64q: timestamp %d ms is more than %d: it has no number of microseconds", c.family, c.qualifier, c.timestamp, int64(hbaseMillisMax))
	case c.timestamp < 0:
		return defined(max(c.timestamp, -hbaseMillisMax) * 1000), nil
	}
	return c.timestamp * 1000, nil
}

// deletion sets what a mark deletes in a table. It reports whether that may be anything.
func (c *hbaseCell) deletion(d *Deletion, names *interner) bool {
	*d = Deletion{Family: names.get(c.family), Qualifier: c.qualifier, AllColumns: c.kind == hbaseDeleteFamily || c.kind == hbaseDeleteFamilyVersion}
	version := c.kind == hbaseDelete || c.kind == hbaseDeleteFamilyVersion
	if c.timestamp < 0 || version && c.timestamp > hbaseMillisMax {
		return false // no cell has such a timestamp
	}
	if version {
		d.Start = c.timestamp * 1000
	}
	if c.timestamp <= hbaseMillisMax {
		d.End = table.Before((c.timestamp + 1) * 1000)
	}
	return true
}

// hbaseMarks are the marks of deletions of a row.
type hbaseMarks struct {
	n       int
	columns map[hbaseColumn]*hbaseHidden
}

// hbaseColumn is a column, or a family.
type hbaseColumn struct {
	family, qualifier string
	all               bool
}

// hbaseHidden are the timestamps of cells that marks hide.
type hbaseHidden struct {
	to       int64 // and all before
	versions map[int64]bool
}

func (m *hbaseMarks) add(c *hbaseCell) {
	column := hbaseColumn{string(c.family), string(c.qualifier), false}
	if c.kind == hbaseDeleteFamily || c.kind == hbaseDeleteFamilyVersion {
		column = hbaseColumn{string(c.family), "", true}
	}
	h := m.columns[column]
	if h == nil {
		h = &hbaseHidden{to: math.MinInt64, versions: map[int64]bool{}}
		if m.columns == nil {
			m.columns = map[hbaseColumn]*hbaseHidden{}
		}
		m.columns[column] = h
	}
	if c.kind == hbaseDelete || c.kind == hbaseDeleteFamilyVersion {
		h.versions[c.timestamp] = true
	} else {
		h.to = max(h.to, c.timestamp)
	}
}

// hide reports whether a mark hides a cell.
func (m *hbaseMarks) hide(c *hbaseCell) bool {
	if m.n == 0 {
		return false
	}
	for _, column := range []hbaseColumn{{string(c.family), "", true}, {string(c.family), string(c.qualifier), false}} {
		if h := m.columns[column]; h != nil && (c.timestamp <= h.to || h.versions[c.timestamp]) {
			return true
		}
	}
	return false
}
