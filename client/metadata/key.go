package metadata

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/table"
)

// TableID is the id of METADATA, and Name its name. RootTabletID and FirstTabletID are the tablets that it
// begins with. Ids of users' tables, and of all other tablets, are from FirstID on and below EndID, which
// FirstGeneration bounds.
const (
	TableID       uint64 = 1
	Name                 = "METADATA"
	RootTabletID  uint64 = 2
	FirstTabletID uint64 = 3
	FirstID       uint64 = 16
	EndID         uint64 = 1 << (64 - generationBits)
)

// keyBytes is what a key has beside the end row.
const keyBytes = 9

// EndMax is the longest end of a tablet, in bytes: its row of METADATA has a key like any other.
var EndMax = table.DefaultLimits().RowKeyBytes - keyBytes

const (
	endsAt  = 0
	endless = 1
)

// Key returns the key of the row of a table's tablet that ends at end, where none means no end. It
// is appended to buf.
func Key(buf []byte, table uint64, end []byte) []byte {
	buf = binary.BigEndian.AppendUint64(buf, table)
	if len(end) == 0 {
		return append(buf, endless)
	}
	return append(append(buf, endsAt), end...)
}

// SeekKey returns the key at or after which the first row is that of the tablet which has row.
// It is appended to buf. No tablet ends between a row that is longer than any end and what it begins with, so
// that will do for it.
func SeekKey(buf []byte, table uint64, row []byte) []byte {
	if int64(len(row)) > EndMax {
		row = append(row[:EndMax:EndMax], 0)
	}
	return append(append(binary.BigEndian.AppendUint64(buf, table), endsAt), row...)
}

// TableRange returns the first key that rows of a table's tablets may have, and the first after all
// of them.
func TableRange(table uint64) (start, end []byte) {
	return binary.BigEndian.AppendUint64(nil, table), binary.BigEndian.AppendUint64(nil, table+1)
}

// RootEnd is where the root tablet ends.
func RootEnd() []byte { return Key(nil, TableID, nil) }

// ParseKey returns what Key was given: an end that is nil is no end. The error is a *FormatError.
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

// endTextMax is how much of an end row is shown, in bytes.
const endTextMax = 80

// Describe says for people which tablet a key is that of. name is its table's, and may be
// empty if that is not known.
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
