package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Column families.
const (
	familyLoc   = "loc"
	familyFiles = "files"
	familyLog   = "log"
	familyEvent = "event"
	familyGone  = "gone"
)

var (
	columnGeneration = []byte("generation")
	columnServer     = []byte("server")
	columnMeta       = []byte("meta")
	columnRecoveries = []byte("recoveries")
	columnSplit      = []byte("split")
)

// RecoveriesMax is the maximum number of recoveries that a tablet gets: one for each server that
// died with it before a minor compaction. The master stops loading a tablet long before.
// recoveriesMax is the maximum that a reader accepts.
const RecoveriesMax, recoveriesMax = 500, 1000

// Row is the METADATA row of one tablet.
type Row struct {
	Table uint64
	End   []byte // nil: no end
	// Generation grows with each change of the row.
	Generation uint64
	// Server is the tablet server instance to which the tablet is assigned, or empty. Addr is the
	// server's address at the time of the assignment.
	Server, Addr string
	// Meta describes the tablet's contents, in the format of package tablet.
	Meta []byte
	// Recoveries lists the servers whose commit logs hold mutations of the tablet that are in none
	// of its files.
	Recoveries []string
	// Split describes the lower part while the tablet is being split, in the format of package
	// tablet. If the tablet moves then, its next server creates the missing row of that part.
	Split []byte
}

// FirstGeneration is the first generation of the row of the tablet with that id.
func FirstGeneration(tablet uint64) uint64 { return tablet << generationBits }

// generationBits is the number of bits that count the changes of one tablet's row.
const generationBits = 24

// FormatError means that data is not a valid METADATA row.
type FormatError struct {
	What string // the invalid part: "key" or a column
	Key  []byte // of the row, if it is known
	Err  error
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("METADATA row %.80q: %s: %v", e.Key, e.What, e.Err)
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode decodes a METADATA row. It ignores events and unknown columns and retains nothing of r.
// Meta is nil if r was read without it. The error is a *FormatError. Unless the key is invalid,
// Decode then also returns a Row with the table and end, so that a reader of many rows can report
// it and continue.
func Decode(r *table.Row) (*Row, error) {
	out := &Row{}
	var err error
	if out.Table, out.End, err = ParseKey(r.Key); err != nil {
		return nil, &FormatError{What: "key", Key: r.Key, Err: err}
	}
	seen := map[string]bool{}
	for i := range r.Cells {
		c := &r.Cells[i]
		column := c.Family + ":" + string(c.Qualifier)
		if c.Family == familyEvent || seen[column] { // an older version
			continue
		}
		seen[column] = true
		if err := out.decodeColumn(column, c.Value); err != nil {
			return &Row{Table: out.Table, End: out.End}, &FormatError{What: column, Key: r.Key, Err: err}
		}
	}
	if out.Generation == 0 {
		return &Row{Table: out.Table, End: out.End}, &FormatError{What: familyLoc + ":" + string(columnGeneration), Key: r.Key, Err: errors.New("missing")}
	}
	return out, nil
}

// decodeColumn decodes one column's value.
func (r *Row) decodeColumn(column string, value []byte) error {
	switch column {
	case familyLoc + ":" + string(columnGeneration):
		if len(value) != 8 {
			return fmt.Errorf("%d bytes, want 8", len(value))
		}
		r.Generation = binary.BigEndian.Uint64(value)
	case familyLoc + ":" + string(columnServer):
		return decode(value, func(d *wire.Decoder) {
			d.Array()
			r.Server, r.Addr = d.Str(), d.Str()
		})
	case familyFiles + ":" + string(columnMeta):
		r.Meta = bytes.Clone(value)
		return r.checkMeta(value)
	case familyFiles + ":" + string(columnSplit):
		r.Split = bytes.Clone(value)
		return r.checkSplit(value)
	case familyLog + ":" + string(columnRecoveries):
		return decode(value, func(d *wire.Decoder) { r.Recoveries = decodeStrings(d) })
	}
	return nil
}

// Event is an entry of a tablet's history.
type Event struct {
	Time int64 // µs since 1970
	Text string
}

// Events returns the events in a row that was read with RowsWithEvents, newest first.
func Events(r *table.Row) (all []Event) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Family == familyEvent {
			all = append(all, Event{c.Timestamp, string(c.Value)})
		}
	}
	return all
}

// decode decodes one MessagePack value. It ignores values that f leaves unread, which later
// versions may append to an array.
func decode(b []byte, f func(d *wire.Decoder)) error {
	if err := wire.CheckOne(b, wire.Limits{}); err != nil {
		return err
	}
	d := wire.NewDecoder(b)
	f(&d)
	return d.Err()
}

func decodeStrings(d *wire.Decoder) (all []string) {
	for n := d.ArrayMax(recoveriesMax); n > 0 && d.Err() == nil; n-- {
		all = append(all, d.Str())
	}
	return all
}

func encode(f func(e *wire.Encoder)) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	f(e)
	return bytes.Clone(e.Bytes())
}

func appendStrings(e *wire.Encoder, all []string) {
	e.Array(len(all))
	for _, s := range all {
		e.Str(s)
	}
}

// Key returns the row's key.
func (r *Row) Key() []byte { return Key(nil, r.Table, r.End) }

// SameContents reports whether the row and other have the same contents: server, address, tablet and
// recoveries. Generations and events are not compared.
func (r *Row) SameContents(other *Row) bool {
	return r.Server == other.Server && r.Addr == other.Addr && bytes.Equal(r.Meta, other.Meta) &&
		bytes.Equal(r.Split, other.Split) && slices.Equal(r.Recoveries, other.Recoveries)
}

// IsRoot reports whether the row belongs to METADATA itself.
func (r *Row) IsRoot() bool { return r.Table == TableID }

// Unassigned reports whether the tablet is not assigned to a server.
func (r *Row) Unassigned() bool { return r.Server == "" }
