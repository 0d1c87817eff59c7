package errkind

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
	errLate   = errors.New("too late")
)

// sizeError is identified by its type only.
type sizeError struct{ limit int64 }

func (e *sizeError) Error() string { return "over a limit" }

// placeError has no kind: it adds the place of another error.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string { return e.place + ": " + e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

const (
	codeTwo  rpc.Code = 9900
	codeSize rpc.Code = 9901
)

var kinds = Table{
	Kinds: []Kind{
		{Code: codeTwo, Name: "test_two", Retryable: true, Target: errFirst},
		{Code: codeTwo, Name: "test_two", Target: errSecond, Cause: "second"},
		{Code: codeSize, Name: "test_size", Form: FormOf(
			func(e *sizeError, d Details) { d["limit"] = e.limit },
			func(a Answer) error { return &sizeError{a.Int("limit")} })},
		{Code: rpc.CodeDeadlineExceeded, Target: context.DeadlineExceeded, NotExecuted: true},
	},
	Also:     []*Form{FormOf(func(e *placeError, d Details) { d["place"] = e.place }, nil)},
	Meanings: map[rpc.Code]error{rpc.CodeUnavailable: errLate},
}

func init() { kinds.Register() }

// Invariants EK1 and EK2.
func TestErrorsCross(t *testing.T) {
	for _, want := range []error{errFirst, errSecond, context.DeadlineExceeded} {
		sent := fmt.Errorf("some call: %w", want)
		got := kinds.FromRPC(fmt.Errorf("call: %w", kinds.ToRPC(sent)))
		if !errors.Is(got, want) || got.Error() != sent.Error() {
			t.Errorf("%v became %v", sent, got)
		}
		for _, other := range []error{errFirst, errSecond, context.DeadlineExceeded} {
			if other != want && errors.Is(got, other) {
				t.Errorf("%v matches %v", got, other)
			}
		}
	}
	e := kinds.ToRPC(&placeError{"element 3", &sizeError{5}})
	var size *sizeError
	if got := kinds.FromRPC(e); !errors.As(got, &size) || size.limit != 5 || !errors.Is(got, codeSize) || got.Error() != "element 3: over a limit" {
		t.Errorf("got %v", got)
	}
	if e.Details["place"] != "element 3" || len(e.Details) != 2 || e.Retryable || codeSize.String() != "test_size" {
		t.Errorf("%+v", e)
	}
	if e := kinds.ToRPC(errFirst); !e.Retryable || e.Details != nil {
		t.Errorf("%+v", e)
	}
	if e := kinds.ToRPC(context.DeadlineExceeded); !(Answer{e}).HasInt("executed") || len(e.Details) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestOtherErrors(t *testing.T) {
	if e := kinds.ToRPC(errors.New("disk on fire")); e.Code != rpc.CodeInternal || e.Message != "disk on fire" {
		t.Errorf("unknown error: %+v", e)
	}
	if e := kinds.ToRPC(&wire.FormatError{Reason: "x"}); e.Code != rpc.CodeBadRequest {
		t.Errorf("malformed request: %+v", e)
	}
	if got := kinds.FromRPC(context.Canceled); got != context.Canceled {
		t.Errorf("error of this side: %v", got)
	}
	if own := rpc.Errorf(555, "x"); kinds.FromRPC(own) != error(own) {
		t.Error("a code without a Go error got one")
	}
	if got := kinds.FromRPC(&rpc.Error{Code: rpc.CodeUnavailable}); !errors.Is(got, errLate) || got.Error() != "unavailable" {
		t.Errorf("meaning: %v", got)
	}
	// An unknown cause, from a later version, maps to the first kind of its code.
	if got := kinds.FromRPC(&rpc.Error{Code: codeTwo, Details: Details{"cause": "third"}}); !errors.Is(got, errFirst) {
		t.Errorf("unknown cause: %v", got)
	}
}

// An answer of another server is the answer itself, or a part of it if the table is Relayed.
func TestRelayed(t *testing.T) {
	other := rpc.Errorf(555, "x")
	both := fmt.Errorf("%w: %w", errFirst, other)
	if e := kinds.ToRPC(both); e != other {
		t.Errorf("answered %+v", e)
	}
	relayed := kinds
	relayed.Relayed = true
	if e := relayed.ToRPC(both); e.Code != codeTwo {
		t.Errorf("relayed as %+v", e)
	}
}

func TestIntegers(t *testing.T) {
	for _, v := range []any{int64(7), 7, uint64(7)} {
		if n, ok := integer(v); n != 7 || !ok {
			t.Errorf("%T is %d, %v", v, n, ok)
		}
	}
	a := Answer{&rpc.Error{Details: Details{"text": "x"}}}
	if a.HasInt("text") || a.HasInt("none") || a.Int("text") != 0 || a.Text("text") != "x" || a.Text("none") != "" {
		t.Error("text is taken for a number")
	}
}
