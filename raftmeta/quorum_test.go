package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/raftmeta/api"
)

// TestNoStaleReadFromOldAnswers shows why verification uses the time of the request. The answers to
// the old leader's heartbeats are delayed. Meanwhile the others elect another leader, which
// acknowledges a write. Then a read is sent to the old leader, and the answers arrive. The test
// also checks that raft's own rule counts them as votes; otherwise it would prove nothing.
func TestNoStaleReadFromOldAnswers(t *testing.T) {
	c := newCluster(t, 3, func(_ string, c *Config) {
		// The old leader must not step down before the answers arrive.
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLease = 5*time.Second, 5*time.Second, 5*time.Second
	})
	for range 10 {
		if fooled := oldAnswers(t, c); fooled {
			return
		}
		// The machine was too slow: the connections were given up.
	}
	t.Error("raft's own rule was never fooled")
}

// oldAnswers reports whether raft's own verification succeeded at a leader that had already been
// superseded.
func oldAnswers(t *testing.T, c *cluster) bool {
	c.set("/f", "old")
	old := c.leader()
	var others []*Group
	for _, id := range c.ids() {
		if g := c.group(id); g != old {
			others = append(others, g)
			c.mesh.set(id, old.cfg.ID, true)
		}
	}
	defer c.mesh.healAll()
	before := old.raft.VerifyLeader() // makes raft send heartbeats
	time.Sleep(30 * time.Millisecond)
	for _, g := range others {
		c.mesh.set(old.cfg.ID, g.cfg.ID, true)
	}
	if _, err := others[0].trans.dispatch(&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3}}, nil); err != nil {
		t.Fatal(err)
	}
	next := c.leader(old.cfg.ID)
	if _, err := next.Set(t.Context(), "/f", []byte("new"), api.AnyGeneration); err != nil {
		t.Log(err)
		return false
	}
	after := old.raft.VerifyLeader()
	read := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		f, err := old.Get(ctx, "/f")
		if err == nil {
			err = fmt.Errorf("the old leader read %q", f.Data)
		} else if errors.Is(err, ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		read <- err
	}()
	time.Sleep(10 * time.Millisecond)
	for _, g := range others {
		c.mesh.set(g.cfg.ID, old.cfg.ID, false)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	c.mesh.healAll()
	// It continues, and still believes that it leads.
	if f, err := old.Get(short(t, 300*time.Millisecond), "/f"); err == nil && string(f.Data) != "new" {
		t.Errorf("the old leader, resumed, read %q", f.Data)
	}
	return before.Error() == nil && after.Error() == nil
}

// TestVerifyCountsRequests records answers to requests from before and after the start of the
// verification, and of other terms.
func TestVerifyCountsRequests(t *testing.T) {
	c := newContacts()
	v0 := time.Now()
	others := []string{"a", "b", "c", "d"}
	check := func(what string, want int, wantLater bool) {
		t.Helper()
		if n, later := c.since(v0, 5, others); n != want || later != wantLater {
			t.Errorf("%s: %d, %v", what, n, later)
		}
	}
	check("nothing", 0, false)
	c.answered("a", v0.Add(-time.Nanosecond), 5)
	check("asked before", 0, false)
	c.answered("a", v0, 5)
	check("asked then", 1, false)
	c.answered("a", v0.Add(-time.Second), 5)
	check("an older answer comes in later", 1, false)
	c.answered("b", v0.Add(time.Second), 4)
	check("one that is behind", 2, false)
	c.answered("x", v0.Add(time.Second), 5)
	check("one that has no vote", 2, false)
	c.answered("c", v0.Add(time.Second), 6)
	check("a later term", 2, true)
}
