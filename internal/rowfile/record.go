package rowfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/steledb/stele/table"
)

// FileError means that a file of records is damaged, or not of the form that was expected. Nothing behind the place can be read.
type FileError struct {
	Format Format
	Offset int64 // in bytes: where the damaged part begins; -1 if unknown
	Record int64 // the record, from 1; 0 if it is none, or unknown
	Err    error
}

func (e *FileError) Error() string {
	at := ""
	if e.Record > 0 {
		at = fmt.Sprintf("record %d, ", e.Record)
	}
	if e.Offset >= 0 {
		at += fmt.Sprintf("byte %d: ", e.Offset)
	} else if at != "" {
		at = at[:len(at)-2] + ": "
	}
	return fmt.Sprintf("%s file: %s%v", e.Format.title(), at, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// errTruncated is the end of a file within a part of it.
var errTruncated = errors.New("the file ends here: it is not complete, so copy or export it again")

// orTruncated returns errTruncated for the end of the file, which is not expected there.
func orTruncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

// blockBytesMax bounds a block of a file in memory, compressed or not: a row of 256 MiB, which is the largest that Cloud Bigtable has, and its names. Tests
// lower it.
var blockBytesMax int64 = 320 << 20

// readAhead bounds what is allocated for bytes that a length promises, and that may not be in the file.
const readAhead = 1 << 20

// errTooLarge means that a part of a file is larger than blockBytesMax.
func errTooLarge(part string, size int64) error {
	return fmt.Errorf("%s has %d bytes, more than %d MiB: write the file with smaller ones", part, size, blockBytesMax>>20)
}

// Deletion deletes the cells of a column, or of all columns of a family, with timestamps in [Start, End), in microseconds.
type Deletion struct {
	Family     string
	Qualifier  []byte
	AllColumns bool // Qualifier is not used
	Start      int64
	End        table.TimestampEnd
}

// recordReader reads the records of a file, each of which has the cells of a row.
type recordReader interface {
	// record goes on to the next record, and returns the key of its row. Errors: io.EOF, *FileError.
	record() (key []byte, err error)
	// entry reads the next cell or deletion of the record. Neither is changed later. Errors: io.EOF at the end of the record; *FileError.
	entry(e *entry) error
	// hidden reports whether cells of the record were left out: it is valid without others.
	hidden() bool
}

// entry is a cell, or a deletion if that has a family.
type entry struct {
	cell     table.Cell
	bad      error // why the cell is not valid; nil if it is
	deletion Deletion
}

// size returns about how many bytes of memory an entry takes.
func (e *entry) size() int {
	return entryBytes + len(e.cell.Qualifier) + len(e.cell.Value) + len(e.deletion.Qualifier)
}

// entryBytes is what an item takes for an entry, besides its data.
const entryBytes = 100

// recordSource is the source of a file of records. A record with many or large cells has several items.
type recordSource struct {
	format Format
	in     recordReader
	number int64 // of the record
	key    []byte
	ahead  entry // the next one of the record, if there is more of it
	more   bool
}

// newRecordSource returns the source for a reader, or the error with which it was opened.
func newRecordSource(f Format, in recordReader, err error) (Source, error) {
	s := &recordSource{format: f, in: in}
	if err != nil {
		return nil, s.error(err)
	}
	return s, nil
}

// Next implements Source.
func (s *recordSource) Next(item *Item) error {
	for begun := s.more; !begun; begun = s.more || !s.in.hidden() {
		key, err := s.in.record()
		s.number++
		if err != nil {
			return s.error(err)
		}
		s.key = key
		if err := s.readAhead(); err != nil {
			return s.error(err)
		}
	}
	*item = Item{Line: s.number, Record: true, Bytes: len(s.key), row: table.Row{Key: s.key}}
	for n := 0; s.more && n < lineCellsMax && item.Bytes < lineCellsBytes; n++ {
		item.Bytes += s.ahead.size()
		if s.ahead.deletion.Family != "" {
			item.Deletions = append(item.Deletions, s.ahead.deletion)
		} else {
			item.row.Cells = append(item.row.Cells, s.ahead.cell)
			item.bad = cmp.Or(item.bad, s.ahead.bad)
		}
		if err := s.readAhead(); err != nil {
			return s.error(err)
		}
	}
	item.More = s.more
	return nil
}

// readAhead reads the next entry of the record, if it has one.
func (s *recordSource) readAhead() error {
	s.ahead = entry{}
	err := s.in.entry(&s.ahead)
	s.more = err == nil
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// error adds the format and the number of the record to an error of the reader.
func (s *recordSource) error(err error) error {
	s.more = false
	var bad *FileError
	if errors.As(err, &bad) {
		bad.Format = s.format
		if bad.Record < 0 {
			bad.Record = s.number
		}
	}
	return err
}

// Decode implements Source.
func (s *recordSource) Decode(item *Item, _ *Parser, row *table.Row) error {
	row.Key, row.Cells = item.row.Key, append(row.Cells[:0], item.row.Cells...)
	if item.bad != nil {
		return item.Error(item.bad)
	}
	if len(row.Cells)+len(item.Deletions) == 0 {
		return item.Error(errors.New("the row has no cells"))
	}
	for i := range row.Cells {
		if c := &row.Cells[i]; c.Timestamp < 0 && c.Timestamp != table.ServerTimestamp {
			return item.Error(fmt.Errorf("cell %d, %s:%.64q: timestamp %d: want microseconds, 0 or more", i, c.Family, c.Qualifier, undefined(c.Timestamp)))
		}
	}
	return nil
}

// Timestamps of files that are negative are kept below table.ServerTimestamp, which is none of a file.
func defined(ts int64) int64 {
	if ts < 0 {
		return max(ts, -math.MaxInt64) - 1
	}
	return ts
}

func undefined(ts int64) int64 {
	if ts < table.ServerTimestamp {
		return ts + 1
	}
	return ts
}

// Rejects implements Source. It writes JSON lines, which can be corrected in an editor, and which are imported like any others.
func (s *recordSource) Rejects(out io.Writer) (func(*Item) error, error) {
	buffered := bufio.NewWriter(out)
	w := NewJSONWriter(buffered)
	return func(item *Item) error {
		if len(item.row.Cells) == 0 && len(item.Deletions) > 0 {
			return nil // JSON lines have no deletions
		}
		row := table.Row{Key: item.row.Key, Cells: append([]table.Cell(nil), item.row.Cells...)}
		for i := range row.Cells {
			row.Cells[i].Timestamp = undefined(row.Cells[i].Timestamp)
		}
		if err := w.Write(&row); err != nil {
			return err
		}
		return buffered.Flush()
	}, nil
}
