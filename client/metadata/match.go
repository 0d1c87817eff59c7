package metadata

import (
	"bytes"
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// MismatchError means that a row of METADATA describes a tablet other than the one that its key names. No tablet is loaded from such a
// row: it would serve another's rows.
type MismatchError struct {
	Table uint64 // of the tablet that is described
	End   []byte
}

func (e *MismatchError) Error() string {
	return "it describes another tablet: " + Describe(Key(nil, e.Table, e.End), "")
}

// metaValues is the number of values with which package tablet begins the description of a tablet: [version, id, table, start, end, …].
const metaValues = 5

// described returns the table and the end of the tablet that a description is of.
func described(meta []byte) (table uint64, end []byte, err error) {
	err = decode(meta, func(d *wire.Decoder) {
		if d.Array() < metaValues {
			d.Fail(errors.New("too few values"))
			return
		}
		d.Uint()
		d.Uint()
		table = d.Uint()
		d.Bytes()
		end = bytes.Clone(d.Bytes())
	})
	return table, end, err
}

// checkMeta returns a *MismatchError unless a description is of the row's tablet.
func (r *Row) checkMeta(meta []byte) error {
	table, end, err := described(meta)
	if err == nil && (table != r.Table || !bytes.Equal(end, r.End)) {
		err = &MismatchError{table, end}
	}
	return err
}

// checkSplit returns a *MismatchError unless a description is of a tablet that can be split off below the row's.
func (r *Row) checkSplit(meta []byte) error {
	table, end, err := described(meta)
	if err == nil && (table != r.Table || len(end) == 0 || len(r.End) > 0 && bytes.Compare(end, r.End) >= 0) {
		err = &MismatchError{table, end}
	}
	return err
}
