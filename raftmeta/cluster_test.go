package raftmeta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// testHeartbeat is the heartbeat timeout of test clusters: short for fast tests, but long enough
// for a busy machine.
const testHeartbeat = 150 * time.Millisecond

// cluster is a group of several servers in this process.
type cluster struct {
	tb   testing.TB
	mesh *mesh
	root string
	// config changes the configuration of server id before it is opened.
	config func(id string, c *Config)
	mu     sync.Mutex
	groups map[string]*Group
	dirs   map[string]string
	// fatal receives the errors passed to OnFatal.
	fatal chan error
	// removed receives the ids of servers whose OnRemoved was called.
	removed chan string
}

// newCluster creates a group of n voters, n1 to nN.
func newCluster(tb testing.TB, n int, config func(id string, c *Config)) *cluster {
	tb.Helper()
	c := &cluster{
		tb: tb, mesh: newMesh(), root: tb.TempDir(), config: config, groups: map[string]*Group{}, dirs: map[string]string{},
		fatal: make(chan error, 16), removed: make(chan string, 16),
	}
	tb.Cleanup(c.close)
	for i := range n {
		c.open(fmt.Sprint("n", i+1))
	}
	for i := 1; i < n; i++ {
		c.join(fmt.Sprint("n", i+1))
	}
	return c
}

// open opens server id; all but n1 wait to be added.
func (c *cluster) open(id string) *Group {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs[id] == "" {
		c.dirs[id] = filepath.Join(c.root, id)
	}
	cfg := Config{
		Dir: c.dirs[id], ID: id, Join: id != "n1", Streams: c.mesh.streams(id),
		HeartbeatTimeout: testHeartbeat, CommitTimeout: 20 * time.Millisecond,
		OnFatal:   func(err error) { c.fatal <- err },
		OnRemoved: func() { c.removed <- id },
		AddressOf: func(id string) string { return id + ".test" },
	}
	if c.config != nil {
		c.config(id, &cfg)
	}
	g, err := Open(cfg)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.groups[id] = g
	return g
}

// join makes server id a voter.
func (c *cluster) join(id string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		l := c.leader()
		err := l.AddNonvoter(ctx, id)
		if err == nil {
			err = l.Promote(ctx, id)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil || !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrOutcomeUnknown) {
			c.tb.Fatal(err)
		}
	}
}

// kill stops server id as if its process had been killed: its connections close at once.
func (c *cluster) kill(id string) {
	c.tb.Helper()
	c.mu.Lock()
	g := c.groups[id]
	delete(c.groups, id)
	c.mu.Unlock()
	_ = g.trans.disconnect()
	if err := g.Close(); err != nil {
		c.tb.Errorf("close %s: %v", id, err)
	}
}

func (c *cluster) group(id string) *Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[id]
}

func (c *cluster) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id := range c.groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// leader waits for a server, not in except, that leads and knows it.
func (c *cluster) leader(except ...string) *Group {
	c.tb.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		for _, id := range c.ids() {
			g := c.group(id)
			if g == nil || slices.Contains(except, id) {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), testHeartbeat)
			_, err := g.verifier.verify(ctx)
			cancel()
			if err == nil {
				return g
			}
		}
		if time.Now().After(deadline) {
			c.tb.Fatal("no leader")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// set writes a file through any leader until the write is acknowledged.
func (c *cluster) set(path, data string) {
	c.tb.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := c.leader().Set(ctx, path, []byte(data), api.AnyGeneration)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			c.tb.Fatal(err)
		}
	}
}

// same waits until every server has applied everything that the leader has.
func (c *cluster) same() {
	c.tb.Helper()
	l := c.leader()
	var want uint64
	l.machine.View(func(_ *fsm.Namespace, applied uint64) { want = applied })
	for _, id := range c.ids() {
		g := c.group(id)
		eventually(c.tb, id+" has applied all", func() bool {
			var got uint64
			g.machine.View(func(_ *fsm.Namespace, applied uint64) { got = applied })
			return got >= want
		})
		sameState(c.tb, l.machine, g.machine)
	}
}

// isolate partitions a server from all others, or heals the partition.
func (c *cluster) isolate(id string, cut bool) {
	for _, other := range c.ids() {
		if other != id {
			c.mesh.both(id, other, cut)
		}
	}
}

func (c *cluster) close() {
	c.mesh.healAll()
	var wg sync.WaitGroup
	for _, id := range c.ids() {
		g := c.group(id)
		wg.Go(func() {
			if err := g.Close(); err != nil && g.failure.Load() == nil {
				c.tb.Errorf("close %s: %v", id, err)
			}
		})
	}
	wg.Wait()
	for id, dir := range c.dirs {
		if g := c.groups[id]; g == nil || g.failure.Load() == nil {
			verifyFolder(c.tb, dir)
		}
	}
	select {
	case err := <-c.fatal:
		c.tb.Errorf("fatal: %v", err)
	default:
	}
}

// eventually waits until f is true.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not so: %s", what)
		}
	}
}

// stateOf returns the snapshot of a machine, as if it had applied nothing, and verifies it.
func stateOf(tb testing.TB, m *fsm.Machine) []byte {
	tb.Helper()
	var b bytes.Buffer
	m.View(func(ns *fsm.Namespace, _ uint64) {
		if err := fsm.WriteSnapshot(&b, ns, 0); err != nil {
			tb.Fatal(err)
		}
	})
	if _, _, err := fsm.ReadSnapshot(bytes.NewReader(b.Bytes())); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// sameState fails the test unless a and b have the same namespace.
func sameState(tb testing.TB, a, b *fsm.Machine) {
	tb.Helper()
	if !bytes.Equal(stateOf(tb, a), stateOf(tb, b)) {
		tb.Error("the namespaces differ")
	}
}
