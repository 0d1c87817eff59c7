package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/rpc"
)

func TestErrorsSurvive(t *testing.T) {
	for _, k := range kinds.Kinds {
		target := k.Target
		if target == nil {
			target = &NotLeaderError{} // it is identified by its type alone
		}
		e := ToRPC(fmt.Errorf("some call: %w", target))
		if e.Code != k.Code || e.Retryable != k.Retryable || e.Message != "some call: "+target.Error() {
			t.Errorf("%v: %+v", target, e)
		}
		got := FromRPC(fmt.Errorf("call: %w", e))
		switch target {
		case ErrClosed:
			target = ErrNotReady // closed is the server, not the caller
		case context.Canceled:
			target = context.DeadlineExceeded
		}
		if k.Target != nil && !errors.Is(got, target) {
			t.Errorf("%v became %v", target, got)
		}
		for _, other := range kinds.Kinds {
			if other.Code != k.Code && other.Target != nil && errors.Is(got, other.Target) && !errors.Is(target, other.Target) {
				t.Errorf("%v matches %v", got, other.Target)
			}
		}
	}
	for _, want := range []error{
		&PathError{Path: "a", Reason: "is odd"},
		&SystemFileError{Path: "/master"},
		&GenerationError{Path: "/a", Want: 3, Got: 4},
		&GenerationError{Path: "/a", Want: math.MaxInt64 - 1},
		&GenerationError{Path: "/a", Want: AnyGeneration, Got: 4},
		&GenerationError{Path: "/a", Got: 9},
		&TooLargeError{What: LimitFile, Limit: 5, Got: 6},
		&NotLeaderError{},
		&NotLeaderError{Leader: "n2", Address: "10.0.0.2:7106"},
		&LockedError{Path: "/a", Mode: Shared, Holder: 5, HolderName: "db1"},
		&LockedError{Path: "/a", Mode: Exclusive, Delay: time.Minute},
	} {
		got := FromRPC(ToRPC(fmt.Errorf("some call: %w", want)))
		into := reflect.New(reflect.TypeOf(want))
		if !errors.As(got, into.Interface()) || !reflect.DeepEqual(into.Elem().Interface(), want) {
			t.Errorf("%#v became %#v", want, into.Elem().Interface())
		}
	}
	missing := FromRPC(ToRPC(&GenerationError{Path: "/a", Want: 3}))
	if !errors.Is(missing, ErrNotFound) || !errors.Is(missing, ErrGeneration) {
		t.Errorf("%v is not both", missing)
	}
}

func TestOtherErrors(t *testing.T) {
	if e := ToRPC(errors.New("disk on fire")); e.Code != rpc.CodeInternal || e.Retryable {
		t.Errorf("unknown error: %+v", e)
	}
	own := &rpc.Error{Code: 555, Message: "x"}
	if e := ToRPC(fmt.Errorf("wrapped: %w", own)); e != own {
		t.Errorf("own error: %+v", e)
	}
	if got := FromRPC(own); got != error(own) {
		t.Errorf("code without a Go error: %v", got)
	}
	if got := FromRPC(context.Canceled); got != context.Canceled {
		t.Errorf("error of this side: %v", got)
	}
	both := fmt.Errorf("%w: %w", ErrOutcomeUnknown, context.DeadlineExceeded)
	if e := ToRPC(both); e.Code != CodeOutcomeUnknown {
		t.Errorf("unknown outcome: %+v", e)
	}
	if e := ToRPC(context.DeadlineExceeded); !e.Retryable || unknownOutcome(e) {
		t.Errorf("deadline: %+v", e)
	}
	if got := FromRPC(&rpc.Error{Code: rpc.CodeUnavailable}); !errors.Is(got, ErrNotReady) {
		t.Errorf("unavailable: %v", got)
	}
}
