package judge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Check checks rows of METADATA (SJ10): all of them, sorted, as a consistent scan with the filter
// metadata.Rows returns them. at is the time of the scan. tables are the schemas of the tables that
// exist; nil means that they are not known.
func Check(rows []*table.Row, tables []*table.Schema, at int64) []Violation {
	m := &coverage{at: at, tablets: map[uint64]*metadata.Row{}, ended: map[uint64]bool{}}
	m.end = metadata.RootEnd() // the root tablet's row is not in METADATA
	m.table = metadata.TableID
	for _, r := range rows {
		row, err := metadata.Decode(r)
		if err != nil {
			m.bad("%v", err)
		}
		if row != nil { // its key is valid
			m.add(row, err == nil)
		}
	}
	m.finish()
	for _, schema := range tables {
		if !m.ended[schema.ID] {
			m.bad("table %s, with id %d, has no tablets or no last one", schema.Name, schema.ID)
		}
	}
	return m.violations
}

// coverage follows the tablets of METADATA in the order of their keys.
type coverage struct {
	at         int64
	table      uint64
	end        []byte // of the tablets of the table so far
	last       bool   // the last tablet had no end
	tablets    map[uint64]*metadata.Row
	ended      map[uint64]bool // tables that are covered
	violations []Violation
}

func (m *coverage) bad(format string, args ...any) {
	m.violations = append(m.violations, Violation{Invariant: "METADATA", Time: m.at, Text: fmt.Sprintf(format, args...)})
}

// finish ends a table.
func (m *coverage) finish() {
	if !m.last && m.table != 0 {
		m.bad("the rows of table %d after %q are in no tablet", m.table, m.end)
	}
	m.ended[m.table] = m.last
}

// add adds the next row. Unless it is valid, only its key is used.
func (m *coverage) add(row *metadata.Row, valid bool) {
	if row.Table != m.table {
		m.finish()
		m.table, m.end, m.last = row.Table, nil, false
	}
	if m.last {
		m.bad("a tablet of table %d follows one without end: %s", row.Table, metadata.Describe(row.Key(), ""))
	}
	if valid {
		m.check(row)
	}
	m.end, m.last = row.End, len(row.End) == 0
}

// check checks a tablet. A start below the end of the tablet before is right: that end decides, and
// the row of the upper part of a split, or of a merge that was not completed, gets its start when it
// is next written.
func (m *coverage) check(row *metadata.Row) {
	meta, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		m.bad("%s: %v", metadata.Describe(row.Key(), ""), err)
		return
	}
	if other := m.tablets[meta.ID]; other != nil {
		m.bad("tablet %d is in two rows: %s on server %q, and %s on server %q", meta.ID, metadata.Describe(other.Key(), ""), other.Server, metadata.Describe(row.Key(), ""), row.Server)
	}
	m.tablets[meta.ID] = row
	if bytes.Compare(meta.Start, m.end) > 0 {
		m.bad("the rows of table %d after %q up to %q are in no tablet", row.Table, m.end, meta.Start)
	}
}

// CheckServed checks the tablets of a table as their servers report them, while no tablet is moved,
// split or merged: each row is on one server. tablets are sorted by their starts.
func CheckServed(name string, tablets []Served, at int64) (all []Violation) {
	bad := func(format string, args ...any) {
		all = append(all, Violation{Invariant: "METADATA", Time: at, Text: fmt.Sprintf(format, args...)})
	}
	end := ""
	for i, t := range tablets {
		switch {
		case i > 0 && end == "":
			bad("tablet %d of table %s is served by %s, but the one before has no end", t.ID, name, t.Node)
		case t.Start != end:
			bad("tablet %d of table %s is served by %s from %q, the one before up to %q", t.ID, name, t.Node, t.Start, end)
		}
		end = t.End
	}
	if len(tablets) == 0 || end != "" {
		bad("no server serves the rows of table %s after %q", name, end)
	}
	return all
}

// Served is a tablet that a server serves. It has the rows after Start up to End.
type Served struct {
	ID         uint64
	Node       string
	Start, End string
}

// ServedOf returns the tablets of a description of a table, sorted by their starts.
func ServedOf(tablets []client.TabletInfo) (all []Served) {
	for _, t := range tablets {
		all = append(all, Served{t.ID, t.Node, string(t.Start), string(t.End)})
	}
	slices.SortStableFunc(all, func(a, b Served) int { return strings.Compare(a.Start, b.Start) })
	return all
}
