package rowfile

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/steledb/stele/table"
)

// A JSONWriter begins another line once one has cells of lineCellsBytes, or lineCellsMax of them. A Parser accepts cellsMax of them, as many
// mutations as a request may have.
const (
	lineCellsBytes = 1 << 20
	lineCellsMax   = 10_000
	cellsMax       = 100_000
)

// JSONWriter writes rows as JSON lines.
type JSONWriter struct {
	out    io.Writer
	line   []byte
	column []byte
}

// NewJSONWriter returns a writer to out, which it does not buffer.
func NewJSONWriter(out io.Writer) *JSONWriter { return &JSONWriter{out: out} }

// Write writes a row with its cells. The error is that of the underlying writer.
func (w *JSONWriter) Write(row *table.Row) error {
	for cells := row.Cells; ; {
		n, size := 0, 0
		for n < len(cells) && n < lineCellsMax && (n == 0 || size < lineCellsBytes) {
			size += len(cells[n].Value)
			n++
		}
		w.line = w.appendLine(w.line[:0], row.Key, cells[:n])
		if _, err := w.out.Write(w.line); err != nil {
			return err
		}
		if cells = cells[n:]; len(cells) == 0 {
			return nil
		}
	}
}

// Flush writes nothing: Write writes whole lines.
func (w *JSONWriter) Flush() error { return nil }

func (w *JSONWriter) appendLine(b, key []byte, cells []table.Cell) []byte {
	b = appendField(append(b, '{'), "row", key)
	b = append(b, `,"cells":[`...)
	for i := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		c := &cells[i]
		w.column = append(append(append(w.column[:0], c.Family...), ':'), c.Qualifier...)
		b = appendField(append(b, '{'), "column", w.column)
		if c.Timestamp != table.ServerTimestamp {
			b = strconv.AppendInt(append(b, `,"timestamp":`...), c.Timestamp, 10)
		}
		b = append(appendField(append(b, ','), "value", c.Value), '}')
	}
	return append(b, "]}\n"...)
}

// appendField appends a field with any bytes: as text, or in base64 under another name.
func appendField(b []byte, name string, v []byte) []byte {
	b = append(append(b, '"'), name...)
	if utf8.Valid(v) {
		b, _ = jsontext.AppendQuote(append(b, `":`...), v) // its error is invalid UTF-8
		return b
	}
	b = base64.StdEncoding.AppendEncode(append(b, `_base64":"`...), v)
	return append(b, '"')
}

// Parser parses JSON lines. It is not safe for concurrent use.
type Parser struct {
	in       bytes.Reader
	dec      jsontext.Decoder
	text     []byte // of a field
	int      [8]byte
	families interner
}

// familiesMax bounds an interner: a table has at most 100 families.
const familiesMax = 1000

// interner has the names of families, which the cells of all rows share.
type interner map[string]string

func (names *interner) get(b []byte) string {
	if known, ok := (*names)[string(b)]; ok {
		return known
	}
	if *names == nil || len(*names) >= familiesMax {
		*names = interner{}
	}
	name := string(b)
	(*names)[name] = name
	return name
}

// Parse parses a line into row, whose memory it reuses. The row is valid until the next call. A cell without a timestamp has
// table.ServerTimestamp. Errors: *LineError, without a line number.
func (p *Parser) Parse(line []byte, row *table.Row) error {
	p.in.Reset(line)
	p.dec.Reset(&p.in)
	p.text = p.text[:0]
	row.Key, row.Cells = nil, row.Cells[:0]
	if err := p.parse(row); err != nil {
		return &LineError{Err: err}
	}
	return nil
}

func (p *Parser) parse(row *table.Row) error {
	key := bytesField{name: "row"}
	err := p.object(func(name string) error {
		switch name {
		case "cells":
			return p.cells(row)
		case "row", "row_base64":
			return p.bytes(name, &key)
		}
		return unknownField(name)
	})
	if err != nil {
		return err
	}
	if row.Key, err = key.get(); err != nil {
		return err
	}
	if p.dec.PeekKind() != 0 {
		return errors.New("more than one object on the line")
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the object: %w", syntax(err))
	}
	return nil
}

func unknownField(name string) error { return fmt.Errorf("unknown field %.64q", name) }

// syntax shortens an error of the JSON library.
func syntax(err error) error {
	var bad *jsontext.SyntacticError
	if errors.As(err, &bad) {
		return fmt.Errorf("byte %d: %w", bad.ByteOffset, bad.Err)
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// object reads an object, and calls field for the value of each field.
func (p *Parser) object(field func(name string) error) error {
	if p.dec.PeekKind() != jsontext.KindBeginObject {
		return p.unexpected("an object")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return syntax(err)
	}
	for p.dec.PeekKind() == jsontext.KindString {
		raw, err := p.dec.ReadValue()
		if err != nil {
			return syntax(err)
		}
		if err := field(fieldName(raw)); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return syntax(err)
}

// names has the names of fields, so that none is allocated.
var names = map[string]string{}

func init() {
	for _, n := range []string{"row", "row_base64", "cells", "column", "column_base64", "timestamp", "value", "value_base64", "value_int", "value_distinct", "labels"} {
		names[`"`+n+`"`] = n
	}
}

func fieldName(raw jsontext.Value) string {
	if name, ok := names[string(raw)]; ok {
		return name
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // the decoder has checked it
	return string(text)
}

func (p *Parser) unexpected(want string) error {
	if _, err := p.dec.ReadToken(); err != nil {
		return syntax(err)
	}
	return fmt.Errorf("byte %d: want %s", p.dec.InputOffset(), want)
}

// cells reads the array of cells.
func (p *Parser) cells(row *table.Row) error {
	if p.dec.PeekKind() != jsontext.KindBeginArray {
		return p.unexpected("an array of cells")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return syntax(err)
	}
	for n := 0; p.dec.PeekKind() == jsontext.KindBeginObject; n++ {
		if n == cellsMax {
			return fmt.Errorf("more than %d cells on a line: divide it into several of the same row", cellsMax)
		}
		c, err := p.cell()
		if err != nil {
			return fmt.Errorf("cell %d: %w", n, err)
		}
		row.Cells = append(row.Cells, c)
	}
	if p.dec.PeekKind() != jsontext.KindEndArray {
		return p.unexpected("a cell")
	}
	_, err := p.dec.ReadToken()
	return syntax(err)
}

// cell reads a cell.
func (p *Parser) cell() (c table.Cell, err error) {
	c.Timestamp = table.ServerTimestamp
	column, value := bytesField{name: "column"}, bytesField{name: "value"}
	err = p.object(func(name string) error {
		switch name {
		case "column", "column_base64":
			return p.bytes(name, &column)
		case "value", "value_base64":
			return p.bytes(name, &value)
		case "value_int":
			return p.counter(&value)
		case "timestamp":
			return p.timestamp(&c.Timestamp)
		case "labels", "value_distinct":
			return syntax(p.dec.SkipValue())
		}
		return unknownField(name)
	})
	if err != nil {
		return c, err
	}
	if c.Value, err = value.get(); err != nil {
		return c, err
	}
	name, err := column.get()
	if err != nil {
		return c, err
	}
	c.Family, c.Qualifier, err = p.column(name)
	return c, err
}

// column divides the name of a column.
func (p *Parser) column(name []byte) (family string, qualifier []byte, err error) {
	f, qualifier, ok := bytes.Cut(name, []byte{':'})
	if !ok {
		return "", nil, fmt.Errorf("column %.64q: want family:qualifier", name)
	}
	return p.families.get(f), qualifier, nil
}

func (p *Parser) timestamp(ts *int64) error {
	raw, err := p.dec.ReadValue()
	if err != nil {
		return syntax(err)
	}
	if *ts, err = strconv.ParseInt(string(raw), 10, 64); err != nil || *ts < 0 {
		return fmt.Errorf("timestamp %.32s: want microseconds, 0 or more", raw)
	}
	return nil
}

func (p *Parser) counter(f *bytesField) error {
	raw, err := p.dec.ReadValue()
	if err != nil {
		return syntax(err)
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return fmt.Errorf("value_int %.32s: want a number of 64 bits", raw)
	}
	binary.BigEndian.PutUint64(p.int[:], uint64(n))
	at := len(p.text)
	p.text = append(p.text, p.int[:]...)
	if !f.base64 {
		f.set(p.text[at:], false)
	}
	return nil
}

// bytesField is the value of a field with any bytes.
type bytesField struct {
	name   string
	value  []byte
	have   bool
	base64 bool
}

// set sets the value, unless there is one in base64, which counts.
func (f *bytesField) set(v []byte, base64 bool) {
	if !f.base64 {
		f.value, f.have, f.base64 = v, true, base64
	}
}

func (f *bytesField) get() ([]byte, error) {
	if !f.have {
		return nil, fmt.Errorf("%s is missing", f.name)
	}
	return f.value, nil
}

// bytes reads a string, in base64 if its field's name ends so.
func (p *Parser) bytes(name string, f *bytesField) error {
	if p.dec.PeekKind() != jsontext.KindString {
		return fmt.Errorf("%s: %w", name, p.unexpected("a string"))
	}
	raw, err := p.dec.ReadValue()
	if err != nil {
		return syntax(err)
	}
	at := len(p.text)
	if p.text, err = jsontext.AppendUnquote(p.text, raw); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if name == f.name {
		f.set(p.text[at:], false)
		return nil
	}
	n, err := base64.StdEncoding.Strict().Decode(p.text[at:], p.text[at:]) // in place: the result is shorter
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.text = p.text[:at+n]
	f.set(p.text[at:], true)
	return nil
}

// LineError is the reason for which a line, or a record, of a file is no row.
type LineError struct {
	Line   int64 // from 1; 0 if unknown
	Err    error
	Record bool // it is a record
}

func (e *LineError) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	if e.Record {
		return fmt.Sprintf("record %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }
