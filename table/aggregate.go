package table

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Aggregate is how the cells of a family come about. In an aggregate family, a cell is not set: operands are added to it, and reads return
// the fold of them. It is set when the family is created, and never changes. Values are stored: append only.
type Aggregate uint8

// The aggregates. Their operands and cells are integers, 8 bytes in big-endian two's complement.
const (
	// AggregateNone is that of a plain family, whose cells are set.
	AggregateNone Aggregate = 0
	// AggregateSum is the sum, which wraps around on int64 overflow.
	AggregateSum Aggregate = 1
	AggregateMin Aggregate = 2
	AggregateMax Aggregate = 3
)

var aggregateNames = [...]string{"none", "sum", "min", "max"}

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
	return 0, &SchemaError{Reason: fmt.Sprintf("unknown aggregate %.40q, want none, sum, min or max", name)}
}

// integerBytes is the size of an operand, and of the cell of an aggregate family.
const integerBytes = 8

// CheckOperand checks the form of an operand. The error is ErrBadValue.
func (a Aggregate) CheckOperand(value []byte) error {
	if len(value) != integerBytes {
		return fmt.Errorf("operand of %d bytes in a family of aggregate %v, want %d: %w", len(value), a, integerBytes, ErrBadValue)
	}
	return nil
}

// Fold folds an operand into state, which is an operand or the result of Fold, and returns the result. It may reuse the memory of state.
// The order of operands makes no difference, nor which of them are folded first. The error is ErrBadValue.
func (a Aggregate) Fold(state, operand []byte) ([]byte, error) {
	for _, v := range [][]byte{state, operand} {
		if err := a.CheckOperand(v); err != nil {
			return nil, err
		}
	}
	x, y := int64(binary.BigEndian.Uint64(state)), int64(binary.BigEndian.Uint64(operand))
	switch a {
	case AggregateSum:
		x += y
	case AggregateMin:
		x = min(x, y)
	case AggregateMax:
		x = max(x, y)
	}
	binary.BigEndian.PutUint64(state, uint64(x))
	return state, nil
}

// Integer returns the value of an integer cell, or the operand n of AggregateSum, AggregateMin and AggregateMax.
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
