package fair

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryShares: a user gets no more than remains free for others, a user that holds none may
// get all, and the cluster's own requests have no limit.
func TestMemoryShares(t *testing.T) {
	m := NewMemory(12)
	for _, step := range []struct {
		user string
		n    int64
		ok   bool
	}{
		{"a", 4, true}, {"a", 3, false}, {"a", 2, true}, {"a", 1, false}, // half of it
		{"b", 2, true}, {"b", 2, false}, {"b", 1, true}, // half of the rest
		{"c", 3, true}, {"d", 1, false},
	} {
		if ok := m.Try(step.user, step.n); ok != step.ok {
			t.Errorf("%d for %s: %v, want %v", step.n, step.user, ok, step.ok)
		}
	}
	for user, n := range map[string]int64{"a": 6, "b": 3, "c": 3} {
		m.Release(user, n)
	}
	if m.free != 12 || len(m.held) != 0 {
		t.Fatalf("%d are free, want 12; %v", m.free, m.held)
	}
	if !m.Try("a", 12) {
		t.Error("a user that holds nothing does not get all")
	}
	m.Release("a", 12)
	if !m.Try("", 8) || !m.Try("", 4) || m.Try("", 1) {
		t.Error("the cluster has a share")
	}
}

// TestMemoryWaits: a request over its user's share delays no other user. A request that waits for
// free memory is not overtaken, and is removed when its context ends.
func TestMemoryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		if !m.Try("a", 4) {
			t.Fatal("nothing is free")
		}
		got := make(chan string, 10)
		wait := func(ctx context.Context, user string, n int64) {
			go func() {
				if err := m.Acquire(ctx, user, n); err != nil {
					user = err.Error()
				}
				got <- user
			}()
			synctest.Wait()
		}
		wait(t.Context(), "a", 2) // 6 of 10 are above half
		if len(got) != 0 || !m.Try("b", 3) {
			t.Fatal("a waiter over its share blocks others, or exceeds it")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wait(ctx, "c", 5) // 3 are free
		wait(t.Context(), "d", 2)
		if len(got) != 0 || m.Try("e", 1) {
			t.Fatal("a waiter within its share was overtaken")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if both := []string{<-got, <-got}; !slices.Contains(both, context.DeadlineExceeded.Error()) || !slices.Contains(both, "d") {
			t.Errorf("got %q, want the end of c's context, and d", both)
		}
		m.Release("b", 3)
		m.Release("d", 2)
		m.Release("a", 1)
		synctest.Wait()
		if a := <-got; a != "a" {
			t.Errorf("got %q", a)
		}
		m.Release("a", 5)
		if m.free != 10 || len(m.held) != 0 || len(m.waiters) != 0 {
			t.Errorf("%d are free, want 10; %v; %d wait", m.free, m.held, len(m.waiters))
		}
	})
}

// TestMemoryInOrder: a user's large request is served once the user holds nothing, regardless of
// the user's later requests. Other users do not wait for it.
func TestMemoryInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		if !m.Try("a", 1) || !m.Try("a", 1) {
			t.Fatal("nothing is free")
		}
		got := make(chan int64, 10)
		wait := func(ctx context.Context, n int64) {
			go func() {
				if m.Acquire(ctx, "a", n) == nil {
					got <- n
				}
			}()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		wait(gone, 9)
		wait(t.Context(), 8)
		wait(t.Context(), 1)
		if len(got) != 0 || m.Try("a", 1) {
			t.Error("a request passed an earlier one of its user")
		}
		if !m.Try("b", 1) {
			t.Error("another user waits")
		}
		m.Release("b", 1)
		m.Release("a", 1)
		leave()
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("%d while the user holds memory", <-got)
		}
		m.Release("a", 1)
		synctest.Wait()
		if len(got) != 1 || <-got != 8 {
			t.Error("the large request has no memory though the user holds nothing")
		}
		m.Release("a", 8)
		synctest.Wait()
		if len(got) != 1 || <-got != 1 {
			t.Error("the last request has no memory")
		}
		m.Release("a", 1)
		if m.free != 10 || len(m.held) != 0 || len(m.waiters) != 0 {
			t.Errorf("%d are free, want 10; %v; %d wait", m.free, m.held, len(m.waiters))
		}
	})
}

// TestMemoryRandomly: under random requests, releases and cancellations no memory is lost and no
// request waits forever.
func TestMemoryRandomly(t *testing.T) {
	const all = 100
	m, done := NewMemory(all), make(chan error, 50)
	for g := range 50 {
		go func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(200))*time.Microsecond)
				user, n := []string{"", "a", "b", "c"}[r.IntN(4)], 1+r.Int64N(all)
				err := m.Acquire(ctx, user, n)
				cancel()
				if err == nil {
					m.Release(user, n)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					done <- err
					return
				}
			}
			done <- m.Acquire(context.Background(), "", all)
			m.Release("", all)
		}()
	}
	for range 50 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if !m.Try("", all) {
		t.Errorf("%d of %d are free", m.free, all)
	}
}
