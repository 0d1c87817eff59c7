package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A rowWriter prints rows one after another, in memory of one row.
type rowWriter interface{ write(row *table.Row) error }

// rowWriter returns the form in which rows are printed. full is for a terminal, where
// long values are otherwise cut.
func (a *app) rowWriter(full bool) rowWriter {
	switch {
	case a.json:
		return &jsonRows{out: a.out}
	case a.outTTY:
		return &terminalRows{a: a, full: full}
	}
	return plainRows{a.out}
}

// jsonRows prints a row as an object on a line of its own:
//
//	{"row":"r","cells":[{"column":"fam:qual","timestamp":1,"value":"v"}]}
//
// Bytes that are no UTF-8 are {"base64":"…"} in place of the string.
type jsonRows struct {
	out *bufio.Writer
	buf []byte
}

func (w *jsonRows) write(row *table.Row) error {
	w.buf = append(appendJSONRow(w.buf[:0], row), '\n')
	_, err := w.out.Write(w.buf)
	return err
}

func appendJSONRow(b []byte, row *table.Row) []byte {
	b = appendJSONBytes(append(b, `{"row":`...), row.Key)
	b = append(b, `,"cells":[`...)
	for i := range row.Cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONCell(b, &row.Cells[i])
	}
	return append(b, `]}`...)
}

func appendJSONCell(b []byte, c *table.Cell) []byte {
	b = appendJSONBytes(append(b, `{"column":`...), []byte(client.ColumnName(c)))
	b = strconv.AppendInt(append(b, `,"timestamp":`...), c.Timestamp, 10)
	b = appendJSONBytes(append(b, `,"value":`...), c.Value)
	for i, label := range c.Labels {
		if i == 0 {
			b = append(b, `,"labels":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendJSONBytes(b, []byte(label))
	}
	if len(c.Labels) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendJSONBytes appends a string, or {"base64":"…"} for bytes that are not UTF-8.
func appendJSONBytes(b, s []byte) []byte {
	if !utf8.Valid(s) {
		b = append(b, `{"base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, s)
		return append(b, `"}`...)
	}
	b = append(b, '"')
	for _, r := range string(s) {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029: // the last two end a line of JavaScript
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// plainRows prints a cell a line: row, column, time and value between tabs. None of
// them holds a tab or an end of line, since those are escaped.
type plainRows struct{ out *bufio.Writer }

func (w plainRows) write(row *table.Row) error {
	key := escapeBytes(row.Key)
	for i := range row.Cells {
		c := &row.Cells[i]
		for _, s := range []string{key, "\t", escapeText(client.ColumnName(c)), "\t", formatMoment(c.Timestamp), "\t", escapeBytes(c.Value), "\n"} {
			if _, err := w.out.WriteString(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// terminalRows prints the key, then a cell a line below it, cut to the width of the
// terminal.
type terminalRows struct {
	a    *app
	full bool
}

// columnWidthMax is how wide the names of columns may get; on a narrow terminal,
// half of what the time leaves.
const columnWidthMax = 44

func (w *terminalRows) write(row *table.Row) error {
	a := w.a
	var names, times []string
	nameWidth, timeWidth := 0, 0
	nameMax := max(min(columnWidthMax, (a.width-len("2006-01-02T15:04:05.000000Z")-6)/2), 8)
	for i := range row.Cells {
		c := &row.Cells[i]
		name := escapeText(client.ColumnName(c))
		if !w.full {
			name = text.Snip(name, nameMax, "…")
		}
		names, times = append(names, name), append(times, formatMoment(c.Timestamp))
		nameWidth = max(nameWidth, text.StringWidth(name))
		timeWidth = max(timeWidth, len(times[i]))
	}
	a.out.WriteString(a.paint(true, styleKey, escapeBytes(row.Key)))
	a.out.WriteString("\n")
	room := a.width - nameWidth - timeWidth - 6
	for i := range row.Cells {
		name := text.Pad(names[i], nameWidth, ' ')
		if i > 0 && names[i] == names[i-1] {
			name = strings.Repeat(" ", nameWidth) // an older version of the column above
		}
		a.out.WriteString("  " + name + "  " + a.paint(true, styleFaint, text.Pad(times[i], timeWidth, ' ')))
		a.out.WriteString("  " + w.value(row.Cells[i].Value, max(room, 8)) + "\n")
	}
	return a.out.Flush()
}

// value returns a value within so many columns.
func (w *terminalRows) value(value []byte, room int) string {
	if n, ok := counterOf(value); ok {
		return strconv.FormatInt(n, 10) + w.a.paint(true, styleFaint, " (8 bytes)")
	}
	if w.full {
		return escapeBytes(value)
	}
	if s, rest := fit(value, room); len(rest) == 0 {
		return s
	}
	note := " … " + formatSize(int64(len(value)))
	s, _ := fit(value, max(room-text.StringWidth(note), 1))
	return s + w.a.paint(true, styleFaint, note)
}

// fit returns as much of value as fits into so many columns, escaped, and the rest.
func fit(value []byte, columns int) (shown string, rest []byte) {
	var b strings.Builder
	for len(value) > 0 {
		_, n := utf8.DecodeRune(value)
		s := escapeBytes(value[:n])
		if columns -= text.StringWidth(s); columns < 0 {
			break
		}
		b.WriteString(s)
		value = value[n:]
	}
	return b.String(), value
}

// counterOf reads a counter, as "stele incr" writes. Of all values of 8 bytes those
// are taken for one whose number is below 2^47: no text begins like that.
func counterOf(value []byte) (int64, bool) {
	if len(value) != 8 {
		return 0, false
	}
	n := int64(binary.BigEndian.Uint64(value))
	return n, -1<<47 <= n && n < 1<<47
}

// jsonBytes is a byte string in JSON: a string, or {"base64":"…"}.
type jsonBytes []byte

func (b jsonBytes) MarshalJSON() ([]byte, error) { return appendJSONBytes(nil, b), nil }
