package client

import (
	"strings"
	"time"

	"github.com/steledb/stele/table"
)

// RowMutation collects changes to one row, which Table.Apply makes atomically (paper, Figure 2).
// Changes apply in the order in which they are added: a delete covers earlier sets, not later ones.
//
// Columns are named "family:qualifier"; see ParseColumn. Apply reports an invalid name. A
// RowMutation retains the values passed to it and must not be changed while it is being applied. It
// may be applied more than once.
type RowMutation struct {
	rm    table.RowMutation
	err   error             // for the first invalid column name
	first [1]table.Mutation // most mutations have one change and need no other slice
}

// NewRowMutation returns an empty mutation of a row. The key has 1 byte to 64 KiB, of any values.
func NewRowMutation(row string) *RowMutation {
	m := &RowMutation{}
	m.Reset(row)
	return m
}

// Reset makes m an empty mutation of row and keeps its memory.
func (m *RowMutation) Reset(row string) {
	m.err, m.rm.Token = nil, nil
	m.rm.Row = append(m.rm.Row[:0], row...)
	clear(m.rm.Mutations)
	if m.rm.Mutations == nil {
		m.rm.Mutations = m.first[:]
	}
	m.rm.Mutations = m.rm.Mutations[:0]
}

// Set writes value to a column with a timestamp of the tablet server's clock. The timestamp is
// above every one that the server has assigned in the row.
func (m *RowMutation) Set(column string, value []byte) *RowMutation {
	return m.SetAt(column, table.ServerTimestamp, value)
}

// SetAt writes value to a column with a timestamp in microseconds, which must not be negative. It
// replaces an existing cell with the same timestamp.
func (m *RowMutation) SetAt(column string, timestamp int64, value []byte) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.Set(family, qualifier, timestamp, value))
}

// AddInt adds n to the cell of a column in an aggregate family: to its sum, its minimum, its maximum or its distinct integers. The timestamp, in
// microseconds, identifies the cell, and must not be negative.
func (m *RowMutation) AddInt(column string, timestamp, n int64) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.Add(family, qualifier, timestamp, n))
}

// Merge merges the value of a cell of an aggregate family into the cell of a column in such a family.
func (m *RowMutation) Merge(column string, timestamp int64, value []byte) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.Merge(family, qualifier, timestamp, value))
}

// Delete deletes all versions of a column.
func (m *RowMutation) Delete(column string) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.DeleteColumn(family, qualifier))
}

// DeleteRange deletes the versions of a column with timestamps in [start, end), in microseconds.
// Apply rejects an end that is not after start, including 0.
func (m *RowMutation) DeleteRange(column string, start, end int64) *RowMutation {
	family, qualifier := m.column(column)
	return m.Add(table.DeleteColumnRange(family, qualifier, start, table.Before(end)))
}

// DeleteFrom deletes the versions of a column with timestamps of at least start, in microseconds.
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

// Add appends changes.
func (m *RowMutation) Add(changes ...table.Mutation) *RowMutation {
	m.rm.Mutations = append(m.rm.Mutations, changes...)
	return m
}

// WithToken makes m idempotent: the servers make it once, however often it is sent, and the client sends it again after its outcome became unknown, whatever
// the Replay. The id, of 8 to 1024 bytes, must not be that of another mutation of the row. start is when m was first sent; the servers reject m 15 minutes
// later. The zero time means that m is accepted at any time, and may be made twice if 20 minutes lie between.
//
// Without a token, changes that add to aggregate cells cannot be repeated safely. The token belongs to m: applying m twice makes its changes once. CheckAndMutate
// rejects it. Apply may return table.ErrBadToken. Use tokens once all nodes know them: earlier versions reject them.
func (m *RowMutation) WithToken(id []byte, start time.Time) *RowMutation {
	m.rm.Token = &table.Token{ID: id}
	if !start.IsZero() {
		m.rm.Token.Start = start.UnixMicro()
	}
	return m
}

// Token returns the token of m, or nil.
func (m *RowMutation) Token() *table.Token { return m.rm.Token }

// Row returns the row's key.
func (m *RowMutation) Row() string { return string(m.rm.Row) }

// Len returns the number of changes.
func (m *RowMutation) Len() int { return len(m.rm.Mutations) }

// Size returns the size of the mutation's names and data, in bytes.
func (m *RowMutation) Size() int64 { return m.rm.Size() }

func (m *RowMutation) column(column string) (string, []byte) {
	family, qualifier, err := ParseColumn(column)
	if err != nil && m.err == nil {
		m.err = err
	}
	return family, qualifier
}

// check validates m before it is sent. The server checks the rest.
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
		if op := m.rm.Mutations[i].Op; op < table.OpSet || op > table.OpMerge {
			return &table.ElementError{What: "mutation", Index: i, Err: table.ErrBadOp}
		}
	}
	return nil
}

// idempotent reports whether applying m twice in a row equals applying it once: no set uses the
// server's timestamp, and nothing is added to aggregate cells.
func (m *RowMutation) idempotent() bool {
	for i := range m.rm.Mutations {
		if c := &m.rm.Mutations[i]; c.Op == table.OpSet && c.Timestamp == table.ServerTimestamp || c.Op.IsOperand() && !m.isDeletedBefore(i) {
			return false
		}
	}
	return true
}

// isDeletedBefore reports whether an earlier change of m deletes the cell that the operand at an index is added to.
func (m *RowMutation) isDeletedBefore(index int) bool {
	o := &m.rm.Mutations[index]
	for i := index - 1; i >= 0; i-- {
		switch c := &m.rm.Mutations[i]; {
		case c.Op == table.OpDeleteRow, c.Op == table.OpDeleteFamily && c.Family == o.Family:
			return true
		case c.Op == table.OpDeleteColumn && c.Family == o.Family && string(c.Qualifier) == string(o.Qualifier) &&
			o.Timestamp >= c.Start && c.End.Contains(o.Timestamp):
			return true
		}
	}
	return false
}

// ParseColumn splits a column name at its first colon into a family and a qualifier. The qualifier
// may be empty and may contain any bytes, including colons: "anchor:http://cnn.com" is family
// "anchor". A name without a colon, or with an empty family, is a table.ErrBadName.
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

// ColumnName returns the column name of a cell. It is the inverse of ParseColumn.
func ColumnName(c *table.Cell) string { return c.Family + ":" + string(c.Qualifier) }

// Latest returns the newest cell of a column in row, and whether there is one. row may be nil. Its
// cells must be in the order of a read: newest first.
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
