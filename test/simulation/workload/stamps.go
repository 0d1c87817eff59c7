package workload

import (
	"math"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// Timestamps that clients set are about a day before the start of the history, or a day after it, and few, so that they are often the
// same. So they are before or after all server timestamps, whatever the clocks of servers do.
const (
	explicitDistance = 24 * int64(time.Hour/time.Microsecond)
	explicitCount    = 4
	// serverBound is between server timestamps and those that clients set.
	serverBound = explicitDistance / 2
)

// Explicit reports whether a timestamp, in µs since the start of the history, was set by a client.
func Explicit(stamp int64) bool {
	return stamp >= explicitDistance && stamp < explicitDistance+explicitCount || stamp >= -explicitDistance && stamp < -explicitDistance+explicitCount
}

// explicit returns a timestamp for a client to set.
func (c *rowClient) explicit() int64 {
	at := explicitDistance
	if c.r.IntN(2) == 0 {
		at = -explicitDistance
	}
	return at + c.r.Int64N(explicitCount)
}

// stamped returns changes of one row whose order and timestamps matter: mostly of one column.
func (c *rowClient) stamped(t *TablePlan) (changes []Change) {
	column := c.column(t)
	for range 1 + c.r.IntN(4) {
		if c.r.IntN(4) == 0 {
			column = c.column(t)
		}
		changes = append(changes, c.stampedChange(column))
	}
	return changes
}

func (c *rowClient) stampedChange(column string) Change {
	switch n := c.r.IntN(20); {
	case n < 9:
		return Change{Kind: Set, Column: column, Value: c.value(), At: c.explicit()}
	case n < 13:
		return Change{Kind: Set, Column: column, Value: c.value()}
	case n < 15:
		return Change{Kind: DeleteColumn, Column: column}
	case n < 16:
		family, _, _ := client.ParseColumn(column) // it is valid
		return Change{Kind: DeleteCells, Column: family}
	case n < 17:
		family, _, _ := client.ParseColumn(column) // it is valid
		return Change{Kind: Set, Column: family + ":" + logQualifier, Value: c.entry(), At: c.explicit()}
	}
	x := Change{Kind: DeleteVersions, Column: column}
	for x.From >= x.To {
		x.From, x.To = c.bound(), c.bound()
	}
	return x
}

// bound returns a bound of timestamps. Each server timestamp is on the same side of it.
func (c *rowClient) bound() int64 {
	all := [...]int64{math.MinInt64, -serverBound, serverBound, math.MaxInt64}
	if i := c.r.IntN(2 * len(all)); i < len(all) {
		return all[i]
	}
	return c.explicit()
}

// timestamp returns a timestamp of a cell, in µs since 1970, for one in µs since the start of the history.
func (h *History) timestamp(stamp int64) int64 { return h.started.UnixMicro() + stamp }

// add adds the change to a mutation.
func (h *History) add(m *client.RowMutation, x Change) {
	switch x.Kind {
	case Set:
		contents := Contents
		if IsLog(x.Column) {
			contents = func(entry string) []byte { return []byte(entry) }
		}
		if x.At == 0 {
			m.Set(x.Column, contents(x.Value))
		} else {
			m.SetAt(x.Column, h.timestamp(x.At), contents(x.Value))
		}
	case Operand:
		switch at := h.timestamp(x.At); {
		case x.N%2 == 0:
			m.AddInt(x.Column, at, x.N)
		case isSketch(x.Column):
			m.Merge(x.Column, at, sketchOf(x.N))
		default:
			m.Merge(x.Column, at, table.Integer(x.N))
		}
	case DeleteVersions:
		start := int64(0)
		if x.From != math.MinInt64 {
			start = h.timestamp(x.From)
		}
		if x.To == math.MaxInt64 {
			m.DeleteFrom(x.Column, start)
		} else {
			m.DeleteRange(x.Column, start, h.timestamp(x.To))
		}
	case DeleteColumn:
		m.Delete(x.Column)
	case DeleteCells:
		m.DeleteFamily(x.Column)
	case DeleteRow:
		m.DeleteRow()
	}
}
