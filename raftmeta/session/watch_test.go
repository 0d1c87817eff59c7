package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestWatcherQueueIsExact: a Watcher queues QueueMax events. A further one replaces them by one
// FailedOver, and two FailedOver are never adjacent. RS3.
func TestWatcherQueueIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &manual{t: t, l: &scripted{}}
		m.s = m.l.open(t, Options{QueueMax: 3})
		w, err := m.s.Watch(t.Context(), "/a", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		failedOver := api.Event{Kind: api.FailedOver}
		push := func(events ...api.Event) {
			w.ws.mu.Lock()
			defer w.ws.mu.Unlock()
			for _, v := range events {
				w.pushLocked(v)
			}
		}
		a, b, c, d := changedAt("/a", 1), changedAt("/a", 2), changedAt("/a", 3), changedAt("/a", 4)
		push(a, b, c)
		m.drain("as many as are kept", w, a, b, c)
		push(a, b, c, d)
		m.drain("one more", w, failedOver, d)
		push(failedOver, failedOver)
		m.drain("two FailedOver", w, failedOver)
		push(failedOver, a, failedOver)
		m.drain("two FailedOver with an event between", w, failedOver, a, failedOver)
		push(a, b, c, failedOver)
		m.drain("FailedOver that is one too many", w, failedOver)
		m.close()
	})
}

// TestWatchersGetTheirKinds: each Watcher of a path gets the events of the kinds that it added,
// until it is removed.
func TestWatchersGetTheirKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openManual(t)
		a, b := m.s.NewWatcher(), m.s.NewWatcher()
		add := func(w *Watcher, kinds api.EventKind) {
			t.Helper()
			if err := w.Add(t.Context(), "/p", kinds, 0); err != nil {
				t.Fatal(err)
			}
		}
		event := func(kind api.EventKind) api.Event { return api.Event{Kind: kind, Path: "/p"} }
		changed, added, freed := event(api.ContentsChanged), event(api.ChildAdded), event(api.LockFreed)
		add(a, api.ContentsChanged)
		add(b, api.ChildAdded)
		m.answer("three kinds", 5, 1, 3, changed, added, freed)
		m.drain("the first", a, changed)
		m.drain("the second", b, added)
		add(a, api.LockFreed)
		m.answer("three kinds again", 5, 4, 6, changed, added, freed)
		m.drain("the first, with one more kind", a, changed, freed)
		m.drain("the second", b, added)
		a.Remove("/p")
		m.answer("three kinds when one is removed", 5, 7, 9, changed, added, freed)
		m.drain("the first, removed", a)
		m.drain("the second", b, added)
		m.l.wantCalls(t, "while one watches", "Unwatch", 0)
		b.Close()
		synctest.Wait()
		m.l.wantCalls(t, "when none watches", "Unwatch", 1)
		m.close()
	})
}

// TestUnwatch: a watch is ended at the leader if the leader has it, and not after the session has
// ended.
func TestUnwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{watch: func(_ int, path string, _ api.EventKind, _ uint64) error {
			if path == "/bad" {
				return api.ErrBadPath
			}
			return nil
		}}
		s := l.open(t, Options{})
		w := s.NewWatcher()
		if err := w.Add(t.Context(), "/bad", api.ContentsChanged, 0); !errors.Is(err, api.ErrBadPath) {
			t.Error(err)
		}
		w.Remove("/bad")
		w.Remove("/never")
		w.Close()
		synctest.Wait()
		l.wantCalls(t, "without a watch", "Unwatch", 0)
		if err := w.Add(t.Context(), "/a", api.ContentsChanged, 0); !errors.Is(err, ErrWatcherClosed) {
			t.Errorf("add to a closed Watcher: %v", err)
		}
		w = s.NewWatcher()
		for _, path := range []string{"/a", "/b", "/c"} {
			if err := w.Add(t.Context(), path, api.ContentsChanged, 0); err != nil {
				t.Fatal(err)
			}
		}
		w.Remove("/b")
		synctest.Wait()
		l.wantCalls(t, "one removed", "Unwatch", 1)
		w.Close()
		w.Close()
		synctest.Wait()
		l.wantCalls(t, "closed", "Unwatch", 3)
		w, err := s.Watch(t.Context(), "/a", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		shut(t, s)
		w.Close()
		synctest.Wait()
		l.wantCalls(t, "after the session", "Unwatch", 3)
	})
}

// TestWatchThatCannotBeAdded: after a failed Add, a Watcher has the kinds that it had before.
func TestWatchThatCannotBeAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openManual(t)
		m.l.watch = func(n int, _ string, _ api.EventKind, _ uint64) error {
			if n == 2 {
				return api.ErrTooLarge
			}
			return nil
		}
		w, err := m.s.Watch(t.Context(), "/p", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), "/p", api.LockFreed, 0); !errors.Is(err, api.ErrTooLarge) {
			t.Errorf("one more kind: %v", err)
		}
		m.answer("two kinds", 5, 1, 2, changedAt("/p", 0), api.Event{Kind: api.LockFreed, Path: "/p"})
		m.drain("two kinds", w, changedAt("/p", 0))
		m.close()
	})
}

// TestWatchRemovedMeanwhile: a path that is removed while its watch is being set is not watched.
func TestWatchRemovedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := make(chan struct{})
		l := &scripted{watch: func(int, string, api.EventKind, uint64) error { <-set; return nil }}
		s := l.open(t, Options{})
		w := s.NewWatcher()
		added := make(chan error)
		go func() { added <- w.Add(context.Background(), "/p", api.ContentsChanged, 0) }()
		synctest.Wait()
		w.Remove("/p")
		close(set)
		if err := <-added; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		l.wantCalls(t, "in the end", "Unwatch", 1)
		shut(t, s)
	})
}

// TestResetIsRepeated: a Watcher gets FailedOver when all its watches are set again, each with the newest
// generation that was delivered. Watches that cannot be set are retried, and delay no other Watcher. RS3.
func TestResetIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openManual(t)
		var mu sync.Mutex
		failing, seen, most, now := false, map[string]uint64{}, 0, 0
		m.l.watch = func(_ int, path string, _ api.EventKind, gen uint64) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(ms)
			mu.Lock()
			defer mu.Unlock()
			now--
			seen[path] = gen
			if failing && path == "/7" {
				return api.ErrTooLarge
			}
			return nil
		}
		w := m.s.NewWatcher()
		for i := range 70 {
			gen := uint64(0)
			if i == 1 {
				gen = 8
			}
			if err := w.Add(t.Context(), fmt.Sprint("/", i), api.AllEvents, gen); err != nil {
				t.Fatal(err)
			}
		}
		lock := api.Event{Kind: api.LockFreed, Path: "/3", Index: 99}
		m.answer("events", 5, 1, 4, changedAt("/2", 9), changedAt("/3", 10), lock, changedAt("/2", 5))
		m.drain("events", w, changedAt("/2", 9), changedAt("/3", 10), lock, changedAt("/2", 5))
		mu.Lock()
		failing, most = true, 0
		mu.Unlock()
		other, err := m.s.Watch(t.Context(), "/2", api.AllEvents)
		if err != nil {
			t.Fatal(err)
		}
		m.answer("dropped events", 5, 5, 5, api.Event{Kind: api.FailedOver})
		time.Sleep(200 * ms)
		m.drain("while a watch cannot be set", w)
		m.drain("of another Watcher, whose watches are set", other, api.Event{Kind: api.FailedOver})
		mu.Lock()
		failing = false
		mu.Unlock()
		time.Sleep(900 * ms) // longer than any pause that has begun
		m.drain("when all are set", w, api.Event{Kind: api.FailedOver})
		m.drain("of the other Watcher, which had it before", other)
		mu.Lock()
		defer mu.Unlock()
		if most != resettersMax {
			t.Errorf("%d watches are set at once, want %d", most, resettersMax)
		}
		for path, want := range map[string]uint64{"/0": 0, "/1": 8, "/2": 9, "/3": 10} {
			if seen[path] != want {
				t.Errorf("%s is watched from generation %d, want %d", path, seen[path], want)
			}
		}
		m.close()
	})
}

// TestNextWakesAll: every waiting Next returns when the Watcher is closed, and each event wakes one
// of them.
func TestNextWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openManual(t)
		w, err := m.s.Watch(t.Context(), "/a", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := w.Next(context.Background())
				got <- err
			}()
		}
		synctest.Wait()
		m.answer("two events", 5, 1, 2, changedAt("/a", 1), changedAt("/a", 2))
		synctest.Wait()
		if len(got) != 2 {
			t.Errorf("two events wake %d callers", len(got))
		}
		w.Close()
		closed := 0
		for range 5 {
			if err := <-got; errors.Is(err, ErrWatcherClosed) {
				closed++
			}
		}
		if closed != 3 {
			t.Errorf("%d callers learn that the Watcher is closed", closed)
		}
		m.close()
	})
}
