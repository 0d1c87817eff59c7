package rows

import (
	"bufio"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

// A rowWriter prints rows one at a time. It needs memory for one row.
type rowWriter interface{ write(row *table.Row) error }

// A rowForm holds the flags for the format of rows.
type rowForm struct {
	full     bool // do not truncate long values on a terminal
	counters bool // print values of 8 bytes as numbers, and sketches as the number of values in them
}

func (f *rowForm) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.full, "full", false, "do not truncate long values on a terminal")
	cmd.Flags().BoolVar(&f.counters, "int", false, "print values of 8 bytes as counters, as \"stele incr\" writes them, and sketches of\naggregate families as the number of distinct integers, approximately")
}

// newRowWriter returns the writer for JSON, a terminal, or plain output.
func newRowWriter(a *cli.App, f rowForm) rowWriter {
	switch {
	case a.JSON:
		return &jsonRows{out: a.Out, counters: f.counters}
	case a.OutTTY:
		return &terminalRows{a: a, rowForm: f}
	}
	return &plainRows{out: a.Out, counters: f.counters}
}

// jsonRows prints each row as an object on one line:
//
//	{"row":"r","row_base64":"cg==","cells":[
//	 {"column":"f:q","column_base64":"Zjpx","timestamp":1,"value":"v","value_base64":"dg=="}]}
//
// Byte strings have the form of appendJSONField. With counters, a value of 8 bytes also has the field
// value_int, and a sketch the field value_distinct.
type jsonRows struct {
	out      *bufio.Writer
	counters bool
	buf      []byte
	column   []byte
}

func (w *jsonRows) write(row *table.Row) error {
	w.buf = append(w.appendRow(w.buf[:0], row), '\n')
	_, err := w.out.Write(w.buf)
	return err
}

func (w *jsonRows) appendRow(b []byte, row *table.Row) []byte {
	b = cli.AppendJSONField(append(b, '{'), "row", row.Key)
	b = append(b, `,"cells":[`...)
	for i := range row.Cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = w.appendCell(b, &row.Cells[i])
	}
	return append(b, `]}`...)
}

func (w *jsonRows) appendCell(b []byte, c *table.Cell) []byte {
	w.column = appendColumnName(w.column[:0], c)
	b = cli.AppendJSONField(append(b, '{'), "column", w.column)
	b = strconv.AppendInt(append(b, `,"timestamp":`...), c.Timestamp, 10)
	b = cli.AppendJSONField(append(b, ','), "value", c.Value)
	if w.counters && len(c.Value) == 8 {
		b = strconv.AppendInt(append(b, `,"value_int":`...), int64(binary.BigEndian.Uint64(c.Value)), 10)
	} else if n, ok := distinctOf(c.Value); w.counters && ok {
		b = strconv.AppendInt(append(b, `,"value_distinct":`...), n, 10)
	}
	for i, label := range c.Labels {
		if i == 0 {
			b = append(b, `,"labels":[`...)
		} else {
			b = append(b, ',')
		}
		b = cli.AppendJSONString(b, []byte(label))
	}
	if len(c.Labels) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendColumnName appends the column's name, family:qualifier.
func appendColumnName(b []byte, c *table.Cell) []byte {
	return append(append(append(b, c.Family...), ':'), c.Qualifier...)
}

// keyRows prints the keys of rows, one per line: escaped, or as objects with row and row_base64.
type keyRows struct {
	out  *bufio.Writer
	json bool
	buf  []byte
}

func newKeyWriter(a *cli.App) rowWriter { return &keyRows{out: a.Out, json: a.JSON} }

func (w *keyRows) write(row *table.Row) error {
	if w.json {
		w.buf = append(cli.AppendJSONField(append(w.buf[:0], '{'), "row", row.Key), '}', '\n')
	} else {
		w.buf = append(cli.AppendEscaped(w.buf[:0], row.Key), '\n')
	}
	_, err := w.out.Write(w.buf)
	return err
}

// plainRows prints one cell per line: row, column, time and value, separated by tabs. Tabs and
// newlines in them are escaped. With counters, a value of 8 bytes is printed as a decimal number, and a sketch
// as its estimate.
type plainRows struct {
	out      *bufio.Writer
	counters bool
	key, buf []byte
	column   []byte
}

func (w *plainRows) write(row *table.Row) error {
	w.key = append(cli.AppendEscaped(w.key[:0], row.Key), '\t')
	for i := range row.Cells {
		c := &row.Cells[i]
		w.column = appendColumnName(w.column[:0], c)
		b := append(w.buf[:0], w.key...)
		b = append(cli.AppendEscaped(b, w.column), '\t')
		b = append(append(b, cli.FormatMoment(c.Timestamp)...), '\t')
		if w.counters && len(c.Value) == 8 {
			b = strconv.AppendInt(b, int64(binary.BigEndian.Uint64(c.Value)), 10)
		} else if n, ok := distinctOf(c.Value); w.counters && ok {
			b = strconv.AppendInt(b, n, 10)
		} else {
			b = cli.AppendEscaped(b, c.Value)
		}
		w.buf = append(b, '\n')
		if _, err := w.out.Write(w.buf); err != nil {
			return err
		}
	}
	return nil
}

// terminalRows prints the key of a row, then one cell per line, truncated to the width of the terminal.
type terminalRows struct {
	a *cli.App
	rowForm
}

// columnWidthMax is the maximum width of column names. On a narrow terminal the maximum is half of the
// width that the time leaves.
const columnWidthMax = 44

func (w *terminalRows) write(row *table.Row) error {
	a := w.a
	var names, times []string
	nameWidth, timeWidth := 0, 0
	nameMax := max(min(columnWidthMax, (a.Width-len("2006-01-02T15:04:05.000000Z")-6)/2), 8)
	for i := range row.Cells {
		c := &row.Cells[i]
		name := cli.EscapeText(client.ColumnName(c))
		if !w.full {
			name = text.Snip(name, nameMax, "…")
		}
		names, times = append(names, name), append(times, cli.FormatMoment(c.Timestamp))
		nameWidth = max(nameWidth, text.StringWidth(name))
		timeWidth = max(timeWidth, len(times[i]))
	}
	a.Out.WriteString(a.Paint(true, cli.StyleKey, cli.EscapeBytes(row.Key)))
	a.Out.WriteString("\n")
	valueWidth := a.Width - nameWidth - timeWidth - 6
	for i := range row.Cells {
		name := text.Pad(names[i], nameWidth, ' ')
		if i > 0 && names[i] == names[i-1] {
			name = strings.Repeat(" ", nameWidth) // an older version of the column above
		}
		a.Out.WriteString("  " + name + "  " + a.Paint(true, cli.StyleFaint, text.Pad(times[i], timeWidth, ' ')))
		a.Out.WriteString("  " + w.value(row.Cells[i].Value, max(valueWidth, 8)) + "\n")
	}
	return a.Out.Flush()
}

// value formats a value in at most columns columns of the terminal.
func (w *terminalRows) value(value []byte, columns int) string {
	if n, ok := counterOf(value); ok || w.counters && len(value) == 8 {
		return strconv.FormatInt(n, 10) + w.a.Paint(true, cli.StyleFaint, " (8 bytes)")
	}
	if n, ok := distinctOf(value); ok && (w.counters || !w.full) {
		return "≈ " + cli.FormatCount(n) + " distinct" + w.a.Paint(true, cli.StyleFaint, " ("+cli.FormatSize(int64(len(value)))+")")
	}
	if w.full {
		return cli.EscapeBytes(value)
	}
	if s, rest := fit(value, columns); len(rest) == 0 {
		return s
	}
	note := " … " + cli.FormatSize(int64(len(value)))
	s, _ := fit(value, max(columns-text.StringWidth(note), 1))
	return s + w.a.Paint(true, cli.StyleFaint, note)
}

// fit returns the longest prefix of value that fits into columns columns of the terminal, escaped, and
// the remaining bytes.
func fit(value []byte, columns int) (shown string, rest []byte) {
	var b strings.Builder
	for len(value) > 0 {
		_, n := utf8.DecodeRune(value)
		s := cli.EscapeBytes(value[:n])
		if columns -= text.StringWidth(s); columns < 0 {
			break
		}
		b.WriteString(s)
		value = value[n:]
	}
	return b.String(), value
}

// counterOf returns the number of a value that looks like a counter of "stele incr": 8 bytes with a
// magnitude below 2^47. No text begins with such bytes.
func counterOf(value []byte) (int64, bool) {
	if len(value) != 8 {
		return 0, false
	}
	n := int64(binary.BigEndian.Uint64(value))
	return n, -1<<47 <= n && n < 1<<47
}

// distinctOf returns the number of distinct integers in a value that is a sketch, approximately.
func distinctOf(value []byte) (int64, bool) {
	var s hll.Sketch
	if s.Merge(value) != nil {
		return 0, false
	}
	return s.Estimate(), true
}
