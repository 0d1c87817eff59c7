package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/raftmeta/api"
)

// The tests in this file run a group with the timeouts of production in virtual
// time. Only the mesh, the disks and the timeouts take time, so a busy machine
// changes nothing.

// timedBolt is a log store whose writes take time.
type timedBolt struct {
	storage.Backend
	// pause is called before each write.
	pause atomic.Pointer[func()]
}

func (b *timedBolt) wait() {
	if f := b.pause.Load(); f != nil {
		(*f)()
	}
}

func (b *timedBolt) StoreLogs(logs []*raft.Log) error { b.wait(); return b.Backend.StoreLogs(logs) }
func (b *timedBolt) Set(key, value []byte) error      { b.wait(); return b.Backend.Set(key, value) }

// newTimedCluster returns a group of n voters with the default timeouts, and the log store of each.
func newTimedCluster(t *testing.T, n int) (*cluster, map[string]*timedBolt) {
	t.Helper()
	disks := map[string]*timedBolt{}
	c := newCluster(t, n, func(id string, c *Config) {
		c.HeartbeatTimeout, c.CommitTimeout = 0, 0
		c.OpenLog = wrapBolt(func(b storage.Backend) storage.Backend {
			disks[id] = &timedBolt{Backend: b}
			return disks[id]
		})
	})
	return c, disks
}

// TestStalledLeaderIsReplaced hangs the disk of a leader: another server leads within 5 s and has
// every acknowledged write, although the process of the old leader keeps running.
func TestStalledLeaderIsReplaced(t *testing.T) {
	for range 5 { // the voters draw other timeouts each time
		synctest.Test(t, stallLeader)
	}
}

func stallLeader(t *testing.T) {
	c, disks := newTimedCluster(t, 3)
	for i := range 20 {
		c.set(fmt.Sprintf("/f%d", i), "x")
	}
	old := c.leader()
	release := make(chan struct{})
	defer close(release)
	hang := func() {
		<-release
		runtime.Goexit() // the write never returns; the goroutine must not outlive the test
	}
	disks[old.cfg.ID].pause.Store(&hang)
	start := time.Now()
	lost := make(chan error, 1)
	go func() {
		_, err := old.Set(t.Context(), "/lost", nil, api.AnyGeneration)
		lost <- err
	}()
	next := c.leader(old.cfg.ID)
	if _, err := next.Set(t.Context(), "/g", []byte("y"), api.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("another server leads after %v", took)
	}
	for i := range 20 {
		if f, err := next.Get(t.Context(), fmt.Sprintf("/f%d", i)); err != nil || string(f.Data) != "x" {
			t.Errorf("file %d: %+v, %v", i, f, err)
		}
	}
	if err := <-lost; !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("the write that hung: %v", err)
	}
	if err := <-c.fatal; !errors.Is(err, ErrStalled) {
		t.Errorf("OnFatal got %v", err)
	}
}

const (
	// loadDelayMax is the most that a message takes under load. A server whose
	// cores are all busy runs a goroutine up to 80 ms late: eight others, 10 ms
	// each. A message waits for two of them, the one that sends it and the one
	// that receives it.
	loadDelayMax = 180 * time.Millisecond
	// loadWriteMax is the most that a write of the log takes under load: four
	// heartbeat timeouts, and less than the stall timeout.
	loadWriteMax = 2 * time.Second
)

// TestNoElectionUnderLoad keeps the servers, the network and the disks of a
// group busy: no server calls an election, and the leader does not step down.
// STELE_SOAK multiplies the time.
func TestNoElectionUnderLoad(t *testing.T) {
	length := time.Minute
	if n, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil {
		length *= time.Duration(n)
	}
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		c, disks := newTimedCluster(t, 3)
		c.set("/f", "x")
		c.same()
		l := c.leader()
		_, term := l.Leader()
		changes := make(chan string, 16)
		for _, id := range c.ids() {
			watchState(c.group(id), changes)
		}
		written := loadGroup(t.Context(), c, l, disks, seed, length)
		if written < 100 {
			t.Errorf("only %d writes were acknowledged: there was no load", written)
		}
		for len(changes) > 0 {
			t.Error(<-changes)
		}
		for _, id := range c.ids() {
			if leader, now := c.group(id).Leader(); leader != l.cfg.ID || now != term {
				t.Errorf("%s: %q leads in term %d, not %s in %d", id, leader, now, l.cfg.ID, term)
			}
		}
	})
}

// watchState reports each change of raft's state: a follower that becomes a
// candidate calls an election, even if no server votes for it.
func watchState(g *Group, changes chan<- string) {
	g.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if state, ok := o.Data.(raft.RaftState); ok {
			select {
			case changes <- fmt.Sprintf("%s became %v", g.cfg.ID, state):
			default:
			}
		}
		return false
	}))
}

// loadGroup has clients write to the leader l for that long while each message
// and each write of a log takes a random time. It returns the number of
// acknowledged writes.
func loadGroup(ctx context.Context, c *cluster, l *Group, disks map[string]*timedBolt, seed uint64, length time.Duration) int64 {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	for i, id := range c.ids() {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		disk := rand.New(rand.NewPCG(seed, uint64(100+i))) // raft's main goroutine alone writes
		pause := func() { time.Sleep(time.Duration(disk.Int64N(int64(loadWriteMax)))) }
		disks[id].pause.Store(&pause)
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, to := range c.ids() {
					c.mesh.slow(id, to, time.Duration(rng.Int64N(int64(loadDelayMax))))
				}
				time.Sleep(time.Duration(rng.Int64N(int64(loadDelayMax))))
			}
		})
	}
	var written atomic.Int64
	for w := range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := l.Set(ctx, fmt.Sprintf("/load%d", w), nil, api.AnyGeneration); err != nil {
					return // the load is over, or the leader has stepped down
				}
				written.Add(1)
			}
		})
	}
	wg.Wait()
	for _, d := range disks {
		d.pause.Store(nil)
	}
	c.mesh.healAll()
	return written.Load()
}
