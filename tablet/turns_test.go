package tablet

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// turnWatch grants every turn at once, and records whether the operation has one.
type turnWatch struct {
	in            atomic.Bool
	taken, resume atomic.Int32
}

func (w *turnWatch) Take(context.Context) error {
	w.taken.Add(1)
	w.in.Store(true)
	return nil
}

func (w *turnWatch) Resume(context.Context) error {
	w.resume.Add(1)
	w.in.Store(true)
	return nil
}

func (w *turnWatch) End() { w.in.Store(false) }

// untilTurnEnds waits until the operation, which has had a turn, has none. done must not report its
// end before.
func (w *turnWatch) untilTurnEnds(t *testing.T, done <-chan error) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); w.taken.Load() == 0 || w.in.Load(); time.Sleep(time.Millisecond) {
		select {
		case err := <-done:
			t.Fatalf("the operation has ended: %v", err)
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("after %d turns the operation has a turn while it waits", w.taken.Load())
		}
	}
}

// checkCostly starts a check-and-mutate of a row, whose predicate takes more than one slice of work
// on 20 KiB.
func checkCostly(t *testing.T, s *Server, row string, turns Turns) <-chan error {
	t.Helper()
	p, err := table.Compile(table.ValueRegex(`.*a?b?y`))
	if err != nil {
		t.Fatal(err)
	}
	if !p.Costly() {
		t.Fatal("the predicate is not costly")
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.For(nil).In(turns).CheckAndMutate(t.Context(), testTable, []byte(row), p, nil, []table.Mutation{setCell("new")})
		done <- err
	}()
	return done
}

// TestNoTurnWhileLatchIsHeldByOther: a check-and-mutate with a costly predicate that waits for the
// latch of its row has no turn, since the holder may wait for a stalled commit log. It takes a turn
// again to evaluate the predicate.
func TestNoTurnWhileLatchIsHeldByOther(t *testing.T) {
	s := newCluster(t, Config{OverloadWait: time.Minute}, 1, "f:").servers[0]
	_, err := applySync(s.Server, "row", table.Set("f", []byte("q"), 1, bytes.Repeat([]byte("x"), 20<<10)))
	noError(t, err)
	stalled := make(chan struct{})
	s.blobs.stalled.Store(&stalled)
	goOn := sync.OnceFunc(func() { close(stalled) })
	defer goOn()
	write := make(chan error, 1)
	go func() {
		_, err := applySync(s.Server, "row", table.Set("f", []byte("other"), 1, nil))
		write <- err
	}()
	for s.commitLog.commits.AppendAge() == 0 {
		time.Sleep(time.Millisecond)
	}
	var turns turnWatch
	done := checkCostly(t, s.Server, "row", &turns)
	turns.untilTurnEnds(t, done)
	if n := turns.resume.Load(); n != 0 {
		t.Errorf("%d turns to evaluate the predicate without the latch", n)
	}
	goOn()
	noError(t, <-write)
	noError(t, <-done)
	if turns.resume.Load() == 0 || turns.in.Load() {
		t.Errorf("the predicate was evaluated after %d turns; in one afterwards: %v", turns.resume.Load(), turns.in.Load())
	}
}

// TestNoTurnWhileMemoryIsTaken: a check-and-mutate with a costly predicate that waits for the
// memory of a large cell has no turn, since reads that hold the memory may wait for one.
func TestNoTurnWhileMemoryIsTaken(t *testing.T) {
	e := newEnv(t, Config{OverloadWait: time.Minute}, "f:")
	e.mustApply("row", table.Set("f", []byte("q"), 1, bytes.Repeat([]byte("x"), 512<<10)))
	if !e.largeReads.TryReserve(e.largeReads.Total()) {
		t.Fatal("the memory is in use")
	}
	release := sync.OnceFunc(func() { e.largeReads.Release(e.largeReads.Total()) })
	defer release()
	var turns turnWatch
	done := checkCostly(t, e.Server, "row", &turns)
	turns.untilTurnEnds(t, done)
	release()
	noError(t, <-done)
	if turns.resume.Load() == 0 || turns.in.Load() {
		t.Errorf("the predicate was evaluated after %d turns; in one afterwards: %v", turns.resume.Load(), turns.in.Load())
	}
}
