package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// simChecks watches a simulation. It sees each command the moment it is
// committed, whichever server knows of it then, and looks into the clients.
type simChecks struct {
	sim *sim
	mu  struct {
		sync.Mutex
		failures []string
		// delays has until when, in true time, each lock may not be had.
		delays  map[string]time.Time
		guarded map[string]uint64 // the last lock generation of a guarded write
	}
	// What happened, to show that it did.
	cached, invalidated, expired, closed, delayed, acquired, writes atomic.Int64
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

// observe is the observer of the truth: called with sim.mu held, at the moment
// of a commit.
func (k *simChecks) observe(changes []change) {
	for _, c := range changes {
		switch c.kind {
		case contentsChanged, aclChanged:
			k.noCopy(c.path)
			k.guardedWrite(c.path)
		case sessionEnded:
			k.sessionOver(c.session)
		case lockDelayed:
			k.delayed.Add(1)
			k.mu.Lock()
			// The leader's clock may be fast.
			until := time.Now().Add(time.Duration(float64(c.duration) / (1 + api.ClockDrift)))
			if until.After(k.mu.delays[c.path]) {
				k.mu.delays[c.path] = until
			}
			k.mu.Unlock()
		case lockFreed:
			k.mu.Lock()
			if left := time.Until(k.mu.delays[c.path]); left > time.Microsecond {
				k.failures("%s was freed %v before the end of its lock-delay", c.path, left)
			}
			k.mu.Unlock()
		case lockAcquired:
			k.acquired.Add(1)
		}
	}
}

func (k *simChecks) failures(format string, args ...any) {
	if len(k.mu.failures) < 5 {
		k.mu.failures = append(k.mu.failures, fmt.Sprintf(format, args...))
	}
}

// noCopy: when a change of a file commits, nobody answers it from a cache.
func (k *simChecks) noCopy(path string) {
	for _, c := range k.sim.clients {
		c.mu.Lock()
		for _, p := range c.cachedPathsLocked() {
			if p == path {
				k.fail("%s changed while client %d had it in its cache", path, c.id)
			}
		}
		c.mu.Unlock()
	}
}

// guardedWrite: what a third party accepts under a lock comes from its holders
// in turn.
func (k *simChecks) guardedWrite(path string) {
	n := k.sim.mu.truth.mu.ns.get(path) // no command is being applied
	if n == nil || len(path) < 8 || path[:8] != "/guarded" {
		return
	}
	q, err := api.ParseSequencer(string(n.data))
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

// sessionOver: when a session ends its client believes in it no more, and its
// ephemeral files have gone.
func (k *simChecks) sessionOver(id api.SessionID) {
	k.expired.Add(1)
	for _, c := range k.sim.clients {
		c.mu.Lock()
		if c.mu.session == id && c.believesLocked() {
			k.fail("session %d of client %d ended %v before its belief", id, c.id, c.mu.until-c.clock.Now())
		}
		c.mu.Unlock()
	}
	k.sim.mu.truth.mu.ns.nodes.Ascend(func(n *node) bool {
		if n.ephemeral == id {
			k.fail("%s is there after session %d ended", n.path, id)
		}
		return true
	})
}

// lockBelief has the locks compared soon; the caller holds its client's lock.
func (k *simChecks) lockBelief(c *simClient) {
	k.sim.wg.Go(k.compareLocks)
}

// compareLocks: at most one client believes to hold a lock, or all share it.
func (k *simChecks) compareLocks() {
	for _, c := range k.sim.clients {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	for _, path := range simLocks {
		holders, exclusive := 0, false
		for _, c := range k.sim.clients {
			if g, ok := c.holdsLocked(path); ok {
				holders++
				exclusive = exclusive || g.Sequencer.Mode == api.Exclusive
			}
		}
		if exclusive && holders > 1 {
			k.fail("%d clients believe that they hold %s", holders, path)
		}
	}
}

// writeMax is the longest that a write may take while the leader stays: the
// longest lease by the slowest clock, and delays of the network and the log.
const writeMax = 4500*time.Millisecond*106/100 + 3*time.Second

// wrote checks that a write did not wait for dead clients longer than it may.
func (k *simChecks) wrote(began time.Time, elections int64, err error) {
	k.writes.Add(1)
	if took := time.Since(began); took > writeMax && k.sim.elections.Load() == elections && !errors.Is(err, context.DeadlineExceeded) {
		k.fail("a write took %v", took)
	}
}

// loop compares all the time.
func (k *simChecks) loop() {
	for sleep(k.sim.ctx, 20*time.Millisecond) {
		k.compareLocks()
	}
}

// simulate runs one schedule.
func simulate(t *testing.T, seed uint64, length time.Duration, broken rules) *simChecks {
	var checks *simChecks
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		v := newSim(ctx, seed, broken)
		v.wg.Wait()
		checks = v.checks
	})
	return checks
}

const simLength = 40 * time.Second

// TestSimulation runs schedules of leaders that come and go, clocks that
// drift, messages that are late, lost and doubled, and clients that stop and
// die.
func TestSimulation(t *testing.T) {
	seed := testSeed(t)
	runs := uint64(60)
	if os.Getenv("STELE_SOAK") != "" {
		runs = 5000
	}
	var sum [6]int64
	for run := range runs {
		k := simulate(t, seed+run, simLength, rules{})
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
		if n < int64(runs)/2 {
			t.Errorf("only %d of kind %d in %d runs", n, i, runs)
		}
	}
}

// TestSimulationFinds breaks one rule at a time: the checks must find it.
func TestSimulationFinds(t *testing.T) {
	for name, broken := range map[string]rules{
		"lease counted from the answer":  {leaseFromAnswer: true},
		"write does not wait for caches": {noWait: true},
		"no grace after failover":        {noGrace: true},
		"no verification":                {noVerify: true},
		"cache outlives the lease":       {keepCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			seed := testSeed(t)
			for run := range uint64(400) {
				if k := simulate(t, seed+run, simLength, broken); len(k.mu.failures) > 0 {
					t.Logf("run %d: %s", run, k.mu.failures[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}
