package table

import (
	"bytes"
	"cmp"
	"strings"
)

// ServerTimestamp as the timestamp of an OpSet mutation requests a timestamp from the tablet
// server: wall-clock time in microseconds, strictly greater than every timestamp it has assigned in
// that row.
const ServerTimestamp int64 = -1

// A Cell is one version of one column of a row.
type Cell struct {
	// Family is the name of the column family.
	Family string
	// Qualifier is the column name within the family: any bytes, possibly none.
	Qualifier []byte
	// Timestamp is in microseconds. It is never negative in a stored cell.
	Timestamp int64
	// Value is any bytes. It is empty after StripValue.
	Value []byte
	// Labels are set by ApplyLabel filters: at most one, since a cell passes through at most one of
	// them. Labels are never stored.
	Labels []string
}

// A Row is a row key and the cells of that row, in CompareCells order.
type Row struct {
	Key   []byte
	Cells []Cell
}

// CompareCells orders the cells of a row by family name, then qualifier, then newest first. Two
// cells are equal if a write of one would replace the other. Values and labels are not compared.
func CompareCells(a, b *Cell) int {
	if a.Family != b.Family {
		return strings.Compare(a.Family, b.Family)
	}
	if c := bytes.Compare(a.Qualifier, b.Qualifier); c != 0 {
		return c
	}
	return cmp.Compare(b.Timestamp, a.Timestamp)
}

// sameColumn reports whether a and b are versions of one column. It compares qualifiers first
// because adjacent cells mostly share their family.
func sameColumn(a, b *Cell) bool {
	return bytes.Equal(a.Qualifier, b.Qualifier) && a.Family == b.Family
}
