package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// logLines is a log that is read while it is written.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// count returns the number of lines with a text.
func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// greeted records the nodes that were hailed, and fails for some.
type greeted struct {
	mu    sync.Mutex
	ids   []string
	fails map[string]bool
}

func (g *greeted) Hail(_ context.Context, id string, _ api.Sequencer) error {
	g.mu.Lock()
	g.ids = append(g.ids, id)
	fails := g.fails[id]
	g.mu.Unlock()
	if fails {
		return errors.New("no answer")
	}
	time.Sleep(1) // after those that fail
	return nil
}

func (g *greeted) StartVoting(context.Context, string, api.Sequencer) error { return nil }

// TestHails: each live node is told who is master every five seconds, and one that did not answer sooner.
func TestHails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &greeted{fails: map[string]bool{"b": true}}
		v := voterKeeper{cfg: Config{Nodes: g, Logger: slog.New(slog.DiscardHandler)}, lock: &worldLock{done: make(chan struct{})}}
		hailed := func() []string {
			g.ids = nil
			v.hail(t.Context(), []Server{{ID: "dead"}, {ID: "a", Alive: true}, {ID: "b", Alive: true}})
			slices.Sort(g.ids)
			return g.ids
		}
		if got := hailed(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("hailed are %v, want the live nodes", got)
		}
		g.fails = nil
		if got := hailed(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("hailed are %v, want the one that did not answer", got)
		}
		time.Sleep(hailPause - 3)
		if got := hailed(); len(got) > 0 {
			t.Errorf("hailed are %v again, too early", got)
		}
		time.Sleep(1)
		if got := hailed(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("hailed are %v five seconds after the first", got)
		}
		if got := hailed(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("hailed are %v five seconds after the second", got)
		}
	})
}

// keeperOf returns what keeps the voters of a world of three nodes, of which only a votes.
func keeperOf(log *logLines) (*world, *voterKeeper) {
	w := &world{changed: make(chan struct{}), hailed: map[string]uint64{}, attempts: map[string]int{}, group: []Voter{{ID: "a", Leader: true, CaughtUp: true}}}
	for _, id := range []string{"a", "b", "c"} {
		w.servers = append(w.servers, Server{ID: id, Alive: true, Since: time.Hour, HasLog: true})
	}
	lock := &worldLock{done: make(chan struct{})}
	return w, &voterKeeper{cfg: Config{Group: w, Nodes: w, Servers: w.Servers, Stable: stable, Logger: log.logger()}, lock: lock, attempts: attempts{}}
}

// TestNoStepWithoutLock: a node whose lock is lost changes no voters.
func TestNoStepWithoutLock(t *testing.T) {
	w, v := keeperOf(&logLines{})
	v.lock.(*worldLock).lose()
	v.look(t.Context())
	if len(w.started) > 0 || len(w.group) != 1 {
		t.Errorf("started are %v, voters %+v", w.started, w.group)
	}
}

// TestStepsFollow: what adds voters goes on at once, and a look ends when a voter is removed.
func TestStepsFollow(t *testing.T) {
	w, v := keeperOf(&logLines{})
	v.look(t.Context())
	if got := w.voting(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("voters after one look: %v", got)
	}
	w.servers = append(w.servers, Server{ID: "d", Alive: true, Since: time.Hour, HasLog: true})
	w.servers[1].Leaving = true
	if !v.step(t.Context()) || !v.step(t.Context()) || len(w.voting()) != 4 {
		t.Errorf("it does not go on when a voter is added: %v", w.voting())
	}
	if v.step(t.Context()) || !slices.Equal(w.voting(), []string{"a", "c", "d"}) {
		t.Errorf("it goes on when a voter is removed: %v", w.voting())
	}
}

// TestFailedStepIsLoggedOnce: a step that fails is logged when it begins to fail, and again after another one has succeeded.
func TestFailedStepIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		w, v := keeperOf(log)
		w.servers = w.servers[:2]
		w.unable = map[string]bool{"b": true}
		const failed = "cannot change the voters"
		for range 3 {
			v.look(t.Context())
			time.Sleep(retryMax)
		}
		if n := log.count(failed); n != 1 || w.attempts["b"] != 3 {
			t.Errorf("%d of %d failures are logged, want one of 3", n, w.attempts["b"])
		}
		w.unable = nil
		v.look(t.Context())
		if got := w.voting(); len(got) != 2 {
			t.Fatalf("voters: %v", got)
		}
		w.group = w.group[:1]
		w.unable = map[string]bool{"b": true}
		time.Sleep(retryMax)
		v.look(t.Context())
		if n := log.count(failed); n != 2 {
			t.Errorf("%d failures are logged, want another one", n)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		v.waits = ""
		v.failed(ended, "step", context.Canceled)
		if n := log.count(failed); n != 2 {
			t.Error("a step that ends with the mastership is logged as a failure")
		}
	})
}

// TestRemovedBeforeItVoted: a node that is removed before it had a vote is not staged again at once, and one that had a vote may be.
func TestRemovedBeforeItVoted(t *testing.T) {
	w, v := keeperOf(&logLines{})
	w.servers[1].Full = true
	w.group = append(w.group, Voter{ID: "b", Staged: true})
	v.step(t.Context())
	if _, in := find(w.group, "b"); in || v.attempts["b"] == nil || v.attempts["b"].failures != 1 {
		t.Errorf("the group is %+v, attempts %+v", w.group, v.attempts["b"])
	}
	w, v = keeperOf(&logLines{})
	w.servers[1].Leaving = true
	w.group = append(w.group, Voter{ID: "b", CaughtUp: true}, Voter{ID: "c", CaughtUp: true})
	v.step(t.Context())
	if _, in := find(w.group, "b"); in || v.attempts["b"] != nil {
		t.Errorf("the group is %+v, attempts %+v", w.group, v.attempts["b"])
	}
}

// freeing is a lock whose release has an outcome that a test decides.
type freeing struct {
	*worldLock
	err error
}

func (f freeing) Release(context.Context) error { return f.err }

// TestReleaseIsLogged: a lock that cannot be released is logged, unless it is released already.
func TestReleaseIsLogged(t *testing.T) {
	for err, want := range map[error]int{nil: 0, api.ErrNotHeld: 0, api.ErrNoSession: 0, errTestUnknown: 1} {
		synctest.Test(t, func(t *testing.T) {
			log := &logLines{}
			w, _ := keeperOf(log)
			m := New(Config{Group: w, Nodes: w, Servers: w.Servers, Stable: stable, Pause: time.Second, Logger: log.logger()})
			lock := freeing{&worldLock{done: make(chan struct{})}, err}
			lock.lose()
			m.work(t.Context(), lock)
			if n := log.count("release the master lock"); n != want {
				t.Errorf("%v is logged %d times, want %d", err, n, want)
			}
		})
	}
}

// TestLockThatCannotBeTaken: a lock that cannot be taken is tried again after a pause, and logged, unless the leadership has ended.
func TestLockThatCannotBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		w, _ := keeperOf(log)
		tries := 0
		m := New(Config{Group: w, Nodes: w, Servers: w.Servers, Stable: stable, Pause: time.Second, Logger: log.logger(), Acquire: func(ctx context.Context) (Lock, error) {
			if tries++; tries > 3 {
				<-ctx.Done()
			}
			return nil, errTestUnknown
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		w.leads = true
		go func() {
			m.Run(ctx)
			close(ended)
		}()
		time.Sleep(2*time.Second + 1)
		synctest.Wait()
		if tries != 3 {
			t.Errorf("it was tried %d times in two seconds", tries)
		}
		time.Sleep(time.Second)
		w.setLeads(false)
		synctest.Wait()
		if n := log.count("cannot take the master lock"); n != 3 {
			t.Errorf("%d failures are logged, want 3: one is that of a node that leads no more", n)
		}
		cancel()
		<-ended
		if q := m.Sequencer(); q != (api.Sequencer{}) {
			t.Errorf("a node that was never master has the sequencer %v", q)
		}
	})
}
