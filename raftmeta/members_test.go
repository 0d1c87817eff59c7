package raftmeta

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
)

// TestMembersChange adds, promotes and removes servers.
func TestMembersChange(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	ctx := short(t, 30*time.Second)
	c.open("n4")
	if err := l.AddNonvoter(ctx, "n4"); err != nil {
		t.Fatal(err)
	}
	if err := l.AddNonvoter(ctx, "n4"); err != nil {
		t.Errorf("add again: %v", err)
	}
	if err := l.Promote(ctx, "n9"); !errors.Is(err, ErrNotMember) {
		t.Errorf("promote a non-member: %v", err)
	}
	if err := l.Remove(ctx, "n9"); err != nil {
		t.Errorf("remove a non-member: %v", err)
	}
	if err := l.Remove(ctx, l.cfg.ID); !errors.Is(err, ErrIsLeader) {
		t.Errorf("remove the leader: %v", err)
	}
	if err := l.AddNonvoter(ctx, ""); err == nil {
		t.Error("a server without an id was added")
	}
	if err := l.Promote(ctx, "n4"); err != nil {
		t.Fatal(err)
	}
	members := l.Members()
	if len(members) != 4 || l.Stats().Voters != 4 {
		t.Fatalf("members %+v", members)
	}
	for _, m := range members {
		if !m.Voter || m.Leader != (m.ID == l.cfg.ID) || m.Contact < 0 || m.Contact > time.Minute || m.Match == 0 {
			t.Errorf("member %+v", m)
		}
	}
	victim := "n2"
	if l.cfg.ID == victim {
		victim = "n3"
	}
	if err := l.Remove(ctx, victim); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-c.removed:
		if id != victim {
			t.Errorf("%s was told that it was removed", id)
		}
	case <-ctx.Done():
		t.Fatal("the removed server was not told")
	}
	c.kill(victim)
	c.set("/f", "x")
	// It restarts with its old directory and is notified again, and then as a new server.
	c.open(victim)
	if id := <-c.removed; id != victim {
		t.Errorf("%s was told that it was removed", id)
	}
	c.kill(victim)
	c.mu.Lock()
	c.dirs[victim] += "-new"
	c.mu.Unlock()
	c.open(victim)
	c.join(victim)
	c.same()
	if len(c.removed) != 0 {
		t.Errorf("%s was told that it was removed", <-c.removed)
	}
}

// TestRemovedWhileAway removes a server that does not run. It learns of it when it requests votes.
func TestRemovedWhileAway(t *testing.T) {
	c := newCluster(t, 4, nil)
	l := c.leader()
	id := "n4"
	if l.cfg.ID == id {
		id = "n3"
	}
	c.kill(id)
	if err := l.Remove(short(t, 10*time.Second), id); err != nil {
		t.Fatal(err)
	}
	c.open(id)
	select {
	case got := <-c.removed:
		if got != id {
			t.Errorf("%s was told that it was removed", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the removed server was not told")
	}
}

// TestOnlyMember: a server is the only member of its group if the group has removed all others, not if the group, which has one other, has
// removed it. A server that has not joined any group yet is not.
func TestOnlyMember(t *testing.T) {
	c := newCluster(t, 1, nil)
	one, two := c.leader(), c.open("n2")
	if !one.OnlyMember() || two.OnlyMember() {
		t.Errorf("before n2 is added: n1 is the only member: %t, n2: %t", one.OnlyMember(), two.OnlyMember())
	}
	ctx := short(t, 20*time.Second)
	if err := one.AddNonvoter(ctx, "n2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n2 has both members", func() bool { return len(two.Members()) == 2 })
	if one.OnlyMember() || two.OnlyMember() {
		t.Errorf("while n2 is a member: n1 is the only member: %t, n2: %t", one.OnlyMember(), two.OnlyMember())
	}
	if err := one.Remove(ctx, "n2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n2 has the entry that removes it", func() bool { return len(two.Members()) == 1 })
	if !one.OnlyMember() || two.OnlyMember() {
		t.Errorf("after n2 was removed: n1 is the only member: %t, n2: %t", one.OnlyMember(), two.OnlyMember())
	}
}

// TestNeverBelowQuorum makes changes that would leave too few live voters.
func TestNeverBelowQuorum(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.open("n4")
	l := c.leader()
	ctx := short(t, 20*time.Second)
	if err := l.AddNonvoter(ctx, "n4"); err != nil {
		t.Fatal(err)
	}
	ids := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(id string) bool { return id == l.cfg.ID })
	c.kill(ids[0])
	eventually(t, "the dead one is missed", func() bool { return !l.changer.live(memberOf(l, ids[0])) })
	var q *QuorumError
	if err := l.Remove(ctx, ids[1]); !errors.As(err, &q) || *q != (QuorumError{Voters: 2, Live: 1, Quorum: 2}) || !errors.Is(err, ErrQuorum) {
		t.Errorf("remove a live one: %v", err)
	}
	// Three of four is a quorum, two of three as well.
	if err := l.Promote(ctx, "n4"); err != nil {
		t.Errorf("promote: %v", err)
	}
	if err := l.Remove(ctx, ids[0]); err != nil {
		t.Errorf("remove the dead one: %v", err)
	}
	c.set("/f", "x")
}

// TestTransferToSilentVoter: the error of a transfer to a voter that does not answer names its
// silence, not its last entry.
func TestTransferToSilentVoter(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	id := l.changer.successor()
	c.kill(id)
	eventually(t, "the dead one is missed", func() bool { return !l.changer.live(memberOf(l, id)) })
	var behind *BehindError
	if err := l.TransferLeadership(short(t, 20*time.Second), id); !errors.As(err, &behind) {
		t.Fatalf("transfer to a dead voter: %v", err)
	}
	if want := regexp.MustCompile(`^` + id + ` has not answered for [0-9.]+m?s$`); !want.MatchString(behind.Error()) {
		t.Errorf("error %q does not match %s", behind, want)
	}
}

// memberOf returns a member as g sees it.
func memberOf(g *Group, id string) Member {
	for _, m := range g.Members() {
		if m.ID == id {
			return m
		}
	}
	return Member{ID: id, Contact: -1}
}

func TestBehindErrorText(t *testing.T) {
	for text, e := range map[string]BehindError{
		"n2 has not answered this leader":                 {ID: "n2", Silent: true, Contact: -1},
		"n2 has not answered for 3.21s":                   {ID: "n2", Match: 9, Last: 9, Silent: true, Contact: 3214 * time.Millisecond},
		"n2 has not confirmed a log entry to this leader": {ID: "n2"},
		"n2 has caught up to log entry 7 of 900":          {ID: "n2", Match: 7, Last: 900},
	} {
		if e.Error() != text || !errors.Is(&e, ErrBehind) {
			t.Errorf("error %q, want %q", e.Error(), text)
		}
	}
}

// TestPromoteWaitsForTheLog promotes a server that lacks entries.
func TestPromoteWaitsForTheLog(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	if err := l.AddNonvoter(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	var behind *BehindError
	if err := l.Promote(short(t, 100*time.Millisecond), "n2"); !errors.As(err, &behind) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("promote a server that is not there: %v", err)
	} else if text := "n2 has not answered this leader"; behind.Error() != text {
		t.Errorf("promote a server that is not there: error %q, want %q", behind, text)
	}
	c.open("n2")
	if err := l.Promote(short(t, 20*time.Second), "n2"); err != nil {
		t.Error(err)
	}
}

// TestOneChangeAtATime makes two changes concurrently.
func TestOneChangeAtATime(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	l.changer.changing.Lock()
	if err := l.AddNonvoter(t.Context(), "n4"); !errors.Is(err, ErrChanging) {
		t.Errorf("add during a change: %v", err)
	}
	l.changer.changing.Unlock()
	if err := l.AddNonvoter(t.Context(), "n4"); err != nil {
		t.Error(err)
	}
}

// TestWrongServerAnswers gives one server the address of another: it must not answer messages to
// the other.
func TestWrongServerAnswers(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	others := slices.DeleteFunc(c.ids(), func(id string) bool { return id == l.cfg.ID })
	c.kill(others[0])
	c.mesh.mu.Lock()
	c.mesh.mu.at[others[0]] = c.mesh.mu.at[others[1]]
	c.mesh.mu.Unlock()
	var v raft.RequestVoteResponse
	if err := l.trans.RequestVote(raft.ServerID(others[0]), "", &raft.RequestVoteRequest{}, &v); err == nil {
		t.Error("a server answered for another")
	}
	c.set("/f", "x")
}

// TestJoinIsInitializedOnce restarts a server before a group has added it, and after that.
func TestJoinIsInitializedOnce(t *testing.T) {
	c := newCluster(t, 1, nil)
	for range 2 {
		c.open("n2")
		c.kill("n2")
	}
	c.config = func(id string, cfg *Config) { cfg.Join = false } // a restart needs no flag
	c.open("n2")
	if _, err := Open(Config{Dir: c.dirs["n2"], ID: "n2"}); err == nil {
		t.Error("opened twice")
	}
	c.join("n2")
	c.set("/f", "x")
	c.same()
	c.kill("n2")
	c.open("n2")
	c.set("/f", "y")
	c.same()
	if _, err := Open(Config{Dir: t.TempDir(), ID: "n3", Join: true}); err == nil {
		t.Error("a server without streams waits for a group")
	}
	dir := filepath.Join(t.TempDir(), "x")
	g, err := Open(Config{Dir: dir, ID: "n3", Join: true, Streams: c.mesh.streams("n3")})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	verifyFolder(t, dir)
	if _, err := Open(Config{Dir: dir, ID: "n4", Streams: c.mesh.streams("n4")}); !errors.Is(err, ErrWrongServer) {
		t.Errorf("opened as another: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, storage.LogName)); err != nil {
		t.Error(err)
	}
}
