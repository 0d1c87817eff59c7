package table

import (
	"bytes"
	"cmp"
	"strings"
)

// ServerTimestamp, as the timestamp of an OpSet mutation, asks the tablet server
// for a timestamp of its own: real time in microseconds, strictly above every
// timestamp that it has given out for the row before.
const ServerTimestamp int64 = -1

// A Cell is one version of one column of a row.
type Cell struct {
	// Family is the name of the column family.
	Family string
	// Qualifier is the rest of the column's name: any bytes, none included.
	Qualifier []byte
	// Timestamp is in microseconds. Stored cells have no negative one.
	Timestamp int64
	// Value is any bytes. It is empty after StripValue.
	Value []byte
	// Labels are those that ApplyLabel filters put on the cell: none or one, as
	// a cell passes through at most one of them. Never stored.
	Labels []string
}

// A Row is a row key and cells of that row, sorted as CompareCells sorts.
type Row struct {
	Key   []byte
	Cells []Cell
}

// CompareCells orders the cells of a row: by family name, then qualifier, then
// newest first. Two cells are equal in this order when one would replace the
// other on a write; values and labels do not count.
func CompareCells(a, b *Cell) int {
	if a.Family != b.Family {
		return strings.Compare(a.Family, b.Family)
	}
	if c := bytes.Compare(a.Qualifier, b.Qualifier); c != 0 {
		return c
	}
	return cmp.Compare(b.Timestamp, a.Timestamp)
}

// sameColumn tells whether a and b are versions of one column. Qualifiers are
// compared first: neighbours mostly share their family.
func sameColumn(a, b *Cell) bool {
	return bytes.Equal(a.Qualifier, b.Qualifier) && a.Family == b.Family
}
