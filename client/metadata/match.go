package metadata

import (
	"bytes"
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// MismatchError means that a METADATA row describes a tablet other than the one that its key names.
// Such a tablet is not loaded, because it would serve rows of another tablet.
type MismatchError struct {
	Table uint64 // of the described tablet
	End   []byte
}

func (e *MismatchError) Error() string {
	return "describes another tablet: " + Describe(Key(nil, e.Table, e.End), "")
}

// metaValues is the number of leading values of package tablet's description that are read:
// [version, id, table, start, end, …].
const metaValues = 5

// described returns the table and end row in a description of a tablet.
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

// checkMeta returns a *MismatchError if meta does not describe the row's tablet.
func (r *Row) checkMeta(meta []byte) error {
	table, end, err := described(meta)
	if err == nil && (table != r.Table || !bytes.Equal(end, r.End)) {
		err = &MismatchError{table, end}
	}
	return err
}

// checkSplit returns a *MismatchError if meta does not describe a lower part that can be split off
// the row's tablet.
func (r *Row) checkSplit(meta []byte) error {
	table, end, err := described(meta)
	if err == nil && (table != r.Table || len(end) == 0 || len(r.End) > 0 && bytes.Compare(end, r.End) >= 0) {
		err = &MismatchError{table, end}
	}
	return err
}
