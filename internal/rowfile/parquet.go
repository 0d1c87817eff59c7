package rowfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/table"
)

// parquetReader reads a Parquet file: its footer, and then the columns of its row groups side by side, page by page. The reader is our own since the columns
// are few and of three types. Package parquet-go takes 6 MiB of the binary, allocates what lengths in the file promise, and decodes with code for which a
// damaged file is a fault of memory.
type parquetReader struct {
	in      io.ReaderAt
	size    int64
	footer  *parquetFooter
	group   int // the next one
	rows    int // that are left of the current one
	columns [parquetColumns]*parquetColumn
	first   bool // the next cell is the first of its row
	names   interner
}

// OpenParquet returns the source for a Parquet file. Errors: *FileError, those of in.
func OpenParquet(in io.ReaderAt, size int64) (Source, error) {
	r := &parquetReader{in: in, size: size}
	footer, offset, err := readParquetFooter(in, size)
	if err != nil {
		err = &FileError{Offset: offset, Err: err}
	}
	r.footer = footer
	return newRecordSource(Parquet, r, err)
}

// record implements recordReader.
func (r *parquetReader) record() ([]byte, error) {
	for r.rows == 0 {
		if err := r.nextGroup(); err != nil {
			return nil, err
		}
	}
	r.rows--
	r.first = true
	c := r.columns[parquetKey]
	if err := c.next(); err != nil {
		return nil, r.error(parquetKey, err)
	}
	return c.bytes, nil
}

// nextGroup goes on to the next row group. Errors: io.EOF, *FileError.
func (r *parquetReader) nextGroup() error {
	for i, c := range r.columns {
		if c != nil && !c.ended() {
			return r.error(i, errors.New("the row group has more values than rows"))
		}
	}
	if r.group == len(r.footer.groups) {
		return io.EOF
	}
	g := &r.footer.groups[r.group]
	r.group++
	r.rows = g.rows
	for i, node := range r.footer.columns {
		c, err := newParquetColumn(r.in, r.size, node, &g.chunks[i])
		if err != nil {
			r.rows = 0
			return &FileError{Offset: int64(g.chunks[i].offset), Err: fmt.Errorf("column %s: %w", parquetNames[i], err)}
		}
		if i == parquetValue {
			c.pageMax = blockBytesMax
		}
		r.columns[i] = c
	}
	return nil
}

// error describes an error of a column.
func (r *parquetReader) error(column int, err error) error {
	r.rows, r.group = 0, len(r.footer.groups)
	at := r.columns[column].at
	r.columns = [parquetColumns]*parquetColumn{}
	return &FileError{Offset: at, Record: -1, Err: fmt.Errorf("column %s: %w", parquetNames[column], err)}
}

// errParquetLevels means that the columns of cells have different numbers of cells in a row.
var errParquetLevels = errors.New("its rows have not as many cells as those of column cells.family: the file is damaged, so copy or export it again")

// hidden implements recordReader.
func (r *parquetReader) hidden() bool { return false }

// entry implements recordReader.
func (r *parquetReader) entry(e *entry) error {
	family := r.columns[parquetFamily]
	if !r.first {
		if rep, err := family.peek(); errors.Is(err, io.EOF) || err == nil && rep == 0 {
			return io.EOF
		} else if err != nil {
			return r.error(parquetFamily, err)
		}
	}
	for i := parquetFamily; i < parquetColumns; i++ {
		c := r.columns[i]
		if err := c.next(); err != nil {
			return r.error(i, err)
		}
		if (c.rep == 0) != r.first || (c.def >= r.footer.element) != (family.def >= r.footer.element) {
			return r.error(i, errParquetLevels)
		}
	}
	r.first = false
	if family.def < r.footer.element {
		return r.noCells()
	}
	e.cell = table.Cell{Family: r.names.get(family.bytes), Qualifier: r.columns[parquetQualifier].bytes, Timestamp: table.ServerTimestamp, Value: r.columns[parquetValue].bytes}
	if t := r.columns[parquetTimestamp]; t.def == t.node.def {
		e.cell.Timestamp = defined(t.number)
	}
	return nil
}

// noCells ends a row whose list is empty, or null.
func (r *parquetReader) noCells() error {
	if rep, err := r.columns[parquetFamily].peek(); err == nil && rep != 0 {
		return r.error(parquetFamily, errParquetLevels)
	}
	return io.EOF
}
