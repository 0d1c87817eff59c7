package master

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// world is a master's view of a cluster, under a test's control.
type world struct {
	mu        sync.Mutex
	leads     bool
	changed   chan struct{}
	group     []Voter
	servers   []Server
	lock      *worldLock
	index     uint64
	announced map[string]uint64
	started   []string
	broken    bool // nodes do not answer
	// unable are nodes that fail to start voting, and stuck those that never catch up with the log.
	unable, stuck map[string]bool
	attempts      map[string]int // StartVoting commands to a node
}

type worldLock struct {
	seq  api.Sequencer
	done chan struct{}
	once sync.Once
}

func (l *worldLock) Held() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}
func (l *worldLock) Done() <-chan struct{}              { return l.done }
func (l *worldLock) Sequencer() api.Sequencer           { return l.seq }
func (l *worldLock) Release(context.Context) error      { l.lose(); return nil }
func (l *worldLock) lose()                              { l.once.Do(func() { close(l.done) }) }
func (w *world) setLeads(leads bool)                    { w.change(func() { w.leads = leads }) }
func (w *world) StepDown(context.Context, string) error { return nil }
func (w *world) Servers(context.Context) ([]Server, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Server(nil), w.servers...), nil
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) Leads() (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leads, w.changed
}

func (w *world) Voters() []Voter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Voter(nil), w.group...)
}

func (w *world) Stage(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.group = append(w.group, Voter{ID: id, Staged: true, CaughtUp: !w.stuck[id]})
	return nil
}

func (w *world) Promote(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.group {
		if w.group[i].ID == id {
			w.group[i].Staged = false
		}
	}
	return nil
}

func (w *world) Remove(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.group {
		if w.group[i].ID == id {
			w.group = append(w.group[:i:i], w.group[i+1:]...)
			return nil
		}
	}
	return nil
}

func (w *world) Announce(_ context.Context, id string, q api.Sequencer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return errors.New("no answer")
	}
	w.announced[id] = q.LockGeneration
	return nil
}

// worldInvitation is the only invitation of a world.
var worldInvitation = Invitation{Index: 7, Term: 3}

func (w *world) Invite(context.Context, string) (Invitation, error) { return worldInvitation, nil }

func (w *world) StartVoting(_ context.Context, id string, i Invitation, _ api.Sequencer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken || i != worldInvitation {
		return errors.New("no answer")
	}
	w.attempts[id]++
	if w.unable[id] {
		return errors.New("no space left on device")
	}
	w.started = append(w.started, id)
	return nil
}

func (w *world) acquire(context.Context) (Lock, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lock != nil && w.lock.Held() {
		return nil, errors.New("held")
	}
	w.index++
	w.lock = &worldLock{seq: api.Sequencer{Path: LockPath, Mode: api.Exclusive, LockGeneration: w.index}, done: make(chan struct{})}
	return w.lock, nil
}

func run(t *testing.T, f func(w *world, m *Master)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{changed: make(chan struct{}), announced: map[string]uint64{}, attempts: map[string]int{}, group: []Voter{{ID: "a", Leader: true, CaughtUp: true}}}
		for _, id := range []string{"a", "b", "c"} {
			w.servers = append(w.servers, Server{ID: id, Alive: true, Since: time.Hour})
		}
		m := New(Config{
			ID: "a", Group: w, Nodes: w, Servers: w.Servers, Acquire: w.acquire, Stable: stable, Pause: time.Second,
			Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { m.Run(ctx) })
		f(w, m)
		cancel()
		done.Wait()
		if w.lock != nil && w.lock.Held() {
			t.Error("the lock was not released")
		}
	})
}

// TestMastership: the leader of the lock service is the master, for as long as it leads, and epochs
// grow (I9).
func TestMastership(t *testing.T) {
	run(t, func(w *world, m *Master) {
		time.Sleep(5 * time.Second)
		if m.Epoch() != 0 {
			t.Errorf("epoch %d without leading", m.Epoch())
		}
		w.setLeads(true)
		time.Sleep(5 * time.Second)
		first := m.Epoch()
		if first == 0 {
			t.Fatal("the leader is no master")
		}
		w.setLeads(false)
		time.Sleep(time.Second)
		if m.Epoch() != 0 || w.held() {
			t.Errorf("epoch %d, lock held %v after leadership went", m.Epoch(), w.held())
		}
		w.setLeads(true)
		time.Sleep(time.Second)
		w.current().lose() // the session expired
		time.Sleep(3 * time.Second)
		if m.Epoch() <= first {
			t.Errorf("epoch %d after %d", m.Epoch(), first)
		}
	})
}

// TestMasterMakesVoters: the master is announced to all nodes, and they become voters.
func TestMasterMakesVoters(t *testing.T) {
	run(t, func(w *world, m *Master) {
		w.broken = true
		w.setLeads(true)
		time.Sleep(2 * time.Second)
		if len(w.Voters()) != 1 {
			t.Errorf("voters %+v, though no node answers", w.Voters())
		}
		w.change(func() { w.broken = false })
		time.Sleep(4 * time.Second) // no step waits for the next reconciliation
		if len(w.Voters()) != 3 || len(w.started) != 2 {
			t.Errorf("voters %+v, started %v", w.Voters(), w.started)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range w.servers {
			if w.announced[s.ID] != m.Epoch() {
				t.Errorf("node %s knows of epoch %d, not %d", s.ID, w.announced[s.ID], m.Epoch())
			}
		}
	})
}

func (w *world) current() *worldLock {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lock
}

func (w *world) held() bool { return w.current().Held() }
