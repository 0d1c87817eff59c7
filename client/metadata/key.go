package metadata

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/table"
)

// TableID and Name are the id and name of METADATA. RootTabletID and FirstTabletID are its first
// tablets. Ids of user tables and of all other tablets are at least FirstID and below EndID, which
// the bits of FirstGeneration limit.
const (
	TableID       uint64 = 1
	Name                 = "METADATA"
	RootTabletID  uint64 = 2
	FirstTabletID uint64 = 3
	FirstID       uint64 = 16
	EndID         uint64 = 1 << (64 - generationBits)
)

// keyBytes is the length of a key without the end row.
const keyBytes = 9

// EndMax is the maximum length of a tablet's end row, in bytes, because the METADATA row key
// contains it.
var EndMax = table.DefaultLimits().RowKeyBytes - keyBytes

const (
	endsAt  = 0
	endless = 1
)

// Key appends to buf the key of the METADATA row of the table's tablet that ends at end. An empty
// end means no end.
func Key(buf []byte, table uint64, end []byte) []byte {
	buf = binary.BigEndian.AppendUint64(buf, table)
	if len(end) == 0 {
		return append(buf, endless)
	}
	return append(append(buf, endsAt), end...)
}

// SeekKey appends to buf the key at or after which the first METADATA row is that of the tablet
// which holds row. A row longer than EndMax is cut: no tablet ends between the row and its first
// EndMax bytes.
func SeekKey(buf []byte, table uint64, row []byte) []byte {
	if int64(len(row)) > EndMax {
		row = append(row[:EndMax:EndMax], 0)
	}
	return append(append(binary.BigEndian.AppendUint64(buf, table), endsAt), row...)
}

// TableRange returns the range of keys of a table's tablets: the first possible key and the first
// key after all of them.
func TableRange(table uint64) (start, end []byte) {
	return binary.BigEndian.AppendUint64(nil, table), binary.BigEndian.AppendUint64(nil, table+1)
}

// RootEnd returns the end row of the root tablet.
func RootEnd() []byte { return Key(nil, TableID, nil) }

// ParseKey returns the arguments of Key; a nil end means no end. The error is a *FormatError.
func ParseKey(key []byte) (table uint64, end []byte, err error) {
	if len(key) < keyBytes {
		return 0, nil, &FormatError{What: "key", Err: fmt.Errorf("%d bytes, want %d or more", len(key), keyBytes)}
	}
	table = binary.BigEndian.Uint64(key)
	rest := key[keyBytes:]
	switch {
	case key[8] == endless && len(rest) == 0:
		return table, nil, nil
	case key[8] == endsAt && len(rest) > 0:
		return table, bytes.Clone(rest), nil
	}
	return 0, nil, &FormatError{What: "key", Err: fmt.Errorf("mark %d before %d bytes of an end row", key[8], len(rest))}
}

// endTextMax is the number of bytes of an end row that Describe shows.
const endTextMax = 80

// Describe returns a description of the tablet of a key, for messages. name is the name of its
// table, or empty if that is not known.
func Describe(key []byte, name string) string {
	id, end, err := ParseKey(key)
	switch {
	case err != nil:
		return fmt.Sprintf("bad key %.80q", key)
	case id == TableID && len(end) >= keyBytes:
		return Name + " to the row of " + Describe(end, "")
	case id == TableID:
		name = Name
	case name == "":
		name = fmt.Sprintf("table %d", id)
	}
	switch {
	case end == nil:
		return name + " to its last row"
	case len(end) > endTextMax:
		return fmt.Sprintf("%s to row %q…", name, end[:endTextMax])
	}
	return fmt.Sprintf("%s to row %q", name, end)
}

// IsSystem reports whether a table belongs to the cluster itself. In an open cluster this protects it from mistakes, not from malice:
// any client can claim to be a node.
func IsSystem(table string) bool { return table == Name }
