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

// logLines is a log that can be read while it is written.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// count returns the number of lines that contain a text.
func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// announcements records the nodes that the master was announced to, and fails for some.
type announcements struct {
	mu    sync.Mutex
	ids   []string
	fails map[string]bool
}

func (g *announcements) Announce(_ context.Context, id string, _ api.Sequencer) error {
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

func (g *announcements) StartVoting(context.Context, string, Invitation, api.Sequencer) error {
	return nil
}

// TestAnnouncements: the master is announced to each live node every five seconds, and sooner to
// one that did not answer.
func TestAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &announcements{fails: map[string]bool{"b": true}}
		v := voterManager{cfg: Config{Nodes: g, Logger: slog.New(slog.DiscardHandler)}, lock: &worldLock{done: make(chan struct{})}}
		announced := func() []string {
			g.ids = nil
			v.announce(t.Context(), []Server{{ID: "dead"}, {ID: "a", Alive: true}, {ID: "b", Alive: true}})
			slices.Sort(g.ids)
			return g.ids
		}
		if got := announced(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("announced to %v, want the live nodes", got)
		}
		g.fails = nil
		if got := announced(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("announced to %v, want the one that did not answer", got)
		}
		time.Sleep(announcePause - 3)
		if got := announced(); len(got) > 0 {
			t.Errorf("announced to %v again, too early", got)
		}
		time.Sleep(1)
		if got := announced(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("announced to %v five seconds after the first", got)
		}
		if got := announced(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("announced to %v five seconds after the second", got)
		}
	})
}

// managerOf returns the voter manager of a world of three nodes, of which only a votes.
func managerOf(log *logLines) (*world, *voterManager) {
	w := &world{changed: make(chan struct{}), announced: map[string]uint64{}, attempts: map[string]int{}, group: []Voter{{ID: "a", Leader: true, CaughtUp: true}}}
	for _, id := range []string{"a", "b", "c"} {
		w.servers = append(w.servers, Server{ID: id, Alive: true, Since: time.Hour, HasLog: true})
	}
	lock := &worldLock{done: make(chan struct{})}
	return w, &voterManager{cfg: Config{Group: w, Nodes: w, Servers: w.Servers, Stable: stable, Logger: log.logger()}, lock: lock, attempts: attempts{}}
}

// TestNoStepWithoutLock: a node that has lost the lock changes no voters.
func TestNoStepWithoutLock(t *testing.T) {
	w, v := managerOf(&logLines{})
	v.lock.(*worldLock).lose()
	v.reconcile(t.Context())
	if len(w.started) > 0 || len(w.group) != 1 {
		t.Errorf("started are %v, voters %+v", w.started, w.group)
	}
}

// TestStepsFollow: steps that add voters follow at once; a removal ends the reconciliation.
func TestStepsFollow(t *testing.T) {
	w, v := managerOf(&logLines{})
	v.reconcile(t.Context())
	if got := w.voting(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("voters after one look: %v", got)
	}
	w.servers = append(w.servers, Server{ID: "d", Alive: true, Since: time.Hour, HasLog: true})
	w.servers[1].Draining = true
	if !v.step(t.Context()) || !v.step(t.Context()) || len(w.voting()) != 4 {
		t.Errorf("it does not go on when a voter is added: %v", w.voting())
	}
	if v.step(t.Context()) || !slices.Equal(w.voting(), []string{"a", "c", "d"}) {
		t.Errorf("steps continue after a removal: %v", w.voting())
	}
}

// TestFailedStepIsLoggedOnce: a step is logged when it first fails, and again after another one has
// succeeded.
func TestFailedStepIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		w, v := managerOf(log)
		w.servers = w.servers[:2]
		w.unable = map[string]bool{"b": true}
		const failed = "voters not changed"
		for range 3 {
			v.reconcile(t.Context())
			time.Sleep(retryMax)
		}
		if n := log.count(failed); n != 1 || w.attempts["b"] != 3 {
			t.Errorf("%d of %d failures are logged, want one of 3", n, w.attempts["b"])
		}
		w.unable = nil
		v.reconcile(t.Context())
		if got := w.voting(); len(got) != 2 {
			t.Fatalf("voters: %v", got)
		}
		w.group = w.group[:1]
		w.unable = map[string]bool{"b": true}
		time.Sleep(retryMax)
		v.reconcile(t.Context())
		if n := log.count(failed); n != 2 {
			t.Errorf("%d failures are logged, want another one", n)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		v.failedStep = ""
		v.failed(ended, "step", context.Canceled)
		if n := log.count(failed); n != 2 {
			t.Error("a step that ends with the mastership is logged as a failure")
		}
	})
}

// TestRemovedBeforeItVoted: a node removed before it had a vote is not staged again at once; one
// that had a vote may be.
func TestRemovedBeforeItVoted(t *testing.T) {
	w, v := managerOf(&logLines{})
	w.servers[1].Full = true
	w.group = append(w.group, Voter{ID: "b", Staged: true})
	v.step(t.Context())
	if _, in := find(w.group, "b"); in || v.attempts["b"] == nil || v.attempts["b"].failures != 1 {
		t.Errorf("the group is %+v, attempts %+v", w.group, v.attempts["b"])
	}
	w, v = managerOf(&logLines{})
	w.servers[1].Draining = true
	w.group = append(w.group, Voter{ID: "b", CaughtUp: true}, Voter{ID: "c", CaughtUp: true})
	v.step(t.Context())
	if _, in := find(w.group, "b"); in || v.attempts["b"] != nil {
		t.Errorf("the group is %+v, attempts %+v", w.group, v.attempts["b"])
	}
}

// freeing is a lock whose release has an outcome that the test decides.
type freeing struct {
	*worldLock
	err error
}

func (f freeing) Release(context.Context) error { return f.err }

// TestReleaseIsLogged: a failed release of the lock is logged, unless the lock is already released.
func TestReleaseIsLogged(t *testing.T) {
	for err, want := range map[error]int{nil: 0, api.ErrNotHeld: 0, api.ErrNoSession: 0, errTestUnknown: 1} {
		synctest.Test(t, func(t *testing.T) {
			log := &logLines{}
			w, _ := managerOf(log)
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

// TestLockThatCannotBeTaken: a failed acquisition of the lock is retried after a pause and logged,
// unless the leadership has ended.
func TestLockThatCannotBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		w, _ := managerOf(log)
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
		if n := log.count("master lock not acquired"); n != 3 {
			t.Errorf("%d failures are logged, want 3: one is that of a node that leads no more", n)
		}
		cancel()
		<-ended
		if q := m.Sequencer(); q != (api.Sequencer{}) {
			t.Errorf("a node that was never master has the sequencer %v", q)
		}
	})
}
