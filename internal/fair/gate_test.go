package fair

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestRotation: users get turns round-robin regardless of their numbers of waiters.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 3)
		if err := g.Acquire(t.Context(), "x"); err != nil || g.Awaited() {
			t.Fatal(err)
		}
		var order []string
		wait := func(ctx context.Context, user string, errs chan<- error) {
			go func() {
				err := g.Acquire(ctx, user)
				if err == nil {
					order = append(order, user)
					g.Release()
				}
				errs <- err
			}()
			synctest.Wait()
		}
		errs := make(chan error, 20)
		gone, leave := context.WithCancelCause(t.Context())
		left := make(chan error, 2)
		wait(gone, "d", left)
		for range 3 {
			wait(t.Context(), "a", errs)
		}
		crowded := make(chan error, 1)
		wait(t.Context(), "a", crowded)
		if err := <-crowded; err != ErrCrowded {
			t.Errorf("a fourth of one user: %v", err)
		}
		wait(gone, "b", left)
		wait(t.Context(), "b", errs)
		wait(t.Context(), "c", errs)
		why := errors.New("gone")
		leave(why)
		for range 2 {
			if err := <-left; err != why {
				t.Errorf("one that has left: %v", err)
			}
		}
		if !g.Awaited() {
			t.Error("nothing waits")
		}
		g.Release()
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[a b c a a]" || g.Awaited() || g.free != 1 || len(g.queues) != 0 {
			t.Errorf("turns of %s, want [a b c a a]; %d are free, %d users wait", got, g.free, len(g.queues))
		}
	})
}

// TestAcquireFirst: a goroutine gets its user's next turn in the round-robin, also when the maximum
// number waits.
func TestAcquireFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 2)
		if err := g.AcquireFirst(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		var order []string
		wait := func(name string, acquire func(ctx context.Context, user string) error) {
			go func() {
				if err := acquire(t.Context(), name[:1]); err != nil {
					t.Error(err)
				}
				order = append(order, name)
				g.Release()
			}()
			synctest.Wait()
		}
		wait("a1", g.Acquire)
		wait("a2", g.Acquire)
		wait("b1", g.Acquire)
		wait("a first", g.AcquireFirst)
		wait("c first", g.AcquireFirst)
		g.Release()
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[a first b1 c first a1 a2]" || g.free != 1 {
			t.Errorf("turns of %s, want [a first b1 c first a1 a2]; %d are free", got, g.free)
		}
	})
}

// TestTurnAtOnce: a goroutine whose context ends as its turn is granted passes the turn on.
func TestTurnAtOnce(t *testing.T) {
	for range 200 {
		g := New(2, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool, 50)
		for range 50 {
			go func() {
				err := g.Acquire(ctx, "a")
				if err == nil {
					g.Release()
				}
				done <- err == nil
			}()
		}
		cancel()
		for range 50 {
			<-done
		}
		if g.free != 2 || g.Awaited() {
			t.Fatalf("%d turns are free, want 2", g.free)
		}
	}
}
