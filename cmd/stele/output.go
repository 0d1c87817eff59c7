package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// notef prints a message on standard error.
func (a *app) notef(format string, args ...any) {
	fmt.Fprintln(a.err, a.repaint(escapeLines(fmt.Sprintf(format, args...))))
}

// repaint restores the colour codes of paint in escaped text for standard error.
func (a *app) repaint(s string) string {
	if !a.errTTY || !a.color {
		return s
	}
	for _, code := range []string{styleError.EscapeSeq(), styleHint.EscapeSeq(), styleGood.EscapeSeq(), text.Colors{text.Reset}.EscapeSeq()} {
		s = strings.ReplaceAll(s, escapeLines(code), code)
	}
	return s
}

// printJSON prints one object on one line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// A grid is a table of output. Cells are strings or numbers; numbers are right-aligned.
type grid struct {
	header []string
	rows   [][]any
}

func newGrid(header ...string) *grid { return &grid{header: header} }

func (g *grid) add(cells ...any) { g.rows = append(g.rows, cells) }

// print prints g: with a frame on a terminal, else in aligned columns. Without rows it prints nothing.
func (a *app) print(g *grid) error {
	if len(g.rows) == 0 {
		return nil
	}
	if a.outTTY {
		return a.printFramed(g)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(g.header, "\t"))
	for _, row := range g.rows {
		fmt.Fprintln(w, strings.Join(cellTexts(row), "\t"))
	}
	return w.Flush()
}

func (a *app) printFramed(g *grid) error {
	w := table.NewWriter()
	w.SetStyle(table.StyleRounded)
	w.Style().Format.Header = text.FormatDefault
	if a.color {
		w.Style().Color.Header = styleKey
		w.Style().Color.Border = styleFaint
		w.Style().Color.Separator = styleFaint
	}
	w.Style().Size.WidthMax = a.width
	header := make(table.Row, len(g.header))
	columns := make([]table.ColumnConfig, len(g.header))
	for i, h := range g.header {
		header[i] = h
		columns[i] = table.ColumnConfig{Number: i + 1, AlignHeader: text.AlignLeft}
		if _, number := g.rows[0][i].(number); number {
			columns[i].Align, columns[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	w.AppendHeader(header)
	w.SetColumnConfigs(columns)
	for _, row := range g.rows {
		cells := make(table.Row, len(row))
		for i, c := range cellTexts(row) {
			cells[i] = c
		}
		w.AppendRow(cells)
	}
	_, err := fmt.Fprintln(a.out, w.Render())
	return err
}

// number is a right-aligned cell: a count, or a size with its unit.
type number string

func count[T ~int | ~int64 | ~uint64](n T) number { return number(formatCount(int64(n))) }
func size(n int64) number                         { return number(formatSize(n)) }

func cellTexts(row []any) []string {
	cells := make([]string, len(row))
	for i, c := range row {
		switch c := c.(type) {
		case string:
			cells[i] = escapeText(c)
		case number:
			cells[i] = string(c)
		default:
			cells[i] = fmt.Sprint(c)
		}
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	return cells
}

// confirm asks for confirmation of a destructive change. It returns an error unless the answer is yes
// or the flag --yes is set.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.inTTY || !a.errTTY {
		return usagef("add --yes to confirm", "the command needs confirmation, and there is no terminal")
	}
	fmt.Fprintf(a.err, "%s [y/N] ", escapeLines(question))
	var answer string
	if _, err := fmt.Fscanln(a.in, &answer); err != nil && err != io.EOF && answer != "" {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("cancelled: the answer was not yes")
}
