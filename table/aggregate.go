package table

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/steledb/stele/table/hll"
)

// Aggregate is how the cells of a family come about. In an aggregate family, a cell is not set: operands are added to it, and reads return
// the fold of them. It is set when the family is created, and never changes. Values are stored: append only.
type Aggregate uint8

// The aggregates. Their operands and cells are integers, 8 bytes in big-endian two's complement. Those of AggregateHLL are sketches,
// and what is added to them are integers.
const (
	// AggregateNone is that of a plain family, whose cells are set.
	AggregateNone Aggregate = 0
	// AggregateSum is the sum, which wraps around on int64 overflow.
	AggregateSum Aggregate = 1
	AggregateMin Aggregate = 2
	AggregateMax Aggregate = 3
	// AggregateHLL is the set of the integers that were added, approximately: see package hll.
	AggregateHLL Aggregate = 4
)

var aggregateNames = [...]string{"none", "sum", "min", "max", "hll"}

// String returns the name used in family specifications.
func (a Aggregate) String() string {
	if int(a) < len(aggregateNames) {
		return aggregateNames[a]
	}
	return fmt.Sprintf("aggregate %d", uint8(a))
}

// MarshalText returns what String returns.
func (a Aggregate) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAggregate returns the aggregate with a name. The error is ErrBadSchema.
func ParseAggregate(name string) (Aggregate, error) {
	if i := slices.Index(aggregateNames[:], name); i >= 0 {
		return Aggregate(i), nil
	}
	return 0, &SchemaError{Reason: fmt.Sprintf("unknown aggregate %.40q, want none, sum, min, max or hll", name)}
}

// integerBytes is the size of an integer operand, and of the cell of an aggregate family of integers.
const integerBytes = 8

// checkOperand checks the value of an OpAdd or OpMerge. The error is ErrBadOperand.
func (a Aggregate) checkOperand(m *Mutation) error {
	switch {
	case a == AggregateHLL && m.Op == OpMerge:
		if err := hll.Check(m.Value); err != nil {
			return fmt.Errorf("merge in family %q of aggregate %v: %w: %w", m.Family, a, ErrBadOperand, err)
		}
	case len(m.Value) != integerBytes:
		return fmt.Errorf("%v of %d bytes in family %q of aggregate %v, want %d: %w", m.Op, len(m.Value), m.Family, a, integerBytes, ErrBadOperand)
	}
	return nil
}

// Operand returns the operand of an OpAdd or OpMerge that is valid, as Fold and reads take it. It may be m.Value, or in the memory of scratch.
func (a Aggregate) Operand(m *Mutation, scratch []byte) ([]byte, error) {
	switch {
	case a != AggregateHLL:
		return m.Value, nil
	case m.Op == OpAdd:
		return hll.AppendOne(scratch[:0], int64(binary.BigEndian.Uint64(m.Value))), nil
	}
	return hll.AppendCanonical(scratch[:0], m.Value)
}

// A Fold is a cell of an aggregate family while operands are folded into it. The order of operands makes no difference, nor which of them
// are folded first: an operand may be the value of another fold.
type Fold struct {
	aggregate Aggregate
	integer   int64
	sketch    hll.Sketch
}

// Begin makes the cell an operand. The error is ErrBadValue.
func (f *Fold) Begin(a Aggregate, operand []byte) (err error) {
	f.aggregate = a
	if a == AggregateHLL {
		f.sketch.Reset()
		return f.Add(operand)
	}
	f.integer, err = integerOf(operand)
	return err
}

// Add folds an operand into the cell. The error is ErrBadValue.
func (f *Fold) Add(operand []byte) error {
	if f.aggregate == AggregateHLL {
		if err := f.sketch.Merge(operand); err != nil {
			return fmt.Errorf("operand: %w: %w", ErrBadValue, err)
		}
		return nil
	}
	n, err := integerOf(operand)
	switch f.aggregate {
	case AggregateSum:
		f.integer += n
	case AggregateMin:
		f.integer = min(f.integer, n)
	case AggregateMax:
		f.integer = max(f.integer, n)
	}
	return err
}

// Value returns the value of the cell, in memory of its own.
func (f *Fold) Value() []byte {
	if f.aggregate == AggregateHLL {
		return f.sketch.Append(nil)
	}
	return Integer(f.integer)
}

// Bytes returns the memory of the fold, in bytes. The next Begin reuses it.
func (f *Fold) Bytes() int { return f.sketch.Bytes() }

// integerOf returns the value of an integer operand. The error is ErrBadValue.
func integerOf(operand []byte) (int64, error) {
	if len(operand) != integerBytes {
		return 0, fmt.Errorf("operand of %d bytes, want %d: %w", len(operand), integerBytes, ErrBadValue)
	}
	return int64(binary.BigEndian.Uint64(operand)), nil
}

// Integer returns the value of an integer cell, or the operand n of AggregateSum, AggregateMin and AggregateMax. It is what OpAdd adds to
// cells of AggregateHLL.
func Integer(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// ReplaceCell returns the mutations that make c the cell of its column and timestamp, whatever that was: a set, or in an aggregate family
// the deletion of the timestamp and a merge. c must have a timestamp.
func (s *Schema) ReplaceCell(c *Cell) []Mutation {
	f := s.Family(c.Family)
	if f == nil || f.Aggregate == AggregateNone {
		return []Mutation{Set(c.Family, c.Qualifier, c.Timestamp, c.Value)}
	}
	end := TimestampEnd{}
	if last := c.Timestamp + s.Granularity.unit(); last > c.Timestamp {
		end = Before(last)
	}
	return []Mutation{DeleteColumnRange(c.Family, c.Qualifier, c.Timestamp, end), Merge(c.Family, c.Qualifier, c.Timestamp, c.Value)}
}

// AggregateError means that an operation does not fit the aggregate of a family.
type AggregateError struct {
	Family    string
	Aggregate Aggregate // of the family
	Operation string    // such as "set"
}

func (e *AggregateError) Error() string {
	if e.Aggregate == AggregateNone {
		return fmt.Sprintf("%s in family %q: the family is not an aggregate family", e.Operation, e.Family)
	}
	return fmt.Sprintf("%s in family %q: the family has the aggregate %v, so only add and merge change its cells", e.Operation, e.Family, e.Aggregate)
}

// Is makes the error match ErrAggregate.
func (e *AggregateError) Is(target error) bool { return target == ErrAggregate }
