package tablet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// The body of a commit log record is a row mutation as the entries that it adds to the memtable:
//
//	body  = length of row part | row part | entry …
//	entry = form (1 byte) | length of suffix | suffix | length of value | value
//
// Lengths are uvarints. Row part and suffix are pieces of an internal key (see ikey). The missing
// part is added when the entry is applied:
//
//	form 1  a cell with its own timestamp   + sequence number
//	form 2  a cell with the server's        + the record's time + sequence number
//	form 3  a deletion                      + sequence number
//
// Form numbers are append-only.
const (
	formCell       = 1
	formServerCell = 2
	formDeletion   = 3
)

var errBadBody = errors.New("malformed body of a commit log record")

// seqPlaceholder is passed to ikey while the sequence number is unknown.
const seqPlaceholder = 0

// appendBody encodes rm, which has passed table's validation. It returns the number of entries and
// whether any needs the server's time. The error is table.ErrNoFamily.
func appendBody(dst []byte, s *schema, rm *table.RowMutation) (body []byte, ops uint32, needTime bool, err error) {
	var scratch [256]byte
	part := ikey.AppendRow(scratch[:0], rm.Row)
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	dst = append(dst, part...)
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		form, suffix, value := byte(formDeletion), part[:0], m.Value
		if m.Op != table.OpDeleteRow {
			f := s.family(m.Family)
			if f == nil {
				return dst, 0, false, &table.NoFamilyError{Table: s.table.Name, Family: m.Family}
			}
			suffix = ikey.AppendFamily(suffix, f.Name, f.ID)
		}
		trim := 8 // the sequence number
		switch m.Op {
		case table.OpSet:
			suffix = ikey.AppendCell(ikey.AppendColumn(suffix, m.Qualifier), m.Timestamp, seqPlaceholder)
			form = formCell
			if m.Timestamp == table.ServerTimestamp {
				form, trim, needTime = formServerCell, 16, true
			}
		case table.OpDeleteColumn:
			suffix = ikey.AppendDeleteColumn(ikey.AppendColumn(suffix, m.Qualifier), seqPlaceholder)
			end, _ := m.End.Bound() // Validate rejects a bound of 0, which means no bound on disk
			value = ikey.AppendRange(nil, m.Start, end)
		case table.OpDeleteFamily:
			suffix, value = ikey.AppendDeleteFamily(suffix, seqPlaceholder), nil
		case table.OpDeleteRow:
			suffix, value = ikey.AppendDeleteRow(suffix, seqPlaceholder), nil
		default:
			return dst, 0, false, fmt.Errorf("BUG: mutation kind %d passed validation", m.Op)
		}
		part = suffix[:0]
		suffix = suffix[:len(suffix)-trim]
		dst = append(dst, form)
		dst = binary.AppendUvarint(dst, uint64(len(suffix)))
		dst = append(dst, suffix...)
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(dst, value...)
	}
	return dst, uint32(len(rm.Mutations)), needTime, nil
}

// eachEntry calls f for each entry of a record's body, with its internal key and its value. The key
// is valid during the call; its memory is scratch, which is returned for reuse. The error wraps
// errBadBody or is f's.
func eachEntry(body []byte, first uint64, time int64, scratch []byte, f func(key, value []byte) error) ([]byte, error) {
	row, rest, err := takeBytes(body)
	if err != nil {
		return scratch, err
	}
	seq := first
	for len(rest) > 0 {
		form := rest[0]
		var suffix, value []byte
		if suffix, rest, err = takeBytes(rest[1:]); err != nil {
			return scratch, err
		}
		if value, rest, err = takeBytes(rest); err != nil {
			return scratch, err
		}
		scratch = append(append(scratch[:0], row...), suffix...)
		switch form {
		case formCell, formDeletion:
		case formServerCell:
			scratch = binary.BigEndian.AppendUint64(scratch, ^uint64(time))
		default:
			return scratch, fmt.Errorf("%w: entry of form %d", errBadBody, form)
		}
		scratch = binary.BigEndian.AppendUint64(scratch, ^seq)
		if err := f(scratch, value); err != nil {
			return scratch, err
		}
		seq++
	}
	return scratch, nil
}

// rowOf returns the row key of a record's body. The error wraps errBadBody.
func rowOf(body []byte) ([]byte, error) {
	part, _, err := takeBytes(body)
	if err == nil && ikey.RowLen(part) != len(part) {
		err = fmt.Errorf("%w: row part %.64x is malformed", errBadBody, part)
	}
	if err != nil {
		return nil, err
	}
	return ikey.RowKey(part), nil
}

func takeBytes(b []byte) (taken, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, fmt.Errorf("%w: length %d, %d bytes left", errBadBody, n, max(len(b)-used, 0))
	}
	end := used + int(n)
	return b[used:end:end], b[end:], nil
}
