package table

import (
	"strconv"

	"github.com/steledb/stele/internal/wire"
)

func indexed(what string, i int) string { return what + " " + strconv.Itoa(i) }

// AppendMutation writes a mutation, one of
//
//	["set", family, qualifier, timestamp, value]
//	["del_column", family, qualifier]
//	["del_column", family, qualifier, start, end]
//	["del_family", family]
//	["del_row"]
//
// where nil as a timestamp asks the server for one, and as a start or an end is no
// bound. It is a bug to write a mutation that Validate refuses for its Op.
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
		panic("BUG: write a mutation of operation " + m.Op.String())
	}
}

// appendTimestampEnd writes the end of a range of timestamps: a number, or nil for
// no bound.
func appendTimestampEnd(e *wire.Encoder, end TimestampEnd) {
	if at, bounded := end.Bound(); bounded {
		e.Int(at)
	} else {
		e.Nil()
	}
}

// decodeTimestampEnd reads what appendTimestampEnd writes.
func decodeTimestampEnd(d *wire.Decoder) TimestampEnd {
	if d.IsNil() {
		return TimestampEnd{}
	}
	return Before(d.Int())
}

// AppendMutations writes an array of mutations.
func AppendMutations(e *wire.Encoder, ms []Mutation) {
	e.Array(len(ms))
	for i := range ms {
		AppendMutation(e, &ms[i])
	}
}

// AppendRowMutation writes a row mutation: [row, [mutation…]].
func AppendRowMutation(e *wire.Encoder, r *RowMutation) {
	e.Array(2)
	e.Bin(r.Row)
	AppendMutations(e, r.Mutations)
}

// decodeMutation reads what AppendMutation wrote into m. Qualifier and Value alias
// the input. A family that m had already keeps its string. Sizes are for Validate
// to check. Errors: ErrBadEncoding, around ErrBadOp if the operation is unknown and
// around ErrBadTimestamp if a number stands for what nil says in a Mutation.
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
	// An element too many may be an option that this version does not know: to
	// ignore it could write what was not meant.
	if n != want {
		return decodeError(d, "form", errForm("%s has %d elements, want %d", m.Op, n, want))
	}
	if n > 1 {
		m.Family = in.again(d.Bytes(), family)
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
			// A clock that is off by a little must not pass for a wish.
			return decodeError(d, "timestamp", &TimestampError{What: "timestamp is negative", Got: m.Timestamp})
		}
		m.Value = d.Bytes()
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

// DecodeMutations reads what AppendMutations wrote and returns it, in the memory
// of ms if there is enough. More than lim.Mutations, where nil means the defaults,
// are refused before there is room made for them. Errors: ErrBadEncoding, around
// ErrLimit for that.
func DecodeMutations(d *wire.Decoder, ms []Mutation, in *Interner, lim *Limits) ([]Mutation, error) {
	ms, err := decodeMutations(d, ms, in, lim.orDefault())
	return ms, finish(d, err)
}

func decodeMutations(d *wire.Decoder, ms []Mutation, in *Interner, l *Limits) ([]Mutation, error) {
	n, err := count(d, "mutations in a row mutation", l.Mutations)
	if err = decodeError(d, "mutations", err); err != nil {
		return ms[:0], err
	}
	// The shortest, ["del_row"], takes 9 bytes.
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
			m.Family = family // mutations beside each other are often of one family
		}
		if err := decodeMutation(d, m, in); err != nil {
			return ms[:i], decodeError(d, indexed("mutation", i), err)
		}
		family = m.Family
	}
	return ms, nil
}

// DecodeRowMutation reads what AppendRowMutation wrote into r, and uses the memory
// of r.Mutations again. Row, qualifiers and values alias the input. Errors: those
// of DecodeMutations.
func DecodeRowMutation(d *wire.Decoder, r *RowMutation, in *Interner, lim *Limits) error {
	return finish(d, decodeRowMutation(d, r, in, lim.orDefault()))
}

func decodeRowMutation(d *wire.Decoder, r *RowMutation, in *Interner, l *Limits) error {
	if _, err := elements(d, "row mutation", 2, 2); err != nil {
		return err
	}
	r.Row = d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "row key", nil)
	}
	var err error
	r.Mutations, err = decodeMutations(d, r.Mutations, in, l)
	return err
}

// AppendRule writes a rule, one of
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
		panic("BUG: write a rule of unknown operation")
	}
	e.Str(r.Family)
	e.Bin(r.Qualifier)
	if r.Op == RuleAppend {
		e.Bin(r.Value)
	} else {
		e.Int(r.Amount)
	}
}

// DecodeRule reads what AppendRule wrote into r. Qualifier and Value alias the
// input. A family that r had already keeps its string. Errors: ErrBadEncoding,
// around ErrBadOp if the operation is unknown.
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
	r.Family = in.again(d.Bytes(), family)
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
