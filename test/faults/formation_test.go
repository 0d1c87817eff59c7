package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// mark writes a file that must exist from then on.
func mark(t *testing.T, lib *session.Client, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recoverTime)
	defer cancel()
	if _, err := lib.Set(ctx, "/faults/mark", []byte(value), api.AnyGeneration, api.SetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func marked(t *testing.T, lib *session.Client, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recoverTime)
	defer cancel()
	f, err := lib.Get(ctx, "/faults/mark")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.Data, []byte(value)) {
		t.Errorf("the file has %q, want %q", f.Data, value)
	}
}

// TestFormation starts five nodes one after the other, the founder last, cuts their power together,
// and restarts them at other addresses.
func TestFormation(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5)
	c.prepare()
	for _, n := range c.nodes[1:] {
		n.start()
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	for _, n := range c.nodes[1:] {
		if s, err := n.status(); err == nil && s.Ready {
			t.Errorf("%v serves before the cluster is founded: %+v", n, s)
		}
	}
	c.nodes[0].start()
	c.settled(60*time.Second, 5)
	mark(t, c.service(), "formed")

	t.Log("power cut of all nodes, restart without flags")
	for _, n := range c.nodes {
		n.kill()
		n.args = nil
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.settled(60*time.Second, 5)
	marked(t, c.service(), "formed")
	if testing.Short() {
		c.stopAll()
		return
	}

	t.Log("stop of all nodes, restart at other addresses with one address each to join")
	for _, n := range c.nodes {
		n.stop()
	}
	c.lab.Renumber(c.lab.Hosts()...)
	for i, n := range c.nodes {
		n.args = []string{"--join", c.nodes[(i+1)%len(c.nodes)].address()}
		n.start()
	}
	c.settled(60*time.Second, 5)
	marked(t, c.service(), "formed")

	t.Log("restart without flags: nodes remember the new addresses")
	for _, n := range c.nodes {
		n.kill()
		n.args = nil
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.settled(60*time.Second, 5)
	marked(t, c.service(), "formed")
	c.stopAll()
}

// TestForeignNode lets a node of another cluster try to join: each side rejects the other. A node
// of the cluster with a different gossip key receives the cluster's key.
func TestForeignNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	home, other, wrongKey := c.nodes[0], c.nodes[1], c.nodes[2]
	c.keys = c.secure(home, wrongKey)
	c.secure(other)
	if err := os.WriteFile(filepath.Join(wrongKey.keyFolder(), "gossip.key"), []byte(strings.Repeat("2", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{home, other} {
		n.start()
		if err := await(30*time.Second, func() error {
			if s, err := n.status(); err != nil || !s.Ready {
				return fmt.Errorf("%v is not a cluster of one: %+v %w", n, s, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	other.stop()
	for _, n := range []*node{other, wrongKey} {
		n.args = []string{"--join", home.address()}
		n.start()
	}
	other.shouldRun = false // it may exit
	// Each side logs one rejection, with the peer and the reason.
	for _, refusal := range []struct {
		by      *node
		peer    string
		what    string
		because string
	}{
		{other, home.address(), "peer certificate not accepted", "certificate is of another cluster"},
		{home, other.host.String(), "connection rejected", "bad certificate"},
	} {
		if err := await(30*time.Second, func() error {
			lines := 0
			for line := range strings.Lines(refusal.by.log()) {
				if strings.Contains(line, refusal.what) && strings.Contains(line, refusal.peer) && strings.Contains(line, refusal.because) {
					lines++
				}
			}
			if lines != 1 {
				return fmt.Errorf("%v logs %d times that it rejects %s because of %q, want once", refusal.by, lines, refusal.peer, refusal.because)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if err := await(60*time.Second, func() error {
		for _, n := range []*node{home, wrongKey} {
			if s, err := n.status(); err != nil || s.Nodes != 2 || s.NodesAlive != 2 || !s.Ready {
				return fmt.Errorf("%v is not ready among two nodes: %+v %w", n, s, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	key := func(n *node) string {
		b, err := os.ReadFile(filepath.Join(n.keyFolder(), "gossip.key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if key(wrongKey) != key(home) {
		t.Error("a node that had another gossip key has not received the cluster's")
	}
	if s, err := other.status(); err == nil && s.Ready && s.Cluster == c.clusterOf(home) {
		t.Errorf("%v is of the cluster", other)
	}
	other.kill()
	wrongKey.stop()
	home.stop()
	c.checkLogs()
}

func (c *cluster) clusterOf(n *node) string {
	c.t.Helper()
	s, err := n.status()
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Cluster
}

// TestVoterReplacement loses a voter permanently: the sixth node takes its place, and the lost one,
// once it is back, is not a voter.
func TestVoterReplacement(t *testing.T) {
	t.Parallel()
	c := formed(t, 6)
	lib := c.service()
	mark(t, lib, "before")
	votes := func() (all map[string]bool) {
		all = map[string]bool{}
		for _, n := range c.nodes {
			if !n.shouldRun {
				continue
			}
			if r, err := n.raft(); err == nil {
				for _, x := range r.Servers {
					if x.Voter {
						all[x.ID] = true
					}
				}
				return all
			}
		}
		return all
	}
	before := votes()
	var lost, spare *node
	for _, n := range c.nodes {
		switch s, err := n.status(); {
		case err != nil:
			t.Fatal(err)
		case !before[n.id]:
			spare = n
		case !s.Leader:
			lost = n
		}
	}
	if spare == nil || lost == nil {
		t.Fatalf("of 6 nodes %d vote", len(before))
	}
	start := time.Now()
	lost.kill()
	err := await(60*time.Second, func() error {
		if now := votes(); !now[spare.id] || now[lost.id] || len(now) != 5 {
			return fmt.Errorf("voters are %v, want %s in place of %s", now, spare.id, lost.id)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("voter replaced after %v", time.Since(start).Round(100*time.Millisecond))
	c.settled(30*time.Second, 5)
	marked(t, lib, "before")
	mark(t, lib, "after")
	lost.start()
	c.settled(60*time.Second, 5)
	if now := votes(); now[lost.id] || !now[spare.id] {
		t.Errorf("voters are %v after %s came back", now, lost.id)
	}
	if err := await(10*time.Second, func() error {
		s, err := lost.status()
		if err == nil && s.Voter {
			err = fmt.Errorf("%v still considers itself a voter", lost)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	// Two more of the five may fail now.
	var gone []*node
	for _, n := range c.nodes {
		if n != lost && n != c.leader() && len(gone) < 2 {
			n.kill()
			gone = append(gone, n)
		}
	}
	marked(t, lib, "after")
	mark(t, lib, "end")
	for _, n := range gone {
		n.start()
	}
	// A node may have become a voter in place of a failed one.
	if err := await(60*time.Second, func() error { return c.unsettled(5) }); err != nil {
		t.Error(err)
	}
	if r, err := lost.raft(); err != nil || r.Leader == "" {
		t.Errorf("a node that does not vote reports %+v (%v)", r, err)
	} else if len(r.Servers) > 5 {
		t.Errorf("%d servers", len(r.Servers))
	}
	c.stopAll()
}

// TestStartInOutage disconnects a node while it starts, for longer than its session lives: it
// waits, and serves afterwards. The lock of its last run is still held when it starts, so it is
// disconnected while it waits for that.
func TestStartInOutage(t *testing.T) {
	t.Parallel()
	c := formed(t, 3)
	l := c.leader()
	if l == nil {
		t.Fatal("no leader")
	}
	n := c.nodes[0]
	if n == l {
		n = c.nodes[1]
	}
	n.kill()
	n.start()
	if err := await(20*time.Second, func() error {
		if s, err := n.status(); err != nil || !strings.Contains(s.Reason, "server file") {
			return fmt.Errorf("%v does not wait for its lock: %+v %w", n, s, err)
		}
		return nil
	}); err != nil {
		t.Log(err) // it already has it: it may be disconnected a little later
	}
	c.lab.Isolate(n.host)
	time.Sleep(8 * time.Second)
	c.lab.Heal()
	c.settled(30*time.Second, 3)
	c.stopAll()
}
