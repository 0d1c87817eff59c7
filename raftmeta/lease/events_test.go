package lease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestEventQueueIsExact: events have consecutive numbers and are removed when acknowledged. They
// are replaced by one FailedOver as soon as all sessions together reach their limit.
func TestEventQueueIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		id := caching(t, v, time.Minute)
		k, _, _ := v.current()
		k.mu.Lock()
		defer k.mu.Unlock()
		s := k.mu.sessions[id]
		start, before := s.last, k.mu.ledger.queued
		if len(s.events) != 0 {
			t.Fatalf("%d events are queued", len(s.events))
		}
		state := func(what string, first, last uint64, events, queued int) {
			t.Helper()
			if s.first != start+first || s.last != start+last || len(s.events) != events || k.mu.ledger.queued != queued {
				t.Errorf("%s: %d events from %d to %d, %d of all sessions: want %d from %d to %d, %d of all", what,
					len(s.events), s.first-start, s.last-start, k.mu.ledger.queued, events, first, last, queued)
			}
		}
		for i := range uint64(3) {
			if got := k.pushLocked(s, api.Event{}); got != start+1+i {
				t.Errorf("event %d has number %d", i, got-start)
			}
		}
		state("three pushed", 1, 3, 3, before+3)
		s.sent = start + 3
		k.ackLocked(s, start+1)
		state("the first acknowledged", 2, 3, 2, before+2)
		k.ackLocked(s, start+1)
		k.ackLocked(s, start)
		state("acknowledged again", 2, 3, 2, before+2)
		k.ackLocked(s, start+9)
		state("more acknowledged than sent", 4, 3, 0, before)

		k.mu.ledger.queued = queuedMax - 2
		for range 2 {
			k.pushLocked(s, api.Event{})
		}
		state("as many as may be", 4, 5, 2, queuedMax)
		if got := k.pushLocked(s, api.Event{}); got != start+6 || s.events[0].Kind != api.FailedOver {
			t.Errorf("one more has number %d, and the first event is %v", got-start, s.events[0].Kind)
		}
		state("one more", 6, 6, 1, queuedMax-1)
		s.sent = s.last
		k.ackLocked(s, s.last)
		state("all acknowledged", 7, 6, 0, queuedMax-2)
		k.mu.ledger.queued = queuedMax // of other sessions
		k.pushLocked(s, api.Event{})
		state("the only event of a session", 7, 7, 1, queuedMax+1)
		if s.events[0].Kind == api.FailedOver {
			t.Error("the only event of a session gave way to a FailedOver")
		}
		s.sent = s.last
		k.ackLocked(s, s.last)
		k.mu.ledger.queued = before
	})
}

// TestWatchIsExact: each Watch of a path replaces the session's number for it, kinds accumulate,
// only an Unwatch with the current number ends it, and watches are counted exactly.
func TestWatchIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		a, b := openFor(t, v, time.Minute), openFor(t, v, time.Minute)
		k, _, _ := v.current()
		watch := func(s api.SessionID, path string, kinds api.EventKind) uint64 {
			t.Helper()
			number, err := v.Watch(t.Context(), s, path, kinds, 0)
			if err != nil || number == 0 {
				t.Fatalf("watch %s: number %d, %v", path, number, err)
			}
			return number
		}
		state := func(what string, watched, paths int, kinds api.EventKind) {
			t.Helper()
			k.mu.Lock()
			defer k.mu.Unlock()
			if got := k.mu.watches.byPath["/p"][a]; k.mu.watches.count != watched || len(k.mu.watches.byPath) != paths || got != kinds {
				t.Errorf("%s: %d watches of %d paths, kinds %d; want %d of %d, kinds %d", what, k.mu.watches.count, len(k.mu.watches.byPath), got, watched, paths, kinds)
			}
		}
		unwatch := func(s api.SessionID, path string, number uint64) {
			t.Helper()
			if err := v.Unwatch(t.Context(), s, path, number); err != nil {
				t.Errorf("unwatch %s: %v", path, err)
			}
		}
		first := watch(a, "/p", api.ContentsChanged)
		state("a watch", 1, 1, api.ContentsChanged)
		second := watch(a, "/p", api.LockFreed|1<<7)
		if second <= first {
			t.Errorf("number %d follows %d", second, first)
		}
		state("another kind", 1, 1, api.ContentsChanged|api.LockFreed)
		other := watch(b, "/p", api.AllEvents)
		watch(b, "/q", api.AllEvents)
		state("another session", 3, 2, api.ContentsChanged|api.LockFreed)
		unwatch(a, "/p", first)
		unwatch(a, "/q", second)
		unwatch(99, "/p", second)
		state("nothing ended", 3, 2, api.ContentsChanged|api.LockFreed)
		unwatch(a, "/p", second)
		state("one ended", 2, 2, 0)
		unwatch(a, "/p", second)
		state("one ended twice", 2, 2, 0)
		unwatch(b, "/p", other)
		state("the last of a path ended", 1, 1, 0)
		k.mu.Lock()
		k.mu.watches.removeAll(k.mu.sessions[b])
		k.mu.Unlock()
		state("all ended", 0, 0, 0)
	})
}

// TestWatchBounds: a session has at most WatchesMax watches, and all sessions watchedMax. A path
// that is watched already can be watched again.
func TestWatchBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		s := openFor(t, v, time.Minute)
		k, _, _ := v.current()
		watch := func(what, path string, limit int64) {
			t.Helper()
			_, err := v.Watch(t.Context(), s, path, api.AllEvents, 0)
			if limit != 0 {
				wantLimit(t, err, api.LimitWatches, limit)
			} else if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		k.mu.Lock()
		k.mu.watches.count = watchedMax - 1
		k.mu.Unlock()
		watch("the last of all sessions", "/a", 0)
		watch("one more of all sessions", "/b", watchedMax)
		watch("one that is there", "/a", 0)
		k.mu.Lock()
		k.mu.watches.count = 1
		k.mu.Unlock()
		for i := range api.WatchesMax - 1 {
			watch("of a session", fmt.Sprint("/", i), 0)
		}
		watch("one more of a session", "/b", api.WatchesMax)
		watch("one that is there", "/a", 0)
	})
}

// TestWatchIsOfTheLeader: only a server that leads in the lease manager's term accepts a watch, and
// only for an existing session. A server that does not lead must not report that a session does not
// exist.
func TestWatchIsOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		id := openFor(t, v, time.Minute)
		k, _, _ := v.current()
		watch := func(ctx context.Context, id api.SessionID) error {
			number, err := k.watch(ctx, id, "/p", api.AllEvents, 0, nil)
			if (number == 0) != (err != nil) {
				t.Errorf("number %d, %v", number, err)
			}
			return err
		}
		if err := watch(t.Context(), id); err != nil {
			t.Error(err)
		}
		if err := watch(t.Context(), 99); !errors.Is(err, api.ErrNoSession) {
			t.Errorf("an unknown session: %v", err)
		}
		k.mu.Lock()
		s := k.mu.sessions[id]
		s.leaseOver = true
		if n := k.pushLocked(s, api.Event{}); n != 0 || len(s.events) != 0 {
			t.Errorf("event %d is queued for a session that is over", n)
		}
		k.mu.Unlock()
		if err := watch(t.Context(), id); !errors.Is(err, api.ErrNoSession) {
			t.Errorf("a session that is over: %v", err)
		}
		k.mu.Lock()
		s.leaseOver = false
		k.mu.Unlock()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := watch(ended, 99); !errors.Is(err, context.Canceled) || errors.Is(err, api.ErrNoSession) {
			t.Errorf("leadership is not verified: %v", err)
		}
		r.term.Store(2)
		for _, id := range []api.SessionID{id, 99} {
			if err := watch(t.Context(), id); !errors.Is(err, api.ErrNotReady) || errors.Is(err, api.ErrNoSession) {
				t.Errorf("in another term: %v", err)
			}
		}
		r.term.Store(1)
	})
}
