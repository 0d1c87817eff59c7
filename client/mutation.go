package client

import (
	"strings"

	"github.com/steledb/stele/table"
)

// RowMutation collects changes to one row, which Table.Apply then makes all
// together or not at all (paper, Figure 2). Changes apply in the order in which
// they are added: a delete covers the sets before it, not those after.
//
// Columns are named "family:qualifier"; see ParseColumn. A wrong name is reported
// by Apply. A RowMutation keeps the values it is given and must be left alone
// while it is being applied. It may be applied more than once.
type RowMutation struct {
	rm    table.RowMutation
	err   error             // the first wrong column name
	first [1]table.Mutation // most mutations have one change: no slice of its own
}

// NewRowMutation returns an empty mutation of the row with that key: 1 byte to 64
// KiB, any bytes.
func NewRowMutation(row string) *RowMutation {
	m := &RowMutation{}
	m.Reset(row)
	return m
}

// Reset makes m an empty mutation of row, keeping its memory.
func (m *RowMutation) Reset(row string) {
	m.err = nil
	m.rm.Row = append(m.rm.Row[:0], row...)
	clear(m.rm.Mutations)
	if m.rm.Mutations == nil {
		m.rm.Mutations = m.first[:]
	}
	m.rm.Mutations = m.rm.Mutations[:0]
}

// Set writes value to a column, at the time of the tablet server's clock: strictly
// above every timestamp that it has given out for the row.
func (m *RowMutation) Set(column string, value []byte) *RowMutation {
	return m.SetAt(column, table.ServerTimestamp, value)
}

// SetAt writes value to a column at a timestamp in microseconds, not negative. A
// cell that is there already with the same timestamp is replaced.
func (m *RowMutation) SetAt(column string, timestamp int64, value []byte) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.Set(family, qualifier, timestamp, value))
}

// Delete deletes all versions of a column.
func (m *RowMutation) Delete(column string) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.DeleteColumn(family, qualifier))
}

// DeleteRange deletes the versions of a column with timestamps in [start, end), in
// microseconds. Both are bounds, whatever their value: Apply rejects an end that is
// not after start.
func (m *RowMutation) DeleteRange(column string, start, end int64) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.DeleteColumnRange(family, qualifier, start, table.Before(end)))
}

// DeleteFrom deletes the versions of a column with timestamps of start or later, in
// microseconds.
func (m *RowMutation) DeleteFrom(column string, start int64) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.DeleteColumnRange(family, qualifier, start, table.TimestampEnd{}))
}

// DeleteFamily deletes the row's cells in one family.
func (m *RowMutation) DeleteFamily(family string) *RowMutation {
	return m.Add(table.DeleteFamily(family))
}

// DeleteRow deletes all the row's cells.
func (m *RowMutation) DeleteRow() *RowMutation { return m.Add(table.DeleteRow()) }

// Add adds changes that are made already.
func (m *RowMutation) Add(changes ...table.Mutation) *RowMutation {
	m.rm.Mutations = append(m.rm.Mutations, changes...)
	return m
}

// Row returns the row's key.
func (m *RowMutation) Row() string { return string(m.rm.Row) }

// Len returns the number of changes.
func (m *RowMutation) Len() int { return len(m.rm.Mutations) }

// Size returns the bytes of names and data that the mutation carries.
func (m *RowMutation) Size() int64 { return m.rm.Size() }

func (m *RowMutation) column(column string) (string, []byte) {
	family, qualifier, err := ParseColumn(column)
	if err != nil && m.err == nil {
		m.err = err
	}
	return family, qualifier
}

// check returns what is wrong with m before it is sent. The server checks the rest.
func (m *RowMutation) check() error {
	switch {
	case m.err != nil:
		return m.err
	case len(m.rm.Row) == 0:
		return table.ErrBadRowKey
	case len(m.rm.Mutations) == 0:
		return table.ErrNoMutations
	}
	for i := range m.rm.Mutations {
		if op := m.rm.Mutations[i].Op; op < table.OpSet || op > table.OpDeleteRow {
			return &table.ElementError{What: "mutation", Index: i, Err: table.ErrBadOp}
		}
	}
	return nil
}

// idempotent tells whether applying m twice in a row is the same as once: it asks
// for no timestamp of the server's.
func (m *RowMutation) idempotent() bool {
	for i := range m.rm.Mutations {
		if c := &m.rm.Mutations[i]; c.Op == table.OpSet && c.Timestamp == table.ServerTimestamp {
			return false
		}
	}
	return true
}

// ParseColumn splits a column name at its first colon into a family and a
// qualifier. The qualifier may be empty and may hold any bytes, colons too:
// "anchor:http://cnn.com" is family "anchor". A name without a colon, or with
// nothing before it, is a table.ErrBadName.
func ParseColumn(column string) (family string, qualifier []byte, err error) {
	family, rest, ok := strings.Cut(column, ":")
	if !ok {
		return "", nil, &table.NameError{What: "column", Name: column, Reason: `has no colon: want "family:qualifier"`}
	}
	if family == "" {
		return "", nil, &table.NameError{What: "column", Name: column, Reason: "has no family before its colon"}
	}
	return family, []byte(rest), nil
}

// ColumnName is the opposite of ParseColumn: it names the column that a cell is in.
func ColumnName(c *table.Cell) string { return c.Family + ":" + string(c.Qualifier) }

// Latest returns the newest cell of a column in row, which may be nil, and whether
// there is one. Row is as a read returns it: sorted, newest first.
func Latest(row *table.Row, column string) (table.Cell, bool) {
	if row == nil {
		return table.Cell{}, false
	}
	family, qualifier, _ := strings.Cut(column, ":")
	for i := range row.Cells {
		if c := &row.Cells[i]; c.Family == family && string(c.Qualifier) == qualifier {
			return *c, true
		}
	}
	return table.Cell{}, false
}
