package table

import (
	"errors"
	"fmt"
)

// Sentinel errors. The typed errors of this package match their sentinel through errors.Is.
var (
	// ErrLimit means that a size or a count exceeds its limit: a *LimitError.
	ErrLimit = errors.New("over the limit")
	// ErrNoFamily means that the table has no such column family: a *NoFamilyError.
	ErrNoFamily = errors.New("no such column family")
	// ErrNoView means that the table has no such view: a *NoViewError.
	ErrNoView = errors.New("no such view")
	// ErrViewExists means that the table already has a view of that name.
	ErrViewExists = errors.New("view exists")
	// ErrViewChanged means that a view is not as the etag of its change has it.
	ErrViewChanged = errors.New("view has changed since it was read")
	// ErrProtected means that the table with its families, or a view of it, is protected from being dropped.
	ErrProtected = errors.New("protected from deletion")
	// ErrReadOnly means that the table accepts no changes of rows and families.
	ErrReadOnly = errors.New("read-only table")
	// ErrReadOnlyChanged means that the table is not read-only for the reason that a change names.
	ErrReadOnlyChanged = errors.New("table is not read-only for that reason")
	// ErrFamilyExists means that the table already has a family of that name.
	ErrFamilyExists = errors.New("column family exists")
	// ErrNoGroup means that the table has no such locality group.
	ErrNoGroup = errors.New("no such locality group")
	// ErrBadName means that a table, family or group name is empty or has bytes other than
	// [-_.a-zA-Z0-9]: a *NameError.
	ErrBadName = errors.New("bad name")
	// ErrBadRowKey means that a row key is empty.
	ErrBadRowKey = errors.New("row key is empty")
	// ErrBadOp means that the operation of a mutation or a rule is unknown.
	ErrBadOp = errors.New("unknown operation")
	// ErrNoRules means that a read-modify-write has no rules.
	ErrNoRules = errors.New("read-modify-write has no rules: want at least 1")
	// ErrNoMutations means that a row mutation is empty.
	ErrNoMutations = errors.New("row mutation has no mutations")
	// ErrBadTimestamp means that a timestamp or a timestamp range is invalid: a *TimestampError.
	ErrBadTimestamp = errors.New("bad timestamp")
	// ErrAggregate means that an operation does not fit the aggregate of a family: an *AggregateError.
	ErrAggregate = errors.New("operation does not fit the aggregate of the family")
	// ErrBadOperand means that what is added or merged has not the form of the family's aggregate.
	ErrBadOperand = errors.New("operand does not fit the aggregate of the family")
	// ErrBadToken means that an idempotency token is too short, or that its start time is too long ago or in the future.
	ErrBadToken = errors.New("bad idempotency token")
	// ErrBadValue means that a stored value has the wrong form for an operation: an increment needs
	// 8 bytes.
	ErrBadValue = errors.New("value does not fit the operation")
	// ErrBadFilter means that a filter does not compile: a *FilterError.
	ErrBadFilter = errors.New("bad filter")
	// ErrBadGCPolicy means that a garbage-collection policy is invalid: a *GCPolicyError.
	ErrBadGCPolicy = errors.New("bad gc policy")
	// ErrBadSpec means that a family specification does not parse: a *SpecError.
	ErrBadSpec = errors.New("bad family specification")
	// ErrBadSchema means that a schema is inconsistent: a *SchemaError.
	ErrBadSchema = errors.New("bad schema")
	// ErrBadEncoding means that bytes do not decode: a *DecodeError.
	ErrBadEncoding = errors.New("bad encoding")
)

// LimitError reports which limit is exceeded and by what.
type LimitError struct {
	// What names the limit and its unit, such as "value bytes".
	What string
	// Limit is the maximum, Got the actual size or count.
	Limit, Got int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d is over the limit of %d", e.What, e.Got, e.Limit)
}

// Is makes the error match ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

func checkLimit(what string, got int, limit int64) error {
	if int64(got) > limit {
		return &LimitError{What: what, Limit: limit, Got: int64(got)}
	}
	return nil
}

// NoFamilyError names a column family that a table does not have.
type NoFamilyError struct{ Table, Family string }

func (e *NoFamilyError) Error() string {
	return fmt.Sprintf("table %q has no column family %q", e.Table, e.Family)
}

// Is makes the error match ErrNoFamily.
func (e *NoFamilyError) Is(target error) bool { return target == ErrNoFamily }

// NoViewError names a view that a table does not have.
type NoViewError struct{ Table, View string }

func (e *NoViewError) Error() string { return fmt.Sprintf("table %q has no view %q", e.Table, e.View) }

// Is makes the error match ErrNoView.
func (e *NoViewError) Is(target error) bool { return target == ErrNoView }

// NameError reports why a name is invalid.
type NameError struct {
	// What is the kind of name: "table name", "family name" or "group name".
	What, Name, Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s %q %s", e.What, e.Name, e.Reason)
}

// Is makes the error match ErrBadName.
func (e *NameError) Is(target error) bool { return target == ErrBadName }

// TimestampError reports an invalid timestamp and why it is invalid.
type TimestampError struct {
	What string
	Got  int64 // microseconds
}

func (e *TimestampError) Error() string { return fmt.Sprintf("%s: %d µs", e.What, e.Got) }

// Is makes the error match ErrBadTimestamp.
func (e *TimestampError) Is(target error) bool { return target == ErrBadTimestamp }

// ElementError reports which element of a list is invalid.
type ElementError struct {
	// What is the kind of element, such as "mutation". Index is its position, from 0.
	What  string
	Index int
	Err   error
}

func (e *ElementError) Error() string { return fmt.Sprintf("%s %d: %v", e.What, e.Index, e.Err) }

func (e *ElementError) Unwrap() error { return e.Err }

// FilterError reports which node of a filter is invalid.
type FilterError struct {
	// Path leads to the node from the root, such as "chain[1].condition.true".
	Path   string
	Reason string
	// Err is the cause, such as a *LimitError, or nil.
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

// GCPolicyError reports why a policy is invalid. Offset is a byte position in Text. Both are zero
// if the policy was not parsed from text.
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

// SpecError reports why a family specification is invalid.
type SpecError struct {
	Text   string
	Option string // the invalid option; empty for the text as a whole
	Reason string
	Err    error // the cause, or nil
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

// SchemaError reports how a schema is inconsistent.
type SchemaError struct{ Table, Reason string }

func (e *SchemaError) Error() string { return fmt.Sprintf("schema of table %q: %s", e.Table, e.Reason) }

// Is makes the error match ErrBadSchema.
func (e *SchemaError) Is(target error) bool { return target == ErrBadSchema }

// DecodeError reports which part of an encoded message is invalid.
type DecodeError struct {
	// Path leads to the part, such as "mutation 3: qualifier".
	Path string
	Err  error // a *wire.FormatError, a *LimitError, …
}

func (e *DecodeError) Error() string { return fmt.Sprintf("decode %s: %v", e.Path, e.Err) }

// Is makes the error match ErrBadEncoding.
func (e *DecodeError) Is(target error) bool { return target == ErrBadEncoding }

func (e *DecodeError) Unwrap() error { return e.Err }
