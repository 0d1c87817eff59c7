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

// The columns.
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

// RecoveriesMax bounds the recoveries that a tablet is given: one for each server that died with it before it could be
// written out. The master stops loading a tablet long before. recoveriesMax bounds those that are read.
const RecoveriesMax, recoveriesMax = 500, 1000

// Row is what METADATA says of one tablet.
type Row struct {
	Table uint64
	End   []byte // nil: no end
	// Generation grows with each change of the row.
	Generation uint64
	// Server is the instance of a tablet server that has the tablet, empty if none
	// has; Addr is where it was reached when it got it.
	Server, Addr string
	// Meta is what the tablet consists of, in the form of package tablet.
	Meta []byte
	// Recoveries are the servers whose commit logs have something of the tablet that is
	// in none of its files.
	Recoveries []string
	// Split is what the lower part is to consist of while the tablet is being split, in the form of
	// package tablet: whoever gets the tablet makes the row of that, if it is not there.
	Split []byte
}

// FirstGeneration is the generation of the row that a tablet with that id gets when it is made.
func FirstGeneration(tablet uint64) uint64 { return tablet << generationBits }

// generationBits is the number of bits in which the changes of one tablet's row are counted.
const generationBits = 24

// FormatError means that what was read is not a row of METADATA.
type FormatError struct {
	What string // what is wrong: "key", or a column
	Key  []byte // the row, if it is known
	Err  error
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("METADATA row %.80q: %s: %v", e.Key, e.What, e.Err)
}

// Unwrap returns what is wrong.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode reads a row of METADATA. Columns that it does not know, and events, are passed over. It
// keeps nothing of r, and Meta is nil if r was read without it. The error is a *FormatError; unless its key is
// wrong, the row that comes with it has its table and end, so that a reader of many rows can report it and go on.
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
		if err := out.take(column, c.Value); err != nil {
			return &Row{Table: out.Table, End: out.End}, &FormatError{What: column, Key: r.Key, Err: err}
		}
	}
	if out.Generation == 0 {
		return &Row{Table: out.Table, End: out.End}, &FormatError{What: familyLoc + ":" + string(columnGeneration), Key: r.Key, Err: errors.New("it is missing")}
	}
	return out, nil
}

// take takes one column's value over.
func (r *Row) take(column string, value []byte) error {
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

// Event is something that happened to a tablet.
type Event struct {
	Time int64 // µs since 1970
	Text string
}

// Events returns what happened to the tablet of a row that was read with RowsWithEvents, newest first.
func Events(r *table.Row) (all []Event) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Family == familyEvent {
			all = append(all, Event{c.Timestamp, string(c.Value)})
		}
	}
	return all
}

// decode reads one MessagePack value. What f leaves unread, values that later versions append to an array, is ignored.
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

// Says tells whether the row says the same of its tablet as another. Who changed it last, and how often
// it was changed, is no part of that, but which server has it is.
func (r *Row) Says(other *Row) bool {
	return r.Server == other.Server && r.Addr == other.Addr && bytes.Equal(r.Meta, other.Meta) &&
		bytes.Equal(r.Split, other.Split) && slices.Equal(r.Recoveries, other.Recoveries)
}

// IsRoot says whether the row is of METADATA itself.
func (r *Row) IsRoot() bool { return r.Table == TableID }

// Unassigned says whether no server has the tablet.
func (r *Row) Unassigned() bool { return r.Server == "" }
