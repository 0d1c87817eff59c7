package logbody

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
//	form 4  an operand with its timestamp   + sequence number
//	form 5  no entry: a mark, with an empty suffix and value, that comes first in the bodies of a
//	        table with a change stream. It uses no sequence number.
//
// Form numbers are append-only.
const (
	formCell       = 1
	formServerCell = 2
	formDeletion   = 3
	formOperand    = 4
	formStreamed   = 5
)

// ErrBadBody means that a record's body is damaged.
var ErrBadBody = errors.New("malformed body of a commit log record")

// seqPlaceholder is passed to ikey while the sequence number is unknown.
const seqPlaceholder = 0

// AppendRow appends the beginning of a body: the row's part of its keys.
func AppendRow(dst, row []byte) []byte {
	var scratch [256]byte
	part := ikey.AppendRow(scratch[:0], row)
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}

// AppendStreamed appends the mark of a mutation whose record belongs to a change stream. It comes before the entries.
func AppendStreamed(dst []byte) []byte { return append(dst, formStreamed, 0, 0) }

// Streamed reports whether a record's body has the mark of AppendStreamed.
func Streamed(body []byte) bool {
	_, rest, err := takeBytes(body)
	return err == nil && len(rest) > 0 && rest[0] == formStreamed
}

// recordKeyLen is the length of a record's key after the row part: a zero byte, the time, the sequence number.
const recordKeyLen = 1 + 8 + 8

// AppendRecordKey appends to the row part the key under which a sorted run has a whole record of a change stream, beside its
// entries. It is no internal key, but ends with the first sequence number, as they do.
func AppendRecordKey(dst []byte, time int64, first uint64) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, 0), ^uint64(time))
	return binary.BigEndian.AppendUint64(dst, ^first)
}

// RecordKey returns the time and the first sequence number in a key of AppendRecordKey. It returns false for other keys.
func RecordKey(key []byte) (time int64, first uint64, ok bool) {
	row := ikey.RowLen(key)
	if row < 0 || len(key)-row != recordKeyLen || key[row] != 0 {
		return 0, 0, false
	}
	return int64(^binary.BigEndian.Uint64(key[row+1:])), ikey.Seq(key), true
}

// AppendMutation appends the entry of a mutation, which has passed table's validation. f is its
// family, nil for table.OpDeleteRow. needTime reports whether the entry needs the server's time.
// scratch is memory for the key's suffix, which is returned for reuse.
func AppendMutation(dst, scratch []byte, m *table.Mutation, f *table.Family) (_, used []byte, needTime bool, err error) {
	form, suffix, value := byte(formDeletion), scratch[:0], m.Value
	if f != nil {
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
	case table.OpAdd, table.OpMerge:
		var operand [32]byte // the sketch of one integer has 22 at most
		if value, err = f.Aggregate.Operand(m, operand[:]); err != nil {
			return dst, scratch, false, fmt.Errorf("BUG: operand passed validation: %w", err)
		}
		suffix = ikey.AppendOperand(ikey.AppendColumn(suffix, m.Qualifier), m.Timestamp, seqPlaceholder)
		form = formOperand
	case table.OpDeleteColumn:
		suffix = ikey.AppendDeleteColumn(ikey.AppendColumn(suffix, m.Qualifier), seqPlaceholder)
		end, _ := m.End.Bound() // Validate rejects a bound of 0, which means no bound on disk
		value = ikey.AppendRange(nil, m.Start, end)
	case table.OpDeleteFamily:
		suffix, value = ikey.AppendDeleteFamily(suffix, seqPlaceholder), nil
	case table.OpDeleteRow:
		suffix, value = ikey.AppendDeleteRow(suffix, seqPlaceholder), nil
	default:
		return dst, scratch, false, fmt.Errorf("BUG: mutation kind %d passed validation", m.Op)
	}
	used = suffix[:0]
	suffix = suffix[:len(suffix)-trim]
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(len(suffix)))
	dst = append(dst, suffix...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...), used, needTime, nil
}

// EachEntry calls f for each entry of a record's body, with its internal key and its value. The key
// is valid during the call; its memory is scratch, which is returned for reuse. The error wraps
// ErrBadBody or is f's.
func EachEntry(body []byte, first uint64, time int64, scratch []byte, f func(key, value []byte) error) ([]byte, error) {
	row, rest, err := takeBytes(body)
	if err != nil {
		return scratch, err
	}
	seq := first
	for len(rest) > 0 {
		form := rest[0]
		var suffix, value []byte
		if suffix, value, rest, err = takeEntry(rest); err != nil {
			return scratch, err
		}
		scratch = append(append(scratch[:0], row...), suffix...)
		switch form {
		case formCell, formDeletion, formOperand:
		case formStreamed:
			continue
		case formServerCell:
			scratch = binary.BigEndian.AppendUint64(scratch, ^uint64(time))
		default:
			return scratch, fmt.Errorf("%w: entry of form %d, which this version does not know", ErrBadBody, form)
		}
		scratch = binary.BigEndian.AppendUint64(scratch, ^seq)
		if err := f(scratch, value); err != nil {
			return scratch, err
		}
		seq++
	}
	return scratch, nil
}

// Row returns the row key of a record's body. The error wraps ErrBadBody.
func Row(body []byte) ([]byte, error) {
	part, err := RowPart(body)
	if err != nil {
		return nil, err
	}
	return ikey.RowKey(part), nil
}

// RowPart returns the row's part of the keys of a record's body. The error wraps ErrBadBody.
func RowPart(body []byte) ([]byte, error) {
	part, _, err := takeBytes(body)
	if err == nil && ikey.RowLen(part) != len(part) {
		err = fmt.Errorf("%w: row part %.64x is malformed", ErrBadBody, part)
	}
	if err != nil {
		return nil, err
	}
	return part, nil
}

// takeEntry returns the suffix and the value of the entry at the start of b, and the rest of b.
func takeEntry(b []byte) (suffix, value, rest []byte, err error) {
	if suffix, rest, err = takeBytes(b[1:]); err == nil {
		value, rest, err = takeBytes(rest)
	}
	return suffix, value, rest, err
}

// takeBytes returns the bytes after the length at the start of b, and the rest of b. The error wraps
// ErrBadBody.
func takeBytes(b []byte) (taken, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, fmt.Errorf("%w: length %d, %d bytes left", ErrBadBody, n, max(len(b)-used, 0))
	}
	end := used + int(n)
	return b[used:end:end], b[end:], nil
}
