package api

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// cross sends err over the wire, as one result of several.
func cross(t *testing.T, err error) error {
	t.Helper()
	d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) {
		e.Array(1)
		AppendMutateResult(e, 0, err)
	}))
	var got *rpc.Error
	if err := DecodeMutateResults(&d, 1, func(_ int, _ int64, failed *rpc.Error) { got = failed }); err != nil {
		t.Fatal(err)
	}
	return FromRPC(fmt.Errorf("call: %w", got))
}

// Invariant AP3.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, k := range kinds.Kinds {
		got := cross(t, fmt.Errorf("some call: %w", k.Target))
		var e *rpc.Error
		if !errors.Is(got, k.Target) || !errors.As(got, &e) || e.Code != k.Code || e.Retryable != k.Retryable || !errors.Is(got, k.Code) {
			t.Errorf("%v: got %v", k.Target, got)
		}
		if got.Error() != "some call: "+k.Target.Error() {
			t.Errorf("text %q", got)
		}
		for _, other := range kinds.Kinds {
			// An increment of a value that is not a number is also a bad value.
			if errors.Is(got, other.Target) && !errors.Is(k.Target, other.Target) {
				t.Errorf("%v matches %v", got, other.Target)
			}
		}
	}
	typed := []error{
		&OverloadedError{"memory is short", 1500 * time.Millisecond},
		&QuotaError{Quota: `table "t" write_ops`, Limit: 7, RetryAfter: 20 * time.Millisecond},
		&QuotaError{Quota: `table "t" bytes`, Bytes: true, Limit: 7, Used: 8},
		&CorruptError{File: "/d/x", Offset: 1 << 40},
		&RowTooLargeError{5},
		&TableReplacedError{Table: "t", ID: 23},
		&NotServingError{Addr: "h:1", Node: "n7f3a"},
		&NodeInUseError{Node: "n7f3a", Reason: "it is alive"},
		&table.LimitError{What: "value bytes", Limit: 5, Got: 6},
		&table.NoFamilyError{Table: "t", Family: "f"},
		&table.NameError{What: "table name", Name: "a b", Reason: "is odd"},
		&table.TimestampError{What: "timestamp is negative", Got: -5},
		&table.FilterError{Path: "chain[1]", Reason: "is odd"},
	}
	for _, want := range typed {
		got := cross(t, &table.ElementError{What: "mutation", Index: 3, Err: want})
		into := reflect.New(reflect.TypeOf(want))
		if !errors.As(got, into.Interface()) {
			t.Errorf("%T was lost: %v", want, got)
			continue
		}
		found := into.Elem().Interface()
		if over, ok := found.(*OverloadedError); ok {
			over.Reason = "memory is short" // it holds the whole text
		}
		if !reflect.DeepEqual(found, want) {
			t.Errorf("got %+v, want %+v", found, want)
		}
	}
	limit := &table.LimitError{What: "filters in a tree", Limit: 5, Got: 6}
	got := cross(t, &table.FilterError{Path: "p", Err: limit})
	var f *table.FilterError
	if !errors.As(got, &f) || f.Path != "p" || !errors.Is(got, table.ErrLimit) || !errors.Is(got, CodeBadFilter) {
		t.Errorf("filter over a limit: %v", got)
	}
}

func TestOtherErrors(t *testing.T) {
	if e := ToRPC(errors.New("disk on fire")); e.Code != rpc.CodeInternal || e.Message != "disk on fire" || e.Retryable {
		t.Errorf("unknown error: %+v", e)
	}
	own := &rpc.Error{Code: 555, Message: "x", Retryable: true}
	if e := ToRPC(fmt.Errorf("wrapped: %w", own)); e != own {
		t.Errorf("own error: %+v", e)
	}
	if got := FromRPC(own); got != error(own) {
		t.Errorf("code without a Go error: %v", got)
	}
	if got := FromRPC(context.Canceled); got != context.Canceled {
		t.Errorf("error of this side: %v", got)
	}
	if e := ToRPC(&wire.FormatError{Reason: "x"}); e.Code != rpc.CodeBadRequest {
		t.Errorf("malformed request: %+v", e)
	}
	// An unknown cause, from a later version, maps to the first kind of its code.
	if got := FromRPC(&rpc.Error{Code: CodeBadSchema, Details: map[string]any{"cause": "new"}}); !errors.Is(got, table.ErrBadSchema) {
		t.Errorf("unknown cause: %v", got)
	}
	if got := FromRPC(&rpc.Error{Code: rpc.CodeDeadlineExceeded}); !errors.Is(got, context.DeadlineExceeded) || got.Error() == "" {
		t.Errorf("deadline: %v", got)
	}
}

// Identity and permission errors cross the wire with their fields.
func TestRightsCrossTheWire(t *testing.T) {
	var who *IdentityError
	if got := cross(t, fmt.Errorf("row 1: %w", &IdentityError{Reason: IdentityRevoked, Text: "it was revoked"})); !errors.As(got, &who) || who.Reason != IdentityRevoked || who.Text != "row 1: it was revoked" {
		t.Errorf("%#v", got)
	}
	for _, want := range []PermissionError{
		{Right: "write", Table: "web", Family: "anchor", Executed: true, Text: "no"},
		{Method: "blob.read", Text: "for nodes alone"},
	} {
		var got *PermissionError
		if err := cross(t, &want); !errors.As(err, &got) || *got != want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
}

// The numbers of voters distinguish a lock service without a leader from a node that starts.
func TestNoLeader(t *testing.T) {
	err := cross(t, &rpc.Error{Code: rpc.CodeUnavailable, Message: "no leader", Retryable: true, Details: map[string]any{"voters": 3, "voters_alive": 1}})
	if !NoLeader(fmt.Errorf("list: %w", err)) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v is not recognized", err)
	}
	if NoLeader(cross(t, ErrUnavailable)) || NoLeader(nil) {
		t.Error("other errors are taken for it")
	}
}
