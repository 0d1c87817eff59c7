package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestAcquireBounds: an Acquire waits at the leader for 30 s or until shortly before its context
// ends, not at all with Try, and its lock-delay is within the limits.
func TestAcquireBounds(t *testing.T) {
	for name, c := range map[string]struct {
		o           LockOptions
		timeout     time.Duration
		wait, delay time.Duration
	}{
		"no deadline":      {LockOptions{}, 0, 30 * time.Second, 0},
		"a late deadline":  {LockOptions{Delay: api.LockDelayMax}, time.Minute, 30 * time.Second, api.LockDelayMax},
		"a deadline":       {LockOptions{Delay: time.Second}, 10 * time.Second, 9950 * ms, time.Second},
		"a near deadline":  {LockOptions{}, 20 * ms, 0, 0},
		"one try":          {LockOptions{Try: true}, 10 * time.Second, 0, 0},
		"a negative delay": {LockOptions{Delay: -1}, 0, 30 * time.Second, 0},
		"a long delay":     {LockOptions{Delay: api.LockDelayMax + 1}, 0, 30 * time.Second, api.LockDelayMax},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{acquire: func(_ context.Context, _ int, wait, delay time.Duration) error {
				if wait != c.wait || delay != c.delay {
					t.Errorf("%s: wait %v, lock-delay %v; want %v, %v", name, wait, delay, c.wait, c.delay)
				}
				return nil
			}}
			s := l.open(t, Options{})
			ctx, cancel := t.Context(), func() {}
			if c.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
			}
			defer cancel()
			lock, err := s.Acquire(ctx, "/l", api.Exclusive, c.o)
			if err != nil || lock.Path() != "/l" || lock.Session() != s || lock.Generation() != 1 {
				t.Errorf("%s: %+v, %v", name, lock, err)
			}
			shut(t, s)
		})
	}
}

// TestAcquireFails: an error other than a held lock is returned at once. After the leader rejected
// an Acquire, nothing is released, and the path can be acquired again.
func TestAcquireFails(t *testing.T) {
	held := &api.LockedError{Path: "/l", Mode: api.Exclusive, Holder: 7, HolderName: "other"}
	for _, c := range []struct {
		err error
		try bool
	}{{api.ErrEphemeral, false}, {api.ErrEphemeral, true}, {held, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{acquire: func(_ context.Context, n int, _, _ time.Duration) error {
				if n == 1 {
					return c.err
				}
				return nil
			}}
			s := l.open(t, Options{})
			start := time.Now()
			if _, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{Try: c.try}); err == nil || err.Error() != c.err.Error() || time.Since(start) != 0 {
				t.Errorf("%v after %v, want %v", err, time.Since(start), c.err)
			}
			time.Sleep(10 * time.Second)
			l.wantCalls(t, "after it failed", "Acquire", 1)
			l.wantCalls(t, "after it failed", "Release", 0)
			if lock, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{}); err != nil || !lock.Held() {
				t.Errorf("again: %v", err)
			}
			shut(t, s)
		})
	}
}

// TestAcquireIsRepeated: if the lock is still held after the wait at the leader, the call is
// repeated until the context ends. The error then wraps both causes; without one of them it is the
// other.
func TestAcquireIsRepeated(t *testing.T) {
	held := &api.LockedError{Path: "/l", Mode: api.Exclusive, Holder: 7, HolderName: "other"}
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{acquire: func(_ context.Context, n int, wait, _ time.Duration) error {
			time.Sleep(wait)
			if n < 3 {
				return held
			}
			return nil
		}}
		s := l.open(t, Options{})
		start := time.Now()
		if _, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{}); err != nil || time.Since(start) != 3*30*time.Second+2*25*ms {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		shut(t, s)
	})
	for _, c := range []struct {
		ended bool // the leader does not answer
		want  string
	}{{false, fmt.Sprintf("%v: %v", context.DeadlineExceeded, held)}, {true, "not answered"}} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{acquire: func(ctx context.Context, _ int, wait, _ time.Duration) error {
				if c.ended {
					<-ctx.Done()
					return errors.New("not answered")
				}
				time.Sleep(wait)
				return held
			}}
			s := l.open(t, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			if _, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{}); err == nil || err.Error() != c.want || time.Since(start) != 5*time.Second {
				t.Errorf("%v after %v, want %s", err, time.Since(start), c.want)
			}
			shut(t, s)
		})
	}
}

// TestAcquireOfUnknownOutcomeIsUndone: a lock that may have been granted is acquired once more and released,
// and the path stays reserved until then. RS5.
func TestAcquireOfUnknownOutcomeIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undo := make(chan struct{})
		l := &scripted{acquire: func(ctx context.Context, n int, _, _ time.Duration) error {
			switch n {
			case 1:
				<-ctx.Done()
				return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, ctx.Err())
			case 2:
				<-undo
			}
			return nil
		}}
		s := l.open(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{}); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "%!") {
			t.Errorf("without an answer: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(short, "/l", api.Exclusive, LockOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it is undone: %v", err)
		}
		l.wantCalls(t, "before it is undone", "Release", 0)
		close(undo)
		lock, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil || !lock.Held() {
			t.Errorf("after it is undone: %v", err)
		}
		l.wantCalls(t, "after it is undone", "Acquire", 3)
		l.wantCalls(t, "after it is undone", "Release", 1)
		shut(t, s)
	})
}

// TestReleaseOnce: a lock is released at the leader once, and is then neither held nor reserved. A
// lock that was lost with its session is released already.
func TestReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{release: func(n int) error {
			if n == 2 {
				return api.ErrNotHeld
			}
			return nil
		}}
		s := l.open(t, Options{})
		acquire := func() *Lock {
			t.Helper()
			lock, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{Delay: time.Minute})
			if err != nil || !lock.Held() || lock.Until() < time.Minute/2 {
				t.Fatalf("%v, until %v", err, lock.Until())
			}
			return lock
		}
		release := func(what string, lock *Lock, calls int) {
			t.Helper()
			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if lock.Held() || lock.Until() != 0 {
				t.Errorf("%s: held %t, until %v", what, lock.Held(), lock.Until())
			}
			select {
			case <-lock.Done():
			default:
				t.Errorf("%s: it is not done", what)
			}
			l.wantCalls(t, what, "Release", calls)
		}
		first := acquire()
		release("the first", first, 1)
		second := acquire()
		release("the first again", first, 1)
		if !second.Held() {
			t.Error("the second is not held after the first is released again")
		}
		release("the second, which the leader has released", second, 2)
		third := acquire()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		release("one that is lost", third, 2)
		_ = s.Client().Close()
	})
}

// TestReleaseIsFinished: a failed release is retried in the background, once. Until then its path
// is reserved. RS5.
func TestReleaseIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &scripted{release: func(int) error {
			if time.Since(start) < 10*time.Second {
				return api.ErrNotReady
			}
			return nil
		}}
		c, _ := l.client(t, func(cfg *Config) { cfg.RetryTimeMax = time.Second })
		s, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(t.Context()); !errors.Is(err, api.ErrNotReady) || lock.Held() {
			t.Errorf("%v, held %t", err, lock.Held())
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		if _, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{}); err != nil || time.Since(start) < 10*time.Second || time.Since(start) > 13*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		calls := l.count("Release")
		time.Sleep(10 * time.Second)
		l.wantCalls(t, "after it is released", "Release", calls)
		shut(t, s)
	})
}

// TestReleaseWhileTheSessionEnds: a release that fails because the session has ended returns no
// error.
func TestReleaseWhileTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closing sync.WaitGroup
		var s *Session
		l := &scripted{}
		l.release = func(int) error {
			closing.Go(func() { _ = s.Close(context.Background()) })
			<-s.Done()
			return api.ErrNotReady
		}
		s = l.open(t, Options{})
		lock, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
		closing.Wait()
		_ = s.Client().Close()
	})
}
