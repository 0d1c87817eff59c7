package table

import (
	"errors"
	"fmt"
)

// Sentinels. The typed errors of this package match theirs through errors.Is.
var (
	// ErrLimit means that something is over a limit: a *LimitError.
	ErrLimit = errors.New("over the limit")
	// ErrNoFamily means that a table has no such column family: a *NoFamilyError.
	ErrNoFamily = errors.New("no such column family")
	// ErrFamilyExists means that a table has a family of that name already.
	ErrFamilyExists = errors.New("column family exists")
	// ErrNoGroup means that a table has no such locality group.
	ErrNoGroup = errors.New("no such locality group")
	// ErrBadName means that a table, family or group name is empty or holds other
	// bytes than [-_.a-zA-Z0-9]: a *NameError.
	ErrBadName = errors.New("bad name")
	// ErrBadRowKey means that a row key is empty.
	ErrBadRowKey = errors.New("row key is empty")
	// ErrBadOp means that a mutation has none of the known operations.
	ErrBadOp = errors.New("unknown operation")
	// ErrNoRules means that a read-modify-write has no rules.
	ErrNoRules = errors.New("read-modify-write has no rules: want at least 1")
	// ErrNoMutations means that a row mutation is empty.
	ErrNoMutations = errors.New("row mutation has no mutations")
	// ErrBadTimestamp means that a timestamp or a range of timestamps cannot be: a
	// *TimestampError.
	ErrBadTimestamp = errors.New("bad timestamp")
	// ErrBadValue means that a stored value is not what an operation needs: an
	// increment needs 8 bytes.
	ErrBadValue = errors.New("value does not fit the operation")
	// ErrBadFilter means that a filter cannot be compiled: a *FilterError.
	ErrBadFilter = errors.New("bad filter")
	// ErrBadGCPolicy means that a garbage-collection policy cannot be: a
	// *GCPolicyError.
	ErrBadGCPolicy = errors.New("bad gc policy")
	// ErrBadSpec means that the text of a family specification cannot be read: a
	// *SpecError.
	ErrBadSpec = errors.New("bad family specification")
	// ErrBadSchema means that a schema contradicts itself: a *SchemaError.
	ErrBadSchema = errors.New("bad schema")
	// ErrBadEncoding means that bytes do not decode: a *DecodeError.
	ErrBadEncoding = errors.New("bad encoding")
)

// LimitError says what is over which limit.
type LimitError struct {
	// What names the limit and its unit, such as "value bytes".
	What string
	// Limit is the most that is allowed, Got what was given.
	Limit, Got int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d is over the limit of %d", e.What, e.Got, e.Limit)
}

// Is makes the error match ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

func within(what string, got int, limit int64) error {
	if int64(got) > limit {
		return &LimitError{What: what, Limit: limit, Got: int64(got)}
	}
	return nil
}

// NoFamilyError names the family that a table does not have.
type NoFamilyError struct{ Table, Family string }

func (e *NoFamilyError) Error() string {
	return fmt.Sprintf("table %q has no column family %q", e.Table, e.Family)
}

// Is makes the error match ErrNoFamily.
func (e *NoFamilyError) Is(target error) bool { return target == ErrNoFamily }

// NameError says what is wrong with a name.
type NameError struct {
	// What kind of name: "table name", "family name" or "group name".
	What, Name, Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s %q %s", e.What, e.Name, e.Reason)
}

// Is makes the error match ErrBadName.
func (e *NameError) Is(target error) bool { return target == ErrBadName }

// TimestampError says which timestamp cannot be.
type TimestampError struct {
	What string
	Got  int64 // microseconds
}

func (e *TimestampError) Error() string { return fmt.Sprintf("%s: %d µs", e.What, e.Got) }

// Is makes the error match ErrBadTimestamp.
func (e *TimestampError) Is(target error) bool { return target == ErrBadTimestamp }

// ElementError tells which element of a list is at fault.
type ElementError struct {
	// What the elements are, such as "mutation", and which it is, from 0.
	What  string
	Index int
	Err   error
}

func (e *ElementError) Error() string { return fmt.Sprintf("%s %d: %v", e.What, e.Index, e.Err) }

func (e *ElementError) Unwrap() error { return e.Err }

// FilterError says which node of a filter is at fault.
type FilterError struct {
	// Path leads to the node from the root, such as "chain[1].condition.true".
	Path   string
	Reason string
	// Err is the cause when there is one, such as a *LimitError.
	Err error
}

func (e *FilterError) Error() string {
	if e.Err != nil && e.Reason != "" {
		return fmt.Sprintf("filter %s: %s: %v", e.Path, e.Reason, e.Err)
	}
	if e.Err != nil {
		return fmt.Sprintf("filter %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("filter %s: %s", e.Path, e.Reason)
}

// Is makes the error match ErrBadFilter.
func (e *FilterError) Is(target error) bool { return target == ErrBadFilter }

func (e *FilterError) Unwrap() error { return e.Err }

// GCPolicyError says what is wrong with a policy. Offset is a byte position in
// Text; both are zero for a policy that was not parsed.
type GCPolicyError struct {
	Text   string
	Offset int
	Reason string
}

func (e *GCPolicyError) Error() string {
	if e.Text == "" {
		return "gc policy: " + e.Reason
	}
	return fmt.Sprintf("gc policy %q at byte %d: %s", e.Text, e.Offset, e.Reason)
}

// Is makes the error match ErrBadGCPolicy.
func (e *GCPolicyError) Is(target error) bool { return target == ErrBadGCPolicy }

// SpecError says what is wrong with the text of a family specification.
type SpecError struct {
	Text   string
	Option string // the option at fault, empty for the text as a whole
	Reason string
	Err    error // the cause when there is one
}

func (e *SpecError) Error() string {
	s := fmt.Sprintf("family specification %q: ", e.Text)
	if e.Option != "" {
		s += e.Option + ": "
	}
	if e.Err != nil {
		return s + e.Err.Error()
	}
	return s + e.Reason
}

// Is makes the error match ErrBadSpec.
func (e *SpecError) Is(target error) bool { return target == ErrBadSpec }

func (e *SpecError) Unwrap() error { return e.Err }

// SchemaError says how a schema contradicts itself.
type SchemaError struct{ Table, Reason string }

func (e *SchemaError) Error() string { return fmt.Sprintf("schema of table %q: %s", e.Table, e.Reason) }

// Is makes the error match ErrBadSchema.
func (e *SchemaError) Is(target error) bool { return target == ErrBadSchema }

// DecodeError says which part of an encoded message is at fault.
type DecodeError struct {
	// Path leads to the part, such as "mutation 3: qualifier".
	Path string
	Err  error // a *wire.FormatError, a *LimitError, …
}

func (e *DecodeError) Error() string { return fmt.Sprintf("decode %s: %v", e.Path, e.Err) }

// Is makes the error match ErrBadEncoding.
func (e *DecodeError) Is(target error) bool { return target == ErrBadEncoding }

func (e *DecodeError) Unwrap() error { return e.Err }
