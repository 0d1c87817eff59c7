package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Notef prints a message on standard error.
func (a *App) Notef(format string, args ...any) {
	fmt.Fprintln(a.Err, a.repaint(EscapeLines(fmt.Sprintf(format, args...))))
}

// repaint restores the colour codes of paint in escaped text for standard error.
func (a *App) repaint(s string) string {
	if !a.ErrTTY || !a.Color {
		return s
	}
	for _, code := range []string{StyleError.EscapeSeq(), StyleHint.EscapeSeq(), StyleGood.EscapeSeq(), text.Colors{text.Reset}.EscapeSeq()} {
		s = strings.ReplaceAll(s, EscapeLines(code), code)
	}
	return s
}

// PrintJSON prints one object on one line.
func (a *App) PrintJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// A Grid is a table of output. Cells are strings or numbers; numbers are right-aligned.
type Grid struct {
	header []string
	rows   [][]any
}

// NewGrid returns a grid without rows.
func NewGrid(header ...string) *Grid { return &Grid{header: header} }

// Add adds a row.
func (g *Grid) Add(cells ...any) { g.rows = append(g.rows, cells) }

// IsEmpty reports whether the grid has no rows.
func (g *Grid) IsEmpty() bool { return len(g.rows) == 0 }

// Print prints g: with a frame on a terminal, else in aligned columns. Without rows it prints nothing.
func (a *App) Print(g *Grid) error {
	if len(g.rows) == 0 {
		return nil
	}
	if a.OutTTY {
		return a.printFramed(g)
	}
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(g.header, "\t"))
	for _, row := range g.rows {
		fmt.Fprintln(w, strings.Join(cellTexts(row), "\t"))
	}
	return w.Flush()
}

func (a *App) printFramed(g *Grid) error {
	w := table.NewWriter()
	w.SetStyle(table.StyleRounded)
	w.Style().Format.Header = text.FormatDefault
	if a.Color {
		w.Style().Color.Header = StyleKey
		w.Style().Color.Border = StyleFaint
		w.Style().Color.Separator = StyleFaint
	}
	w.Style().Size.WidthMax = a.Width
	header := make(table.Row, len(g.header))
	columns := make([]table.ColumnConfig, len(g.header))
	for i, h := range g.header {
		header[i] = h
		columns[i] = table.ColumnConfig{Number: i + 1, AlignHeader: text.AlignLeft}
		if _, number := g.rows[0][i].(Number); number {
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
	_, err := fmt.Fprintln(a.Out, w.Render())
	return err
}

// Number is a right-aligned cell: a count, or a size with its unit.
type Number string

// Count returns the cell of a number of things.
func Count[T ~int | ~int64 | ~uint64](n T) Number { return Number(FormatCount(int64(n))) }

// Size returns the cell of a number of bytes.
func Size(n int64) Number { return Number(FormatSize(n)) }

func cellTexts(row []any) []string {
	cells := make([]string, len(row))
	for i, c := range row {
		switch c := c.(type) {
		case string:
			cells[i] = EscapeText(c)
		case Number:
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

// Confirm asks for confirmation of a destructive change. It returns an error unless the answer is yes
// or the flag --yes is set.
func (a *App) Confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.InTTY || !a.ErrTTY {
		return Usagef("add --yes to confirm", "the command needs confirmation, and there is no terminal")
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", EscapeLines(question))
	var answer string
	if _, err := fmt.Fscanln(a.In, &answer); err != nil && err != io.EOF && answer != "" {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("cancelled: the answer was not yes")
}

// PrintAll prints grids with an empty line between them.
func (a *App) PrintAll(grids ...*Grid) error {
	first := true
	for _, g := range grids {
		if len(g.rows) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(a.Out)
		}
		first = false
		if err := a.Print(g); err != nil {
			return err
		}
	}
	return nil
}

// YesNo returns yes or no.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// OrElse returns s, or otherwise if s is empty.
func OrElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Capitalized returns s with an upper-case first letter, which must be ASCII.
func Capitalized(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
