package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// simUser is a client as the checks see it.
type simUser interface {
	run()
	// believes reports whether the client relies on that session, caches whether it would answer a
	// file from its cache, and holds in which mode it considers a lock held, zero if not.
	believes(api.SessionID) bool
	caches(path string) bool
	holds(path string) api.Mode
}

// simChecks checks a simulation. It sees each command at its commit, before any server may know of
// it, and inspects the clients.
type simChecks struct {
	sim *sim
	mu  struct {
		sync.Mutex
		failures []string
		// delays has the true time until which each lock must not be granted.
		delays  map[string]time.Time
		guarded map[string]uint64 // the last lock generation of a guarded write
	}
	// Counters that show that the schedule covered these cases.
	cached, expired, delayed, acquired, writes atomic.Int64
}

func newSimChecks(v *sim) *simChecks {
	k := &simChecks{sim: v}
	k.mu.delays = map[string]time.Time{}
	k.mu.guarded = map[string]uint64{}
	return k
}

func (k *simChecks) fail(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.failures) < 5 {
		k.mu.failures = append(k.mu.failures, fmt.Sprintf(format, args...))
	}
}

// observe is the observer of the truth. It is called at the moment of a commit, with sim.mu held.
func (k *simChecks) observe(changes []fsm.Change) {
	for _, c := range changes {
		switch c.Kind {
		case fsm.ContentsChanged, fsm.ACLChanged:
			k.noCopy(c.Path)
			k.guardedWrite(c.Path)
		case fsm.SessionEnded:
			k.sessionOver(c.Session)
		case fsm.LockDelayed:
			k.delayed.Add(1)
			k.mu.Lock()
			// The leader's clock may be fast.
			until := time.Now().Add(time.Duration(float64(c.Duration) / (1 + api.ClockDrift)))
			if until.After(k.mu.delays[c.Path]) {
				k.mu.delays[c.Path] = until
			}
			k.mu.Unlock()
		case fsm.LockFreed:
			k.mu.Lock()
			if left := time.Until(k.mu.delays[c.Path]); left > time.Microsecond {
				k.failures("%s was freed %v before the end of its lock-delay", c.Path, left)
			}
			k.mu.Unlock()
		case fsm.LockAcquired:
			k.acquired.Add(1)
		}
	}
}

func (k *simChecks) failures(format string, args ...any) {
	if len(k.mu.failures) < 5 {
		k.mu.failures = append(k.mu.failures, fmt.Sprintf(format, args...))
	}
}

// noCopy checks that no client answers a file from its cache when a change of it commits.
func (k *simChecks) noCopy(path string) {
	for i, c := range k.sim.clients {
		if c.caches(path) {
			k.fail("%s changed while client %d had it in its cache", path, i)
		}
	}
}

// guardedWrite checks that a third party accepts writes under a lock in the order of its holders.
func (k *simChecks) guardedWrite(path string) {
	var n *fsm.Node
	k.sim.mu.truth.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Get(path) })
	if n == nil || len(path) < 8 || path[:8] != "/guarded" {
		return
	}
	q, err := api.ParseSequencer(string(n.Data))
	if err != nil {
		k.fail("%s: %v", path, err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.LockGeneration < k.mu.guarded[path] {
		k.failures("%s: lock generation %d after %d", path, q.LockGeneration, k.mu.guarded[path])
	}
	k.mu.guarded[path] = q.LockGeneration
}

// sessionOver checks that the client of an ended session no longer relies on it, and that its
// ephemeral files are deleted.
func (k *simChecks) sessionOver(id api.SessionID) {
	k.expired.Add(1)
	for i, c := range k.sim.clients {
		if c.believes(id) {
			k.fail("session %d ended while client %d believed in it", id, i)
		}
	}
	k.sim.mu.truth.View(func(ns *fsm.Namespace, _ uint64) {
		var walk func(dir *fsm.Node)
		walk = func(dir *fsm.Node) {
			for _, v := range ns.Children(dir) {
				if v.Node.Ephemeral == id {
					k.fail("%s is there after session %d ended", v.Node.Path, id)
				}
				if v.Node.Dir {
					walk(v.Node)
				}
			}
		}
		walk(ns.Get("/"))
	})
}

// compareLocks checks that at most one client considers a lock held, unless all share it.
func (k *simChecks) compareLocks() {
	for _, path := range simLocks {
		for i, a := range k.sim.clients {
			for j, b := range k.sim.clients {
				first, second := a.holds(path), b.holds(path)
				// Time stands still meanwhile; if it is a's still, it was when b's was.
				if i != j && first != 0 && second != 0 && a.holds(path) == first && (first == api.Exclusive || second == api.Exclusive) {
					k.fail("clients %d and %d believe that they hold %s", i, j, path)
				}
			}
		}
	}
}

// writeMax bounds the duration of a write while the leader stays: the longest lease by the slowest
// clock, and delays of the network and the log.
const writeMax = 4500*time.Millisecond*106/100 + 3*time.Second

// wrote checks that a write did not wait for dead clients for too long.
func (k *simChecks) wrote(began time.Time, elections int64, err error) {
	k.writes.Add(1)
	if took := time.Since(began); took > writeMax && k.sim.elections.Load() == elections && !errors.Is(err, context.DeadlineExceeded) {
		k.fail("a write took %v", took)
	}
}

// loop runs compareLocks continuously.
func (k *simChecks) loop() {
	for sleep(k.sim.ctx, 20*time.Millisecond) {
		k.compareLocks()
	}
}

// simulate runs one schedule.
func simulate(t *testing.T, seed uint64, length time.Duration, broken rules, client func(*sim, int, *rand.Rand) simUser) *simChecks {
	var checks *simChecks
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		v := newSim(ctx, seed, broken, client)
		v.wg.Wait()
		checks = v.checks
	})
	return checks
}

const simLength = 40 * time.Second

// TestSimulation runs schedules with changing leaders, drifting clocks, delayed, lost and
// duplicated messages, and clients that pause and die.
func TestSimulation(t *testing.T) {
	simulateMany(t, 40, newSimClient)
}

// TestSimulationOfSessions is TestSimulation with clients that use package session.
func TestSimulationOfSessions(t *testing.T) {
	simulateMany(t, 30, newSimSession)
}

func simulateMany(t *testing.T, runs uint64, client func(*sim, int, *rand.Rand) simUser) {
	seed := testseed.New(t)
	if os.Getenv("STELE_SOAK") != "" {
		runs *= 100
	}
	var sum [6]int64
	for run := range runs {
		k := simulate(t, seed+run, simLength, rules{}, client)
		for _, f := range k.mu.failures {
			t.Errorf("run %d: %s", run, f)
		}
		if t.Failed() {
			return
		}
		for i, n := range []*atomic.Int64{&k.cached, &k.expired, &k.delayed, &k.acquired, &k.writes, &k.sim.elections} {
			sum[i] += n.Load()
		}
	}
	t.Logf("%d cached, %d sessions ended, %d lock-delays, %d locks taken, %d writes, %d elections", sum[0], sum[1], sum[2], sum[3], sum[4], sum[5])
	for i, n := range sum {
		if n < int64(runs)/4 {
			t.Errorf("only %d of kind %d in %d runs", n, i, runs)
		}
	}
}

// TestSimulationFinds violates one rule at a time: the checks must find it.
func TestSimulationFinds(t *testing.T) {
	for name, broken := range map[string]rules{
		"lease counted from the answer":  {leaseFromAnswer: true},
		"write does not wait for caches": {noWait: true},
		"no grace after failover":        {noGrace: true},
		"no verification":                {noVerify: true},
		"cache outlives the lease":       {keepCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			seed := testseed.New(t)
			for run := range uint64(400) {
				if k := simulate(t, seed+run, simLength, broken, newSimClient); len(k.mu.failures) > 0 {
					t.Logf("run %d: %s", run, k.mu.failures[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}
