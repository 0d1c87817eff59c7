package rowfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/steledb/stele/table"
)

// keyName is the name of the field with the keys of rows in headers that a CSVWriter writes.
const keyName = "row"

// CSVWriter writes rows as CSV.
type CSVWriter struct {
	out    *csv.Writer
	at     map[string]int // the field of each column
	record []string
}

// NewCSVWriter returns a writer of these columns, family:qualifier, and writes the header. Call Flush at the end.
func NewCSVWriter(out io.Writer, columns []string) (*CSVWriter, error) {
	w := &CSVWriter{out: csv.NewWriter(out), at: map[string]int{}, record: make([]string, len(columns)+1)}
	w.record[0] = keyName
	for i, c := range columns {
		w.at[c], w.record[i+1] = i+1, c
	}
	return w, w.out.Write(w.record)
}

// Write writes the newest value of each column of a row. Cells of other columns are left out.
func (w *CSVWriter) Write(row *table.Row) error {
	clear(w.record)
	w.record[0] = string(row.Key)
	for i := range row.Cells {
		c := &row.Cells[i]
		if i > 0 && row.Cells[i-1].Family == c.Family && string(row.Cells[i-1].Qualifier) == string(c.Qualifier) {
			continue // an older version
		}
		if at := w.at[c.Family+":"+string(c.Qualifier)]; at > 0 {
			w.record[at] = string(c.Value)
		}
	}
	return w.out.Write(w.record)
}

// Flush writes what is buffered.
func (w *CSVWriter) Flush() error {
	w.out.Flush()
	return w.out.Error()
}

// column is a column of a CSV file.
type column struct {
	family    string
	qualifier []byte
}

// csvSource reads the records of a CSV file.
type csvSource struct {
	in      *csv.Reader
	header  []string
	columns []column
}

// newCSVSource reads the header. Columns without a family are of the family given, if it is not empty. Errors: *LineError, those of in.
func newCSVSource(in io.Reader, family string) (*csvSource, error) {
	s := &csvSource{in: csv.NewReader(in)}
	header, err := s.in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &LineError{Line: 1, Err: errors.New("the header is missing")}
	case err != nil:
		return nil, csvError(err)
	}
	s.header = header
	seen := map[string]bool{}
	for _, name := range header[1:] {
		f, q, ok := strings.Cut(name, ":")
		if !ok && family != "" {
			f, q, ok = family, name, true
		}
		switch {
		case !ok:
			return nil, &LineError{Line: 1, Err: fmt.Errorf("column %.64q: want family:qualifier, or give the family of all columns", name)}
		case seen[f+":"+q]:
			return nil, &LineError{Line: 1, Err: fmt.Errorf("column %.64q occurs twice", name)}
		}
		seen[f+":"+q] = true
		s.columns = append(s.columns, column{f, []byte(q)})
	}
	return s, nil
}

// csvError returns err as a *LineError if it is of the file's contents.
func csvError(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return &LineError{Line: int64(bad.Line), Err: bad.Err}
	}
	return err
}

// Next implements Source.
func (s *csvSource) Next(item *Item) error {
	record, err := s.in.Read()
	item.fields = record
	if bad := (*LineError)(nil); errors.As(csvError(err), &bad) {
		item.Line, item.fields = bad.Line, nil
		return bad
	}
	if err != nil {
		return err
	}
	line, _ := s.in.FieldPos(0)
	item.Line, item.Bytes = int64(line), 0
	for _, f := range record {
		item.Bytes += len(f)
	}
	return nil
}

// Decode implements Source.
func (s *csvSource) Decode(item *Item, _ *Parser, row *table.Row) error {
	row.Key, row.Cells = []byte(item.fields[0]), row.Cells[:0]
	for i, c := range s.columns {
		if v := item.fields[i+1]; v != "" {
			row.Cells = append(row.Cells, table.Cell{Family: c.family, Qualifier: c.qualifier, Timestamp: table.ServerTimestamp, Value: []byte(v)})
		}
	}
	if len(row.Cells) == 0 {
		return item.Error(errors.New("the row has no value"))
	}
	return nil
}

// Rejects implements Source.
func (s *csvSource) Rejects(out io.Writer) (func(*Item) error, error) {
	w := csv.NewWriter(out)
	write := func(record []string) error {
		if err := w.Write(record); err != nil {
			return err
		}
		w.Flush()
		return w.Error()
	}
	return func(item *Item) error {
		if item.fields == nil {
			return nil // it could not be divided into fields
		}
		return write(item.fields)
	}, write(s.header)
}
