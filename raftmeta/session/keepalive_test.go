package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// isError reports whether err is want, or nil if want is nil.
func isError(err, want error) bool { return err == want || want != nil && errors.Is(err, want) }

// sentKeepAlive is the time at which a KeepAlive was sent, and its Hang.
type sentKeepAlive struct{ at, hang time.Duration }

const ms = time.Millisecond

// TestUndisturbedSession: a session sends its first KeepAlive at once, the second when the first is
// answered, and then one each 0.4 of the lease, over one connection. It logs nothing.
func TestUndisturbedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []sentKeepAlive
		start := time.Now()
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			sent = append(sent, sentKeepAlive{time.Since(start), req.Hang})
			if n == 1 {
				time.AfterFunc(100*ms, func() { extend(req, done) })
			} else {
				extend(req, done)
			}
		}}
		c, logs := l.client(t, nil)
		s, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 100*ms || s.Lease() != 2*time.Second {
			t.Errorf("open after %v with a lease of %v", d, s.Lease())
		}
		time.Sleep(100*time.Second + 100*ms)
		if !s.Valid() || s.State() != Valid {
			t.Errorf("the session is %v", s.State())
		}
		shut(t, s)
		for i, got := range sent {
			want := sentKeepAlive{100*ms + time.Duration(i-1)*800*ms, 800 * ms}
			if i == 0 {
				want = sentKeepAlive{}
			}
			if got != want {
				t.Fatalf("KeepAlive %d is sent after %v and hangs for %v, want %v and %v", i+1, got.at, got.hang, want.at, want.hang)
			}
		}
		if n := len(sent); n != 127 {
			t.Errorf("%d KeepAlives in 100 s", n)
		}
		l.wantCalls(t, "in all", "Dial", 1)
		if logs.Len() > 0 {
			t.Errorf("logs: %s", logs)
		}
	})
}

// TestKeepAliveIsLost: a KeepAlive without an answer is abandoned after 0.65 of the lease, and its
// connection one lease later. The next one asks for an immediate answer, so that the session does
// not get into jeopardy.
func TestKeepAliveIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []sentKeepAlive
		start := time.Now()
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			sent = append(sent, sentKeepAlive{time.Since(start), req.Hang})
			if n != 3 {
				extend(req, done)
			}
		}}
		s := l.open(t, Options{})
		_, changed := s.Changed()
		time.Sleep(4050 * ms)
		l.wantCalls(t, "before the lease of the old connection is over", "close", 0)
		time.Sleep(100 * ms)
		l.wantCalls(t, "after it", "close", 1)
		l.wantCalls(t, "in all", "Dial", 2)
		select {
		case <-changed:
			t.Errorf("the session became %v", s.State())
		default:
		}
		shut(t, s)
		want := []sentKeepAlive{{0, 0}, {0, 800 * ms}, {800 * ms, 800 * ms}, {2100 * ms, 0}, {2100 * ms, 800 * ms}, {2900 * ms, 800 * ms}, {3700 * ms, 800 * ms}}
		if len(sent) != len(want) {
			t.Fatalf("KeepAlives are sent %v, want %v", sent, want)
		}
		for i := range want {
			if sent[i] != want[i] {
				t.Errorf("KeepAlive %d is %v, want %v", i+1, sent[i], want[i])
			}
		}
	})
}

// TestExpiredBeforeTheFirstAnswer: Open opens another session if the first one is lost, with its leader,
// before it was confirmed.
func TestExpiredBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if n <= 3 {
				done(api.KeepAliveResponse{}, api.ErrNoSession)
				return
			}
			extend(req, done)
		}}
		s := l.open(t, Options{})
		l.wantCalls(t, "with three lost sessions", "OpenSession", 4)
		if s.State() != Valid {
			t.Errorf("the session is %v", s.State())
		}
		shut(t, s)
	})
}

// TestHastyLeaderIsPaced: if a leader answers each KeepAlive at once without news, the next one is
// sent after a pause of at most a quarter of the lease.
func TestHastyLeaderIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{alive: func(n int, _ api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if n < 1000 {
				done(api.KeepAliveResponse{Term: 1, First: 1, Lease: 2 * time.Second}, nil)
			}
		}}
		s := l.open(t, Options{})
		time.Sleep(10 * time.Second)
		if n := l.count("KeepAlive"); n < 20 || n > 60 || s.State() != Valid {
			t.Errorf("%d KeepAlives in 10 s, the session is %v", n, s.State())
		}
		shut(t, s)
	})
}

// TestLeaderWithoutLease: answers that grant no lease do not extend a session. It ends when its
// last lease and the grace period are over.
func TestLeaderWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if n < 1000 {
				done(api.KeepAliveResponse{Term: 1, First: 1}, nil)
			}
		}}
		start := time.Now()
		s := l.open(t, Options{Grace: 5 * time.Second})
		<-s.Done()
		want := api.LocalLease(2*time.Second) + 5*time.Second
		if d := time.Since(start); d < want || d > want+10*ms || s.State() != Expired {
			t.Errorf("%v after %v, want %v", s.State(), d, want)
		}
		if n := l.count("KeepAlive"); n > 60 {
			t.Errorf("%d KeepAlives", n)
		}
		shut(t, s)
	})
}

// TestLateAnswersCount: the answer of an abandoned KeepAlive extends the lease, counted from when
// it was sent, or ends the session.
func TestLateAnswersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if n == 1 {
				extend(req, done)
				return
			}
			took := req.Hang + 600*ms
			time.AfterFunc(took, func() {
				if gone.Load() {
					done(api.KeepAliveResponse{}, api.ErrNoSession)
					return
				}
				done(api.KeepAliveResponse{Term: 1, First: 1, Lease: took + 2*time.Second}, nil)
			})
		}}
		s := l.open(t, Options{})
		_, changed := s.Changed()
		time.Sleep(20 * time.Second)
		select {
		case <-changed:
			t.Errorf("the session became %v", s.State())
		default:
		}
		gone.Store(true)
		start := time.Now()
		<-s.Done()
		if d := time.Since(start); d > 2*time.Second || s.State() != Expired {
			t.Errorf("%v after %v", s.State(), d)
		}
		shut(t, s)
	})
}

// TestSupersededKeepAlive: the answer that a KeepAlive was superseded ends neither the session nor
// the connection.
func TestSupersededKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{alive: func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if n%3 == 0 {
				done(api.KeepAliveResponse{}, api.ErrSuperseded)
				return
			}
			extend(req, done)
		}}
		s := l.open(t, Options{})
		_, changed := s.Changed()
		time.Sleep(20 * time.Second)
		select {
		case <-changed:
			t.Errorf("the session became %v", s.State())
		default:
		}
		shut(t, s)
		l.wantCalls(t, "in all", "Dial", 1)
	})
}

// pendingKeepAlive is a pending KeepAlive.
type pendingKeepAlive struct {
	req  api.KeepAliveRequest
	done func(api.KeepAliveResponse, error)
}

// manual is a session whose KeepAlives the test answers.
type manual struct {
	t     *testing.T
	l     *scripted
	s     *Session
	calls chan pendingKeepAlive
	now   pendingKeepAlive
}

// openManual opens a session in term 5.
func openManual(t *testing.T) *manual {
	m := &manual{t: t, l: &scripted{}, calls: make(chan pendingKeepAlive, 100)}
	m.l.alive = func(_ int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
		m.calls <- pendingKeepAlive{req, done}
	}
	opened := make(chan *Session)
	go func() { opened <- m.l.open(t, Options{}) }()
	m.now = <-m.calls
	if r := m.now.req; r.Session != 1 || r.Term != 0 || r.Acked != 0 || r.Hang != 0 {
		t.Errorf("the first KeepAlive is %+v", r)
	}
	m.answer("the first", 5, 1, 0)
	m.s = <-opened
	return m
}

// answer answers a KeepAlive with events, and checks what the next one acknowledges.
func (m *manual) answer(what string, term, first, acked uint64, events ...api.Event) {
	m.t.Helper()
	start := time.Now()
	m.now.done(api.KeepAliveResponse{Term: term, First: first, Events: events, Lease: 2 * time.Second}, nil)
	m.now = <-m.calls
	if r := m.now.req; r.Acked != acked {
		m.t.Errorf("%s: the next KeepAlive is %+v, want %d acknowledged", what, r, acked)
	}
	if d := time.Since(start); len(events) > 0 && term == m.now.req.Term && d != 0 {
		m.t.Errorf("%s: acknowledged after %v", what, d)
	}
}

// drain checks the queued events of a Watcher.
func (m *manual) drain(what string, w *Watcher, want ...api.Event) {
	m.t.Helper()
	synctest.Wait()
	w.ws.mu.Lock()
	n := len(w.queue)
	w.ws.mu.Unlock()
	if n != len(want) {
		m.t.Errorf("%s: %d events, want %d", what, n, len(want))
	}
	for range n {
		v, err := w.Next(m.t.Context())
		if err != nil || len(want) == 0 || v != want[0] {
			m.t.Errorf("%s: %+v, %v; want %+v", what, v, err, want)
			return
		}
		want = want[1:]
	}
}

func (m *manual) close() {
	m.t.Helper()
	shut(m.t, m.s)
}

func changedAt(path string, index uint64) api.Event {
	return api.Event{Kind: api.ContentsChanged, Path: path, Index: index}
}

// TestEventsAreDeliveredOnce: each event is delivered once and acknowledged at once, even if it is sent
// twice. A gap in the numbers is a FailedOver. Answers of an older term are ignored, and numbers
// restart with a term. RS3.
func TestEventsAreDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := openManual(t)
		w, err := m.s.Watch(t.Context(), "/a", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		failedOver := api.Event{Kind: api.FailedOver}
		m.answer("two events", 5, 1, 2, changedAt("/a", 11), changedAt("/a", 12))
		m.drain("two events", w, changedAt("/a", 11), changedAt("/a", 12))
		m.answer("the same and one more", 5, 1, 3, changedAt("/a", 11), changedAt("/a", 12), changedAt("/a", 13))
		m.drain("the same and one more", w, changedAt("/a", 13))
		m.answer("another path", 5, 4, 4, changedAt("/b", 14))
		m.drain("another path", w)
		m.answer("an older term", 4, 5, 4, changedAt("/a", 15))
		m.drain("an older term", w)
		m.l.wantCalls(t, "so far", "Watch", 1)
		m.answer("a gap", 5, 6, 6, changedAt("/b", 16))
		m.drain("a gap", w, failedOver)
		m.l.wantCalls(t, "after the gap", "Watch", 2)
		m.answer("dropped events", 5, 9, 9, failedOver)
		m.drain("dropped events", w, failedOver)
		m.answer("another term", 6, 1, 0)
		if r := m.now.req; r.Term != 6 {
			t.Errorf("the next KeepAlive is %+v", r)
		}
		m.answer("numbers of another term", 6, 1, 2, changedAt("/a", 21), changedAt("/a", 22))
		m.drain("numbers of another term", w, changedAt("/a", 21), changedAt("/a", 22))
		m.close()
	})
}

// stillClock is a clock that does not advance; its timers never fire.
type stillClock struct{ now time.Duration }

func (c *stillClock) Now() time.Duration { return c.now }

func (c *stillClock) Timer(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// TestRenewAtTheEnd: a lease is valid before its end and not at it. A lease that had ended is
// renewed with an empty cache, another one with the cache unchanged. A session in jeopardy becomes
// valid only with a valid lease. RS1, RS2.
func TestRenewAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		state   State
		now     time.Duration
		end     time.Duration // of the new lease; the old one ends at 100
		valid   bool          // then
		want    State
		emptied bool
	}{
		{"in time", Valid, 99, 200, true, Valid, false},
		{"no longer", Valid, 99, 100, true, Valid, false},
		{"shorter", Valid, 98, 99, true, Valid, false},
		{"at the end", Valid, 100, 200, true, Valid, true},
		{"in jeopardy", Jeopardy, 150, 200, true, Valid, true},
		{"in jeopardy, over already", Jeopardy, 150, 140, false, Jeopardy, true},
		{"in jeopardy, over now", Jeopardy, 150, 150, false, Jeopardy, true},
	} {
		logs := new(bytes.Buffer)
		clock := &stillClock{99}
		s := &Session{client: &Client{cfg: Config{Logger: slog.New(slog.NewTextHandler(logs, nil))}}, clock: clock, renewed: make(chan struct{}, 1)}
		s.cache = newCache(10, 1<<20, s.valid)
		s.mu.changed = make(chan struct{})
		s.mu.state = c.state
		s.end.Store(100)
		s.cache.finish(s.cache.begin("/f", false), &api.File{Stat: api.Stat{Path: "/f"}}, api.CachePermission{OK: true})
		if !s.Valid() {
			t.Errorf("%s: the lease does not hold before its end", c.name)
		}
		clock.now = 100
		if s.Valid() {
			t.Errorf("%s: the lease holds at its end", c.name)
		}
		clock.now = c.now
		if !s.renew(c.end) {
			t.Errorf("%s: the session is over", c.name)
		}
		if s.Valid() != c.valid || s.State() != c.want || (s.cache.len() == 0) != c.emptied {
			t.Errorf("%s: valid %t, %v, %d files are cached", c.name, s.Valid(), s.State(), s.cache.len())
		}
		if want := max(c.end, 100); s.end.Load() != int64(want) {
			t.Errorf("%s: the lease ends at %d, want %d", c.name, s.end.Load(), want)
		}
		if safe := c.state == Jeopardy && c.want == Valid; safe != (len(s.renewed) == 1) || safe != (logs.Len() > 0) {
			t.Errorf("%s: stateLoop is woken %d times, with logs %q", c.name, len(s.renewed), logs)
		}
	}
}

// TestLeaseLapsesOnce: jeopardy is logged once, and so is its end, while the session continues.
func TestLeaseLapsesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		l := &scripted{alive: func(_ int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
			if !silent.Load() {
				extend(req, done)
			}
		}}
		c, logs := l.client(t, nil)
		s, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		silent.Store(true)
		time.Sleep(10 * time.Second)
		if s.State() != Jeopardy {
			t.Errorf("without answers the session is %v", s.State())
		}
		silent.Store(false)
		time.Sleep(60 * time.Second)
		if s.State() != Valid || s.Err() != nil {
			t.Errorf("with answers the session is %v: %v", s.State(), s.Err())
		}
		shut(t, s)
		for _, text := range []string{"in jeopardy", "safe again"} {
			if n := bytes.Count(logs.Bytes(), []byte(text)); n != 1 {
				t.Errorf("%d times %q:\n%s", n, text, logs)
			}
		}
	})
}

// TestEndedSessionIsNeverValid: a session that has ended is not valid at any time of a clock.
func TestEndedSessionIsNeverValid(t *testing.T) {
	for _, now := range []time.Duration{math.MinInt64, -1, 0, math.MaxInt64} {
		s := &Session{clock: &stillClock{now}}
		s.end.Store(leaseOver)
		l := &Lock{s: s}
		if s.Valid() || l.Held() || l.Until() != 0 {
			t.Errorf("at %d: valid %t, held %t, until %v", now, s.Valid(), l.Held(), l.Until())
		}
	}
}

// TestCallThatSucceedsAtTheEnd: a call that succeeded at the leader is reported as successful, even
// if the session was closed meanwhile. RS4.
func TestCallThatSucceedsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		l := &scripted{set: func(int) (uint64, error) { <-answer; return 77, nil }}
		s := l.open(t, Options{})
		made := make(chan uint64)
		go func() {
			n, err := s.Set(context.Background(), "/f", nil, 0, api.SetOptions{})
			if err != nil {
				t.Error(err)
			}
			made <- n
		}()
		synctest.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		close(answer)
		if n := <-made; n != 77 {
			t.Errorf("generation %d", n)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("a second close: %v", err)
		}
		l.wantCalls(t, "in all", "CloseSession", 1)
		_ = s.Client().Close()
	})
}
