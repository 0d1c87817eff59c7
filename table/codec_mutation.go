package table

import (
	"encoding/binary"
	"strconv"

	"github.com/steledb/stele/internal/wire"
)

func indexed(what string, i int) string { return what + " " + strconv.Itoa(i) }

// AppendMutation encodes a mutation as one of
//
//	["set", family, qualifier, timestamp, value]
//	["add", family, qualifier, timestamp, integer]
//	["merge", family, qualifier, timestamp, value]
//	["del_column", family, qualifier]
//	["del_column", family, qualifier, start, end]
//	["del_family", family]
//	["del_row"]
//
// A nil timestamp of a set requests one from the server. A nil start or end is unbounded. The caller must
// not encode a mutation with an Op that Validate rejects.
func AppendMutation(e *wire.Encoder, m *Mutation) {
	switch m.Op {
	case OpSet:
		e.Array(5)
		e.Str("set")
		e.Str(m.Family)
		e.Bin(m.Qualifier)
		if m.Timestamp == ServerTimestamp {
			e.Nil()
		} else {
			e.Int(m.Timestamp)
		}
		e.Bin(m.Value)
	case OpAdd, OpMerge:
		appendOperand(e, m)
	case OpDeleteColumn:
		ranged := m.Start != 0 || m.End != TimestampEnd{}
		if ranged {
			e.Array(5)
		} else {
			e.Array(3)
		}
		e.Str("del_column")
		e.Str(m.Family)
		e.Bin(m.Qualifier)
		if ranged {
			e.Int(m.Start)
			appendTimestampEnd(e, m.End)
		}
	case OpDeleteFamily:
		e.Array(2)
		e.Str("del_family")
		e.Str(m.Family)
	case OpDeleteRow:
		e.Array(1)
		e.Str("del_row")
	default:
		panic("BUG: encode a mutation of operation " + m.Op.String())
	}
}

// appendOperand encodes an add or a merge.
func appendOperand(e *wire.Encoder, m *Mutation) {
	e.Array(5)
	e.Str(m.Op.String())
	e.Str(m.Family)
	e.Bin(m.Qualifier)
	e.Int(m.Timestamp)
	if m.Op == OpAdd && len(m.Value) == integerBytes {
		e.Int(int64(binary.BigEndian.Uint64(m.Value)))
		return
	}
	e.Bin(m.Value)
}

// appendTimestampEnd encodes the end of a timestamp range: an integer, or nil if unbounded.
func appendTimestampEnd(e *wire.Encoder, end TimestampEnd) {
	if at, bounded := end.Bound(); bounded {
		e.Int(at)
	} else {
		e.Nil()
	}
}

// decodeTimestampEnd decodes what appendTimestampEnd encoded.
func decodeTimestampEnd(d *wire.Decoder) TimestampEnd {
	if d.IsNil() {
		return TimestampEnd{}
	}
	return Before(d.Int())
}

// AppendMutations encodes an array of mutations.
func AppendMutations(e *wire.Encoder, ms []Mutation) {
	e.Array(len(ms))
	for i := range ms {
		AppendMutation(e, &ms[i])
	}
}

// AppendRowMutation encodes a row mutation as [row, [mutation…]], or [row, [mutation…], token] if it has a token.
func AppendRowMutation(e *wire.Encoder, r *RowMutation) {
	if r.Token == nil {
		e.Array(2)
	} else {
		e.Array(3)
	}
	e.Bin(r.Row)
	AppendMutations(e, r.Mutations)
	if r.Token != nil {
		AppendToken(e, r.Token)
	}
}

// decodeMutation decodes a mutation into m. Qualifier and Value alias the input. Family reuses the
// string in m.Family if it is equal. Validate checks sizes. Errors: ErrBadEncoding, which wraps
// ErrBadOp for an unknown operation and ErrBadTimestamp for the integer -1 where nil would request
// a server timestamp.
func decodeMutation(d *wire.Decoder, m *Mutation, in *Interner) error {
	n := d.Array()
	name := d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "operation", nil)
	}
	family := m.Family
	*m = Mutation{}
	want := 0
	switch string(name) {
	case "set":
		m.Op, want = OpSet, 5
	case "add":
		m.Op, want = OpAdd, 5
	case "merge":
		m.Op, want = OpMerge, 5
	case "del_column":
		m.Op, want = OpDeleteColumn, 3
		if n == 4 || n == 5 {
			want = n
		}
	case "del_family":
		m.Op, want = OpDeleteFamily, 2
	case "del_row":
		m.Op, want = OpDeleteRow, 1
	default:
		return decodeError(d, "operation", ErrBadOp)
	}
	// An extra element may be an option that this version does not know. Ignoring it could write
	// something other than the client meant.
	if n != want {
		return decodeError(d, "form", errForm("%s has %d elements, want %d", m.Op, n, want))
	}
	if n > 1 {
		m.Family = in.reuse(d.Bytes(), family)
		if d.Err() != nil {
			return decodeError(d, "family", nil)
		}
	}
	if n > 2 {
		m.Qualifier = d.Bytes()
		if d.Err() != nil {
			return decodeError(d, "qualifier", nil)
		}
	}
	return decodeMutationTail(d, m, n)
}

func decodeMutationTail(d *wire.Decoder, m *Mutation, n int) error {
	if m.Op == OpSet {
		m.Timestamp = ServerTimestamp
		server := d.IsNil()
		if !server {
			m.Timestamp = d.Int()
		}
		if d.Err() != nil {
			return decodeError(d, "timestamp", nil)
		}
		if !server && m.Timestamp == ServerTimestamp {
			// Only nil requests a server timestamp: a slightly wrong clock must not do so by
			// accident.
			return decodeError(d, "timestamp", &TimestampError{What: "timestamp is negative", Got: m.Timestamp})
		}
		m.Value = d.Bytes()
		return decodeError(d, "value", nil)
	}
	if m.Op.IsOperand() {
		m.Timestamp = d.Int()
		if d.Err() != nil {
			return decodeError(d, "timestamp", nil)
		}
		if m.Op == OpAdd {
			m.Value = Integer(d.Int())
		} else {
			m.Value = d.Bytes()
		}
		return decodeError(d, "value", nil)
	}
	if n > 3 && !d.IsNil() {
		m.Start = d.Int()
	}
	if n > 4 {
		m.End = decodeTimestampEnd(d)
	}
	return decodeError(d, "timestamp range", nil)
}

// DecodeMutations decodes an array of mutations into ms, reusing its memory if it suffices. More
// than lim.Mutations are rejected before memory is allocated for them; nil means the defaults.
// Errors: ErrBadEncoding, which wraps ErrLimit for too many mutations.
func DecodeMutations(d *wire.Decoder, ms []Mutation, in *Interner, lim *Limits) ([]Mutation, error) {
	ms, err := decodeMutations(d, ms, in, lim.orDefault())
	return ms, finish(d, err)
}

func decodeMutations(d *wire.Decoder, ms []Mutation, in *Interner, l *Limits) ([]Mutation, error) {
	n, err := count(d, "mutations in a row mutation", l.Mutations)
	if err = decodeError(d, "mutations", err); err != nil {
		return ms[:0], err
	}
	// The shortest mutation, ["del_row"], takes 9 bytes.
	ms = grow(ms, d, n, 9)
	family := ""
	for i := range n {
		if i < cap(ms) {
			ms = ms[:i+1]
		} else {
			ms = append(ms, Mutation{})
		}
		m := &ms[i]
		if m.Family == "" {
			m.Family = family // adjacent mutations often share a family
		}
		if err := decodeMutation(d, m, in); err != nil {
			return ms[:i], decodeError(d, indexed("mutation", i), err)
		}
		family = m.Family
	}
	return ms, nil
}

// DecodeRowMutation decodes a row mutation into r and reuses the memory of r.Mutations. Row,
// qualifiers and values alias the input. Errors: those of DecodeMutations.
func DecodeRowMutation(d *wire.Decoder, r *RowMutation, in *Interner, lim *Limits) error {
	return finish(d, decodeRowMutation(d, r, in, lim.orDefault()))
}

func decodeRowMutation(d *wire.Decoder, r *RowMutation, in *Interner, l *Limits) error {
	n, err := elements(d, "row mutation", 2, 3)
	if err != nil {
		return err
	}
	r.Row, r.Token = d.Bytes(), nil
	if d.Err() != nil {
		return decodeError(d, "row key", nil)
	}
	r.Mutations, err = decodeMutations(d, r.Mutations, in, l)
	if err == nil && n > 2 {
		r.Token, err = DecodeToken(d)
	}
	return err
}

// AppendRule encodes a rule as one of
//
//	["append", family, qualifier, value]
//	["increment", family, qualifier, amount]
func AppendRule(e *wire.Encoder, r *Rule) {
	e.Array(4)
	switch r.Op {
	case RuleAppend:
		e.Str("append")
	case RuleIncrement:
		e.Str("increment")
	default:
		panic("BUG: encode a rule of unknown operation")
	}
	e.Str(r.Family)
	e.Bin(r.Qualifier)
	if r.Op == RuleAppend {
		e.Bin(r.Value)
	} else {
		e.Int(r.Amount)
	}
}

// DecodeRule decodes a rule into r. Qualifier and Value alias the input. Family reuses the string
// in r.Family if it is equal. Errors: ErrBadEncoding, which wraps ErrBadOp for an unknown
// operation.
func DecodeRule(d *wire.Decoder, r *Rule, in *Interner) error {
	return finish(d, decodeRule(d, r, in))
}

func decodeRule(d *wire.Decoder, r *Rule, in *Interner) error {
	n := d.Array()
	name := d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "operation", nil)
	}
	family := r.Family
	*r = Rule{}
	switch string(name) {
	case "append":
		r.Op = RuleAppend
	case "increment":
		r.Op = RuleIncrement
	default:
		return decodeError(d, "operation", ErrBadOp)
	}
	if n != 4 {
		return decodeError(d, "form", errForm("%s has %d elements, want 4", name, n))
	}
	r.Family = in.reuse(d.Bytes(), family)
	if d.Err() != nil {
		return decodeError(d, "family", nil)
	}
	r.Qualifier = d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "qualifier", nil)
	}
	if r.Op == RuleAppend {
		r.Value = d.Bytes()
		return decodeError(d, "value", nil)
	}
	r.Amount = d.Int()
	return decodeError(d, "amount", nil)
}
