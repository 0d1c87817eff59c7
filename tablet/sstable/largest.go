package sstable

import (
	"encoding/binary"
	"fmt"
)

// PropLargest is the property with the size of a table's largest value in bytes, as a uvarint. The
// writer's caller adds it. Files of earlier versions lack it.
const PropLargest = "tablet.largest"

// LargestValue returns the size of the table's largest value in bytes, or 0 if it is not recorded.
func (t *Table) LargestValue() (int64, error) {
	p, ok := t.Properties()[PropLargest]
	if !ok {
		return 0, nil
	}
	largest, n := binary.Uvarint(p)
	if n != len(p) || largest > 1<<32 {
		return 0, fmt.Errorf("sstable %s: property %s is malformed", t.Name(), PropLargest)
	}
	return int64(largest), nil
}
