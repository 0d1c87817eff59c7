package results

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
)

func roomy(bytes int64) *Memory {
	m := New(bytes)
	m.Crowded = func() func() { return func() {} }
	return &m
}

// An answer takes memory as it grows, and waits for none while it has some (I13).
func TestAnswerRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := roomy(32 << 20)
		a, b := Answer{Of: m, Copies: 2}, Answer{Of: m, Copies: 2}
		if !a.Fits(SmallAnswerBytes) || a.weight != 0 {
			t.Errorf("a small answer takes %d", a.weight)
		}
		if !a.Fits(1<<20) || a.weight != 2<<20 || !a.Fits(9<<20) || a.weight != 18<<20 {
			t.Errorf("9 MiB take %d", a.weight)
		}
		if !b.Fits(6<<20) || b.Fits(8<<20) || b.Lacks != 8<<20 || b.weight != 12<<20 {
			t.Errorf("the other: %+v", b)
		}
		if a.Fits(12<<20) || a.weight != 18<<20 {
			t.Errorf("there are %d, and 12 of them taken by another", a.weight)
		}
		// Each lacks what the other has.
		done := make(chan error, 2)
		for _, r := range []*Answer{&a, &b} {
			go func() {
				err := r.Await(context.Background(), r.Lacks)
				if err == nil {
					time.Sleep(time.Millisecond)
				}
				r.Release()
				done <- err
			}()
		}
		start := time.Now()
		if err := errors.Join(<-done, <-done); err != nil || time.Since(start) > 10*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		// One that is more than all is alone.
		if !a.Fits(100<<20) || b.Fits(SmallAnswerBytes+1) {
			t.Error("beside an answer that takes all there is room for another")
		}
		a.Release()
		if !m.Free.Try("", m.All) {
			t.Error("memory is taken, and nobody has it")
		}
	})
}

// Answers that wait for memory have none, and are read but a few times (I13).
func TestAnswersWaitEmptyHanded(t *testing.T) {
	const answers, rows, rowBytes = 64, 20, 50 << 10
	synctest.Test(t, func(t *testing.T) {
		m := roomy(32 << 20)
		others := m.All - 3<<19 // what is left is not enough for one
		if !m.Free.Try("", others) {
			t.Fatal("memory is taken already")
		}
		heap := func() int64 {
			var s runtime.MemStats
			runtime.GC()
			runtime.GC() // pools keep what they have for one
			runtime.ReadMemStats(&s)
			return int64(s.HeapAlloc)
		}
		var reads atomic.Int64
		before, errs := heap(), make(chan error, answers)
		for range answers {
			go func() {
				r := Answer{Of: m, Copies: 2}
				defer r.Release()
				e, err := r.Build(t.Context(), rowBytes/4, func(e *wire.Encoder) error {
					reads.Add(1)
					for range rows {
						if !r.Fits(e.Len() + rowBytes) {
							time.Sleep(time.Millisecond) // others come to their last row, too
							return ErrMoreMemory
						}
						e.Raw(make([]byte, rowBytes))
					}
					time.Sleep(time.Millisecond) // it is sent
					return nil
				})
				if err == nil {
					e.Release()
				}
				errs <- err
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if more := heap() - before; more > 2<<20 {
			t.Errorf("answers that wait take %d KiB", more>>10)
		}
		m.Free.Release("", others)
		for range answers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := reads.Load(); n > 6*answers {
			t.Errorf("%d answers are read %d times", answers, n)
		}
	})
}

// A caller that waits for memory waits no longer than its deadline, even if its context reports its end only by that.
func TestResultsAreNotAwaitedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := roomy(4 << 20)
		if !m.Free.Try("", m.All) {
			t.Fatal("memory is taken already")
		}
		start := time.Now()
		_, err := m.Take(timing.ClockContext{Context: context.Background(), Until: start.Add(50 * time.Millisecond)}, "", 1<<20)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 50*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := m.Take(ctx, "", 1<<20); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has gone: %v", err)
		}
		start = time.Now()
		_, err = m.Take(timing.ClockContext{Context: context.Background()}, "", 1<<20)
		if took := time.Since(start); !errors.Is(err, api.ErrOverloaded) || took != ResultWait {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestResultsAreShared (I13): answers that one user does not read leave memory for those of another, which do not wait.
func TestResultsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := roomy(32 << 20)
		for i := 0; ; i++ {
			r := Answer{Of: m, User: "ann", Copies: 1}
			if !r.Fits(1 << 20) {
				if i != 16 {
					t.Errorf("ann has %d answers of 1 MiB, want half of 32", i)
				}
				break
			}
		}
		began := time.Now()
		var over *api.OverloadedError
		if _, err := m.Take(t.Context(), "ann", 1<<20); !errors.As(err, &over) || time.Since(began) != ResultWait {
			t.Errorf("one more of ann: %v after %v, want it refused after %v", err, time.Since(began), ResultWait)
		}
		began = time.Now()
		if release, err := m.Take(t.Context(), "bob", 4<<20); err != nil || time.Since(began) != 0 {
			t.Errorf("bob: %v after %v", err, time.Since(began))
		} else {
			release()
		}
	})
}
