package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// times returns a hook that calls does the first n times that method reaches the moment at.
func times(n int, at moment, method string, does func() error) func(moment, string) error {
	var left atomic.Int64
	left.Store(int64(n))
	return func(when moment, m string) error {
		if when == at && m == method && left.Add(-1) >= 0 {
			return does()
		}
		return nil
	}
}

func TestRetryableErrors(t *testing.T) {
	for _, refusal := range []error{
		api.ErrNotServing, api.ErrUnavailable, api.ErrConflict,
		&api.OverloadedError{Reason: "test", RetryAfter: 40 * time.Millisecond},
	} {
		f := newFake(t)
		tb := f.open(Config{}).Table("t")
		f.on(times(2, before, api.MethodReadModifyWrite, func() error { return refusal }))
		begin := time.Now()
		if n, err := tb.Increment(t.Context(), "r", "f:n", 1); n != 1 || err != nil {
			t.Errorf("%v: increment %d, %v", refusal, n, err)
		}
		if took := time.Since(begin); errors.Is(refusal, ErrOverloaded) && took < 80*time.Millisecond {
			t.Errorf("two refusals for 40 ms took %v", took)
		}
		if n := f.count(f.executed, api.MethodReadModifyWrite); n != 1 {
			t.Errorf("%v: executed %d times", refusal, n)
		}
	}
}

func TestPermanentErrors(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{}).Table("t")
	for _, refusal := range []error{api.ErrDiskFull, api.ErrNoTable, &api.CorruptError{File: "x", Offset: 7}} {
		f.on(times(9, before, api.MethodMutate, func() error { return refusal }))
		before := f.count(f.requests, api.MethodMutate)
		err := tb.Apply(t.Context(), NewRowMutation("r").Set("f:a", nil))
		if n := f.count(f.requests, api.MethodMutate) - before; n != 1 || errors.Is(err, ErrAmbiguous) {
			t.Errorf("%v: %d requests, %v", refusal, n, err)
		}
	}
	var corrupt *CorruptError
	f.on(times(1, before, api.MethodRead, func() error { return &api.CorruptError{File: "x", Offset: 7} }))
	if _, err := tb.Get(t.Context(), "r"); !errors.As(err, &corrupt) || corrupt.File != "x" || corrupt.Offset != 7 {
		t.Errorf("corrupt: %v", err)
	}
}

func TestRetriesEndAtTheirTime(t *testing.T) {
	f := newFake(t)
	f.on(times(1000, before, api.MethodRead, func() error { return &api.OverloadedError{Reason: "test", RetryAfter: 10 * time.Second} }))
	tb := f.open(Config{RetryTimeMax: 300 * time.Millisecond}).Table("t")
	begin := time.Now()
	var over *OverloadedError
	if _, err := tb.Get(t.Context(), "r"); !errors.As(err, &over) || over.RetryAfter != 10*time.Second || !errors.Is(err, rpc.CodeOverloaded) {
		t.Errorf("overloaded: %v", err)
	}
	// The context's deadline is before the next attempt, so the call does not wait for it.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := f.open(Config{}).Table("t").Get(ctx, "r"); !errors.As(err, &over) {
		t.Errorf("overloaded, with deadline: %v", err)
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("waited %v for an attempt after the deadline", took)
	}
	tb = f.open(Config{RetryTimeMax: -1}).Table("t")
	n := f.count(f.requests, api.MethodRead)
	if _, err := tb.Get(t.Context(), "r"); err == nil || f.count(f.requests, api.MethodRead) != n+1 {
		t.Error("there was a retry")
	}
}

func TestRetryBudgetBoundsRequests(t *testing.T) {
	f := newFake(t)
	f.on(times(1<<30, before, api.MethodRead, func() error { return &api.OverloadedError{Reason: "test", RetryAfter: time.Millisecond} }))
	c := f.open(Config{RetryTimeMax: 2 * time.Second, RetriesPerSecond: 5})
	begin := time.Now()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if _, err := c.Table("t").Get(t.Context(), "r"); !errors.Is(err, ErrOverloaded) {
				t.Errorf("overloaded: %v", err)
			}
		})
	}
	wg.Wait()
	most := 64 + 5*budgetSeconds + int(5*time.Since(begin).Seconds()) + 1
	if n := f.count(f.requests, api.MethodRead); n > most || n < 64+5*budgetSeconds {
		t.Errorf("%d requests, want %d to %d", n, 64+5*budgetSeconds, most)
	}
}

// TestIdempotent: an operand may be sent twice only if the mutation deletes its cell first.
func TestIdempotent(t *testing.T) {
	m := func() *RowMutation { return NewRowMutation("r") }
	for name, tc := range map[string]struct {
		m    *RowMutation
		want bool
	}{
		"add":                     {m().AddInt("f:a", 5, 1), false},
		"merge":                   {m().Merge("f:a", 5, table.Integer(1)), false},
		"add after its deletion":  {m().DeleteRange("f:a", 5, 6).AddInt("f:a", 5, 1).AddInt("f:a", 5, 2), true},
		"another column deleted":  {m().DeleteRange("f:b", 5, 6).AddInt("f:a", 5, 1), false},
		"another time deleted":    {m().DeleteRange("f:a", 6, 7).AddInt("f:a", 5, 1), false},
		"add before its deletion": {m().AddInt("f:a", 5, 1).Delete("f:a"), false},
		"family deleted":          {m().DeleteFamily("f").AddInt("f:a", 5, 1), true},
		"another family deleted":  {m().DeleteFamily("g").AddInt("f:a", 5, 1), false},
		"row deleted":             {m().DeleteRow().Merge("f:a", 5, table.Integer(1)), true},
		"later times deleted":     {m().DeleteFrom("f:a", 5).Merge("f:a", 5, table.Integer(1)), true},
	} {
		if got := tc.m.idempotent(); got != tc.want || tc.m.check() != nil {
			t.Errorf("%s: idempotent %v, error %v", name, got, tc.m.check())
		}
	}
}

// Invariants C1 and C2.
func TestLostAnswers(t *testing.T) {
	deleteCol := func() *RowMutation { return NewRowMutation("r").Delete("f:a") }
	own := func() *RowMutation { return NewRowMutation("r").SetAt("f:a", 5, []byte("v")) }
	servers := func() *RowMutation { return NewRowMutation("r").Set("f:a", []byte("v")) }
	for _, test := range []struct {
		name     string
		m        *RowMutation
		replay   Replay
		executed int
	}{
		{"never: own timestamp", own(), ReplayNever, 1},
		{"default: own timestamp", own(), ReplayDefault, 1},
		{"idempotent: own timestamp", own(), ReplayIdempotent, 2},
		{"idempotent: delete", deleteCol(), ReplayIdempotent, 2},
		{"idempotent: server's timestamp", servers(), ReplayIdempotent, 1},
		{"all: server's timestamp", servers(), ReplayAll, 2},
		{"never: token", servers().WithToken([]byte("12345678"), time.Now()), ReplayNever, 2},
	} {
		for _, batched := range []bool{false, true} {
			f := newFake(t)
			tb := f.open(Config{}).Table("t")
			method, apply := api.MethodMutate, func() error { return tb.Apply(t.Context(), test.m, WithReplay(test.replay)) }
			if batched {
				method = api.MethodMutateRows
				apply = func() error { return tb.ApplyAll(t.Context(), []*RowMutation{test.m}, WithReplay(test.replay)) }
			}
			f.on(times(1, after, method, func() error { f.cut(); return nil }))
			err := apply()
			if n := f.count(f.executed, method); n != test.executed {
				t.Errorf("%s, batched %v: executed %d times, want %d", test.name, batched, n, test.executed)
			}
			var unknown *AmbiguousError
			if wrong := test.executed == 1 && !errors.As(err, &unknown); wrong || test.executed == 2 && err != nil {
				t.Errorf("%s, batched %v: %v", test.name, batched, err)
			}
		}
	}
}

func TestChangesThatDependOnTheRowAreNotSentTwice(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{Replay: ReplayAll}).Table("t")
	f.on(times(1, after, api.MethodReadModifyWrite, func() error { f.cut(); return nil }))
	if _, err := tb.Increment(t.Context(), "r", "f:n", 1); !errors.Is(err, ErrAmbiguous) || f.count(f.executed, api.MethodReadModifyWrite) != 1 {
		t.Errorf("increment: %v, executed %d times", err, f.count(f.executed, api.MethodReadModifyWrite))
	}
	f.on(times(1, after, api.MethodCheckAndMutate, func() error { f.cut(); return nil }))
	m := NewRowMutation("r").SetAt("f:a", 1, nil)
	if _, err := tb.CheckAndMutate(t.Context(), "r", nil, m, m); !errors.Is(err, ErrAmbiguous) || f.count(f.executed, api.MethodCheckAndMutate) != 1 {
		t.Errorf("check and mutate: %v", err)
	}
	f.on(times(1, after, api.MethodCreateTable, func() error { f.cut(); return nil }))
	if _, err := tb.client.Tables().Create(t.Context(), "new"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("create table: %v", err)
	}
}

// Invariant C2: once unknown, an outcome stays unknown, whatever becomes of later attempts.
func TestUnknownOutcomeStaysUnknown(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{RetryTimeMax: 100 * time.Millisecond}).Table("t")
	f.on(times(1, after, api.MethodMutate, func() error { f.down.Store(true); f.cut(); return nil }))
	err := tb.Apply(t.Context(), NewRowMutation("r").Delete("f:a"), WithReplay(ReplayIdempotent))
	if !errors.Is(err, ErrAmbiguous) {
		t.Errorf("lost, then unreachable: %v", err)
	}
	f = newFake(t)
	f.on(func(when moment, method string) error {
		if method != api.MethodMutate && method != api.MethodMutateRows {
			return nil
		}
		if f.count(f.requests, method) == 1 && when == after {
			f.cut()
		} else if f.count(f.requests, method) > 1 {
			return api.ErrDiskFull
		}
		return nil
	})
	tb = f.open(Config{Replay: ReplayIdempotent}).Table("t")
	m := NewRowMutation("r").Delete("f:a")
	if err := tb.Apply(t.Context(), m); !errors.Is(err, ErrAmbiguous) || !errors.Is(err, ErrDiskFull) {
		t.Errorf("lost, then rejected: %v", err)
	}
	if err := tb.ApplyAll(t.Context(), []*RowMutation{m}); !errors.Is(err, ErrAmbiguous) || !errors.Is(err, ErrDiskFull) {
		t.Errorf("batch lost, then rejected: %v", err)
	}
}

// Invariant C2.
func TestCanceledCalls(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{}).Table("t")
	release := make(chan struct{})
	defer close(release)
	var cancel context.CancelFunc
	f.on(func(when moment, method string) error { cancel(); <-release; return nil })
	ctx, cancelWrite := context.WithCancel(t.Context())
	cancel = cancelWrite
	if err := tb.Apply(ctx, NewRowMutation("r").Set("f:a", nil)); !errors.Is(err, ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("write in flight: %v", err)
	}
	if err := tb.Apply(ctx, NewRowMutation("r").Set("f:a", nil)); errors.Is(err, ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("write that was not sent: %v", err)
	}
	ctx, cancelRead := context.WithCancel(t.Context())
	cancel = cancelRead
	if _, err := tb.Get(ctx, "r"); errors.Is(err, ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("read in flight: %v", err)
	}
}

func TestDeadlinesAreSent(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{}).Table("t")
	for _, want := range []time.Duration{0, time.Minute} {
		ctx, cancel := context.WithCancel(t.Context())
		if want > 0 {
			ctx, cancel = context.WithTimeout(ctx, want)
		}
		_, err := tb.Get(ctx, "r")
		check(t, err)
		if left := time.Until(f.deadline); want == 0 && !f.deadline.IsZero() || want > 0 && (left > want+time.Second || left < want-10*time.Second) {
			t.Errorf("deadline %v, %v away, want %v", f.deadline, left, want)
		}
		cancel()
	}
}

func TestAnswersThatLeaveTheOutcomeOpen(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{Replay: ReplayAll}).Table("t")
	for _, test := range []struct {
		answer  *rpc.Error
		unknown bool
	}{
		{rpc.Errorf(rpc.CodeInternal, "log failed"), true},
		{rpc.Errorf(rpc.CodeDeadlineExceeded, "late"), true},
		{&rpc.Error{Code: rpc.CodeDeadlineExceeded, Details: map[string]any{"executed": 0}}, false},
		{rpc.Errorf(rpc.CodeBadRequest, "bad"), false},
		{rpc.Errorf(api.CodeBadSchema, "bad"), false},
		{rpc.Errorf(999, "of the future"), false},
	} {
		f.on(times(2, before, api.MethodMutate, func() error { return test.answer }))
		n := f.count(f.requests, api.MethodMutate)
		err := tb.Apply(t.Context(), NewRowMutation("r").SetAt("f:a", 1, nil))
		if errors.Is(err, ErrAmbiguous) != test.unknown || !errors.Is(err, test.answer.Code) || f.count(f.requests, api.MethodMutate) != n+1 {
			t.Errorf("%v: %v", test.answer, err)
		}
	}
	f.on(times(1, before, api.MethodRead, func() error { return rpc.Errorf(rpc.CodeInternal, "bug") }))
	if _, err := tb.Get(t.Context(), "r"); err == nil || errors.Is(err, ErrAmbiguous) {
		t.Errorf("internal error of a read: %v", err)
	}
}

// The outcome of a write that its server could no longer acknowledge is unknown, in a single call
// or a batch. It is sent again only where that is safe.
func TestUnsureAnswers(t *testing.T) {
	for _, replay := range []Replay{ReplayNever, ReplayIdempotent} {
		f := newFake(t)
		tb := f.open(Config{Replay: replay}).Table("t")
		f.on(times(1, after, api.MethodMutate, func() error { return api.ErrOutcomeUnknown }))
		err := tb.Apply(t.Context(), NewRowMutation("r").SetAt("f:a", 1, nil))
		if again := replay == ReplayIdempotent; errors.Is(err, ErrAmbiguous) == again || errors.Is(err, api.ErrOutcomeUnknown) == again ||
			f.count(f.requests, api.MethodMutate) != map[bool]int{false: 1, true: 2}[again] {
			t.Errorf("replay %d: %v", replay, err)
		}
		err = tb.ApplyAll(t.Context(), []*RowMutation{
			NewRowMutation("s").SetAt("f:a", 1, nil), NewRowMutation("unsure-1").SetAt("f:a", 1, nil), NewRowMutation("unsure-2").Set("f:a", nil),
		})
		var batch *BatchError
		if !errors.As(err, &batch) || batch.Errs[0] != nil || (batch.Errs[1] == nil) != (replay == ReplayIdempotent) ||
			!errors.Is(batch.Errs[2], ErrAmbiguous) || !errors.Is(batch.Errs[2], api.ErrOutcomeUnknown) {
			t.Errorf("replay %d: batch: %v", replay, err)
		}
	}
}

func TestReadsSurviveLostConnections(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{Conns: 3}).Table("t")
	check(t, tb.Apply(t.Context(), NewRowMutation("r").Set("f:a", []byte("v"))))
	f.on(times(3, after, api.MethodRead, func() error { f.cut(); return nil }))
	row, err := tb.Get(t.Context(), "r")
	check(t, err)
	wantRow(t, row, "f:a=v")
	f.on(times(3, after, api.MethodReadRows, func() error { f.cut(); return nil }))
	if rows, err := tb.GetAll(t.Context(), []string{"r", "s"}); err != nil || rows[0] == nil || rows[1] != nil {
		t.Errorf("get all: %v, %v", rows, err)
	}
}

func TestReconnect(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	tb := c.Table("t")
	check(t, tb.Apply(t.Context(), NewRowMutation("r").Set("f:a", []byte("v"))))
	conn := c.pool.node(f.addr).slots[0].conn.Load()
	f.stop()
	<-conn.Done() // requests sent before are lost
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() { // these wait for the node to return
			if err := tb.Apply(t.Context(), NewRowMutation(fmt.Sprint("r", i)).Set("f:a", nil)); err != nil {
				t.Errorf("across a restart: %v", err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	f.start(f.addr)
	wg.Wait()
	if n := f.count(f.executed, api.MethodMutate); n != 17 {
		t.Errorf("executed %d times, want 17", n)
	}
	f.stop()
	tb = f.clientOfDead(c).Table("t")
	var unreachable *UnreachableError
	_, err := tb.Get(t.Context(), "r")
	if !errors.As(err, &unreachable) || unreachable.Addr != f.addr || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("node is down: %v", err)
	}
	if err != nil && err.Error() != "cannot reach "+f.addr+": connection refused" {
		t.Errorf("text: %v", err)
	}
	if err := tb.Apply(t.Context(), NewRowMutation("r").Set("f:a", nil)); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrAmbiguous) {
		t.Errorf("write to a node that is down: %v", err)
	}
	f.start(f.addr)
}

// clientOfDead shortens the retries of c.
func (f *fake) clientOfDead(c *Client) *Client {
	c.cfg.RetryTimeMax = 50 * time.Millisecond
	return c
}

func TestNodeThatShutsDown(t *testing.T) {
	f := newFake(t)
	tb := f.open(Config{}).Table("t")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := tb.Apply(t.Context(), NewRowMutation(fmt.Sprint(i, "-", n)).Set("f:a", nil)); err != nil {
					t.Errorf("across a shutdown: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		check(t, f.srv.Shutdown(ctx)) // answers requests in flight and sends goaway
		cancel()
		f.start(f.addr)
	}
	close(stop)
	wg.Wait()
	if n := int64(f.count(f.executed, api.MethodMutate)); n != done.Load() {
		t.Errorf("executed %d, acknowledged %d", n, done.Load())
	}
}

// Invariant C5, with the leak check of TestMain.
func TestCloseEndsCallsInFlight(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	tb := c.Table("t")
	entered, release := make(chan struct{}, 3), make(chan struct{})
	f.on(func(when moment, method string) error { entered <- struct{}{}; <-release; return nil })
	defer close(release)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := tb.Get(t.Context(), "r"); !errors.Is(err, ErrClosed) {
			t.Errorf("read in flight: %v", err)
		}
	})
	wg.Go(func() {
		if err := tb.Apply(t.Context(), NewRowMutation("r").SetAt("f:a", 1, nil), WithReplay(ReplayAll)); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("write in flight: %v", err)
		}
	})
	for range 2 {
		<-entered
	}
	check(t, c.Close())
	wg.Wait()
}

func TestBatchErrorNamesTheFirst(t *testing.T) {
	err := batchError([]error{nil, table.ErrBadRowKey, nil, ErrNoTable})
	if !strings.Contains(err.Error(), "at index 1") || !errors.Is(err, ErrNoTable) {
		t.Errorf("batch error: %v", err)
	}
}
