package ikey

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Kind is the type of an entry.
type Kind uint8

// The kinds of entries. Kinds are not stored as such: they follow from a key's layout.
const (
	KindCell Kind = iota + 1
	KindDeleteColumn
	KindDeleteFamily
	KindDeleteRow
	KindOperand
)

const (
	tagDeleteColumn = 0x00
	tagCell         = 0x01
	tagOperand      = 0x02

	seqLen = 8
	tsLen  = 8
	idLen  = 4
)

// MinLen is the length of the shortest key: the deletion of a row with a key of one byte.
const MinLen = 3 + 1 + seqLen

// ErrBadKey means that bytes are not an internal key. This is corruption or a bug, because this
// package makes all stored keys.
var ErrBadKey = errors.New("malformed internal key")

// AppendRow appends the row part. Every key of the row starts with it, and no key of another row
// does.
func AppendRow(dst, row []byte) []byte { return appendEscaped(dst, row) }

// AppendRowEnd appends the smallest byte string above every key of the row.
func AppendRowEnd(dst, row []byte) []byte {
	dst = appendEscaped(dst, row)
	dst[len(dst)-1]++ // 00 01 becomes 00 02: above this row, below row+00
	return dst
}

// AppendFamily appends the family part to a row part.
func AppendFamily(dst []byte, name string, id uint32) []byte {
	dst = append(dst, name...)
	dst = append(dst, 0)
	return binary.BigEndian.AppendUint32(dst, id)
}

// AppendColumn appends the column part to a row and family part.
func AppendColumn(dst, qualifier []byte) []byte { return appendEscaped(dst, qualifier) }

// AppendCell completes a row, family and column part to a cell's key.
func AppendCell(dst []byte, timestamp int64, seq uint64) []byte {
	dst = append(dst, tagCell)
	dst = binary.BigEndian.AppendUint64(dst, ^uint64(timestamp))
	return binary.BigEndian.AppendUint64(dst, ^seq)
}

// AppendOperand completes a row, family and column part to an operand's key.
func AppendOperand(dst []byte, timestamp int64, seq uint64) []byte {
	column := len(dst)
	dst = AppendCell(dst, timestamp, seq)
	dst[column] = tagOperand
	return dst
}

// AppendDeleteColumn completes a row, family and column part.
func AppendDeleteColumn(dst []byte, seq uint64) []byte {
	dst = append(dst, tagDeleteColumn)
	return binary.BigEndian.AppendUint64(dst, ^seq)
}

// AppendDeleteFamily completes a row and family part.
func AppendDeleteFamily(dst []byte, seq uint64) []byte {
	dst = append(dst, 0, 0)
	return binary.BigEndian.AppendUint64(dst, ^seq)
}

// AppendDeleteRow completes a row part.
func AppendDeleteRow(dst []byte, seq uint64) []byte {
	dst = append(dst, 0)
	return binary.BigEndian.AppendUint64(dst, ^seq)
}

// Seq returns the sequence number of a well-formed key.
func Seq(key []byte) uint64 {
	return ^binary.BigEndian.Uint64(key[len(key)-seqLen:])
}

// SetSeq replaces the sequence number of a key. It returns false if the key is too short to have one.
func SetSeq(key []byte, seq uint64) bool {
	if len(key) < seqLen {
		return false
	}
	binary.BigEndian.PutUint64(key[len(key)-seqLen:], ^seq)
	return true
}

// Timestamp returns the timestamp of a well-formed key of a cell or an operand.
func Timestamp(key []byte) int64 {
	return int64(^binary.BigEndian.Uint64(key[len(key)-seqLen-tsLen:]))
}

// Parts has the ends of the parts of a key. A missing part ends where the previous one does.
type Parts struct {
	Kind   Kind
	Row    int // end of the row part
	Family int // end of the family part
	Column int // end of the column part
}

// Split splits a key into its parts. The error is ErrBadKey.
func Split(key []byte) (Parts, error) {
	row := escapedEnd(key)
	if row < 0 {
		return Parts{}, ErrBadKey
	}
	return SplitAfterRow(key, row)
}

// SplitAfterRow is Split for a key whose row part is known to end at row.
func SplitAfterRow(key []byte, row int) (Parts, error) {
	p := Parts{Row: row, Family: row, Column: row}
	rest := key[row:]
	if len(rest) == 1+seqLen && rest[0] == 0 {
		p.Kind = KindDeleteRow
		return p, nil
	}
	z := bytes.IndexByte(rest, 0)
	if z < 1 || len(rest) < z+1+idLen+2+seqLen {
		return Parts{}, ErrBadKey
	}
	p.Family = row + z + 1 + idLen
	return SplitAfterFamily(key, p.Row, p.Family)
}

// SplitAfterFamily is Split for a key whose row and family parts are known to
// end at row and family.
func SplitAfterFamily(key []byte, row, family int) (Parts, error) {
	p := Parts{Row: row, Family: family, Column: family}
	rest := key[family:]
	if len(rest) == 2+seqLen && rest[0] == 0 && rest[1] == 0 {
		p.Kind = KindDeleteFamily
		return p, nil
	}
	n := escapedEnd(rest)
	if n < 0 {
		return Parts{}, ErrBadKey
	}
	p.Column = family + n
	switch tail := key[p.Column:]; {
	case len(tail) == 1+tsLen+seqLen && tail[0] == tagCell:
		p.Kind = KindCell
	case len(tail) == 1+seqLen && tail[0] == tagDeleteColumn:
		p.Kind = KindDeleteColumn
	case len(tail) == 1+tsLen+seqLen && tail[0] == tagOperand:
		p.Kind = KindOperand
	default:
		return Parts{}, ErrBadKey
	}
	return p, nil
}

// RowKey returns the row key in a row part. It aliases part unless the key has a zero byte.
func RowKey(part []byte) []byte { return unescape(part) }

// Qualifier returns the qualifier in a column part. It aliases part unless the qualifier has a zero
// byte.
func Qualifier(part []byte) []byte { return unescape(part) }

// FamilyName returns the name in a family part. It aliases part.
func FamilyName(part []byte) []byte { return part[:len(part)-1-idLen] }

// FamilyID returns the id in a family part.
func FamilyID(part []byte) uint32 { return binary.BigEndian.Uint32(part[len(part)-idLen:]) }

// FamilyOf returns the id of the family in a well-formed key; 0 for the deletion of a row.
func FamilyOf(key []byte) uint32 {
	rest := key[escapedEnd(key):]
	if rest[0] == 0 {
		return 0
	}
	return binary.BigEndian.Uint32(rest[bytes.IndexByte(rest, 0)+1:])
}

// AppendRange appends the value of a delete column.
func AppendRange(dst []byte, start, end int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(start))
	return binary.BigEndian.AppendUint64(dst, uint64(end))
}

// Range decodes the value of a delete column. The error is ErrBadKey.
func Range(value []byte) (start, end int64, err error) {
	if len(value) != 16 {
		return 0, 0, ErrBadKey
	}
	return int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint64(value[8:])), nil
}

func appendEscaped(dst, x []byte) []byte {
	for {
		z := bytes.IndexByte(x, 0)
		if z < 0 {
			break
		}
		dst = append(dst, x[:z]...)
		dst = append(dst, 0, 0xFF)
		x = x[z+1:]
	}
	dst = append(dst, x...)
	return append(dst, 0, 1)
}

// escapedEnd returns the end of an escaped part with its terminator, or -1.
func escapedEnd(b []byte) int {
	for i := 0; ; {
		z := bytes.IndexByte(b[i:], 0)
		if z < 0 || i+z+1 >= len(b) {
			return -1
		}
		switch b[i+z+1] {
		case 1:
			return i + z + 2
		case 0xFF:
			i += z + 2
		default:
			return -1
		}
	}
}

func unescape(part []byte) []byte {
	b := part[: len(part)-2 : len(part)-2]
	z := bytes.IndexByte(b, 0)
	if z < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for z >= 0 {
		out = append(out, b[:z+1]...)
		b = b[z+2:]
		z = bytes.IndexByte(b, 0)
	}
	return append(out, b...)
}

// RowPrefix returns the row key in a key. If the key is cut, as separators in an index are, it
// returns the available prefix of the row key. It aliases key unless the key has a zero byte before
// the end of the row part.
func RowPrefix(key []byte) []byte {
	if n := escapedEnd(key); n >= 0 {
		return unescape(key[:n])
	}
	for i := bytes.IndexByte(key, 0); i >= 0; {
		if i+1 == len(key) || key[i+1] != 0xFF { // cut within an escape, or after the end of the row part
			key = key[:i:i]
			break
		}
		z := bytes.IndexByte(key[i+2:], 0)
		if z < 0 {
			break
		}
		i += 2 + z
	}
	return unescape(append(key[:len(key):len(key)], 0, 1))
}

// RowLen returns the length of the row part of a key, or -1 if it has none.
func RowLen(key []byte) int { return escapedEnd(key) }

// IsDeleteColumn reports whether a well-formed key whose column part ends at column is a deletion
// of that column, or of a range of its timestamps.
func IsDeleteColumn(key []byte, column int) bool { return key[column] == tagDeleteColumn }

// IsOperand reports whether a well-formed key whose column part ends at column is an operand.
func IsOperand(key []byte, column int) bool { return key[column] == tagOperand }

// AppendAfter appends the smallest byte string above all that start with prefix, which must be a
// complete row, family or column part.
func AppendAfter(dst, prefix []byte) []byte {
	dst = append(dst, prefix...)
	for i := len(dst) - 1; i >= 0; i-- {
		if dst[i]++; dst[i] != 0 {
			return dst
		}
	}
	panic("BUG: no byte string is above all that start with " + string(prefix))
}
