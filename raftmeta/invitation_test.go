package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/storage"
)

// interruptedLog is a log that calls stored after each message of entries that it stored.
type interruptedLog struct {
	storage.Backend
	stored func()
}

func (l interruptedLog) StoreLogs(logs []*raft.Log) error {
	err := l.Backend.StoreLogs(logs)
	l.stored()
	return err
}

// TestReaddedServer (RM24) removes the server that founded the group, and adds it again with an empty
// log. The first message of entries has only configurations that name it as the only voter, and no
// other message arrives for a while. It must not lead, also after a restart.
func TestReaddedServer(t *testing.T) {
	c := newCluster(t, 1, nil)
	setMany(t, c.leader(), 2*entriesPerWrite)
	for _, id := range []string{"n2", "n3"} {
		c.open(id)
		c.join(id)
	}
	removeFounder(t, c)
	c.set("/acknowledged", "x")

	invitation, err := c.leader().Invite(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	var cut sync.Once
	c.config = func(id string, cfg *Config) {
		cfg.Join, cfg.Invitation = true, invitation
		cfg.OpenLog = func(file string) (storage.Backend, error) {
			b, err := storage.OpenBolt(file)
			return interruptedLog{b, func() { cut.Do(func() { c.isolate("n1", true) }) }}, err
		}
	}
	n1 := c.open("n1")
	if err := c.leader().AddNonvoter(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 has the first entries", func() bool { return n1.raft.LastIndex() > 0 })
	alone := func() {
		t.Helper()
		if servers := n1.raft.GetConfiguration().Configuration().Servers; len(servers) != 1 {
			t.Fatalf("n1 knows the servers %v, want itself", servers)
		}
		time.Sleep(6 * testHeartbeat)
		if leads, _ := n1.Leads(); leads {
			_, err := n1.Set(t.Context(), "/alone", []byte("y"), api.AnyGeneration)
			t.Errorf("n1 leads in term %d with entries up to %d; change: %v", n1.raft.CurrentTerm(), n1.raft.LastIndex(), err)
		}
	}
	alone()
	if id, _ := n1.Leader(); id != "" {
		t.Errorf("without contact, %q leads", id)
	}
	c.kill("n1")
	n1 = c.open("n1")
	alone()

	c.mesh.healAll()
	c.join("n1")
	c.same()
	f, err := c.leader().Get(t.Context(), "/acknowledged")
	if err != nil || string(f.Data) != "x" {
		t.Errorf("the acknowledged file is %q, %v", f.Data, err)
	}
	// It votes and leads from now on.
	eventually(t, "n1 leads", func() bool {
		_ = c.leader().TransferLeadership(short(t, 2*time.Second), "n1")
		return c.leader() == n1
	})
	c.set("/f", "z")
}

// setMany writes n files.
func setMany(t *testing.T, g *Group, n int) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := g.Set(t.Context(), file(uint64(i)), nil, api.AnyGeneration); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// removeFounder removes n1 from the group, and deletes its data directory.
func removeFounder(t *testing.T, c *cluster) {
	if err := c.leader().TransferLeadership(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 is removed", func() bool { return c.leader("n1").Remove(t.Context(), "n1") == nil })
	if id := <-c.removed; id != "n1" {
		t.Fatalf("%s was removed", id)
	}
	c.kill("n1")
	if err := os.RemoveAll(c.dirs["n1"]); err != nil {
		t.Fatal(err)
	}
}

// TestInvitedServer (RM24): a server votes for no candidate, calls no election and follows no leader of
// an earlier term, until it has the entry of its latest invitation.
func TestInvitedServer(t *testing.T) {
	l := newScriptedLeader(t)
	for _, i := range []Invitation{{Index: 30, Term: 5}, {Index: 20, Term: 5}, {Index: 40, Term: 4}} {
		if err := l.n2.Invited(i); err != nil {
			t.Fatal(err)
		}
	}
	only := func(index, term uint64) *raft.Log { return members(index, term, "n2") }
	entries := append([]*raft.Log{only(1, 1)}, commands(1, 2, 10)...)
	early := &raft.AppendEntriesRequest{RPCHeader: headerOf("n1"), Term: 4, Entries: entries}
	if err := l.trans.AppendEntries("n2", "n2", early, new(raft.AppendEntriesResponse)); err == nil {
		t.Error("entries of an earlier leader were accepted")
	}
	if err := l.install(4, 40, 4, snapshotOf(t, 4, 40)); err == nil {
		t.Error("a snapshot of an earlier leader was accepted")
	}
	if term, err := l.trans.term("n2"); term != 5 || err != nil {
		t.Errorf("an earlier leader learns term %d, %v", term, err)
	}
	l.mustAppend(5, 0, 0, 0, entries)
	refuses := func() {
		t.Helper()
		if err := l.requestVote(6, 99, 5); err == nil || !strings.Contains(err.Error(), errInvited.Error()) {
			t.Errorf("n2 answers a request for its vote: %v", err)
		}
		if err := l.trans.TimeoutNow("n2", "n2", &raft.TimeoutNowRequest{}, new(raft.TimeoutNowResponse)); err == nil {
			t.Error("n2 accepts the leadership")
		}
		time.Sleep(4 * testHeartbeat)
		if s, term := l.n2.raft.State(), l.n2.raft.CurrentTerm(); s != raft.Follower || term != 5 {
			t.Errorf("n2 is %v in term %d", s, term)
		}
	}
	refuses()
	l.restart()
	refuses()
	// An entry with the index, but another term, is not that of the invitation.
	l.mustAppend(5, 10, 1, 0, commands(1, 11, 35))
	refuses()
	l.mustAppend(5, 10, 1, 0, commands(5, 11, 30))
	eventually(t, "n2 leads", func() bool { return l.n2.raft.State() == raft.Leader })
	l.restart()
	eventually(t, "n2 leads", func() bool { return l.n2.raft.State() == raft.Leader })
	if err := l.n2.Invited(Invitation{Index: 30, Term: 5}); err != nil || l.n2.raft.State() != raft.Leader {
		t.Errorf("repeated: %v", err)
	}
}

// requestVote asks n2 for its vote for n1.
func (l *scriptedLeader) requestVote(term, last, lastTerm uint64) error {
	var resp raft.RequestVoteResponse
	r := &raft.RequestVoteRequest{RPCHeader: headerOf("n1"), Term: term, LastLogIndex: last, LastLogTerm: lastTerm, LeadershipTransfer: true}
	if err := l.trans.RequestVote("n2", "n2", r, &resp); err != nil {
		return err
	}
	if !resp.Granted {
		return errors.New("no vote")
	}
	return nil
}

// TestInvitationCoveredBySnapshot (RM24): a snapshot that covers the entry of the invitation counts as
// the entry.
func TestInvitationCoveredBySnapshot(t *testing.T) {
	for _, last := range []uint64{29, 30} {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			l := newScriptedLeader(t)
			if err := l.n2.Invited(Invitation{Index: 30, Term: 1}); err != nil {
				t.Fatal(err)
			}
			if err := l.install(2, last, 1, snapshotOf(t, 1, last)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if last == 30 {
					eventually(t, "n2 votes", func() bool { return l.n2.invited.pending.Load() == nil })
				} else if time.Sleep(2 * testHeartbeat); l.n2.invited.pending.Load() == nil {
					t.Error("n2 votes")
				}
				l.restart()
			}
		})
	}
}

// TestRecoverInvitedServer: a server that is not allowed to vote yet can found the group again, even if
// an old configuration names it as the only voter.
func TestRecoverInvitedServer(t *testing.T) {
	l := newScriptedLeader(t)
	if err := l.n2.Invited(Invitation{Index: 30, Term: 5}); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(5, 0, 0, 10, append([]*raft.Log{members(1, 1, "n2")}, commands(1, 2, 10)...))
	l.c.kill("n2")
	cfg := Config{Dir: l.c.dirs["n2"], ID: "n2"}
	r, err := Recover(t.Context(), cfg)
	if err != nil || r.LastIndex != 10 {
		t.Fatalf("recovered %+v, %v", r, err)
	}
	if _, err := Recover(t.Context(), cfg); !errors.Is(err, ErrOnlyVoter) {
		t.Errorf("recovered twice: %v", err)
	}
	g, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.WaitReady(short(t, 20*time.Second)), g.Close()); err != nil {
		t.Error(err)
	}
}

// TestInvite: only the leader invites, only servers that are not members, and only once the latest
// configuration is committed.
func TestInvite(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	i, err := l.Invite(t.Context(), "n4")
	if term := l.raft.CurrentTerm(); err != nil || i.Term != term || !l.store.Holds(storage.EntryID(i)) {
		t.Errorf("invitation %+v in term %d, %v", i, term, err)
	}
	if _, err := l.Invite(t.Context(), "n2"); !errors.Is(err, ErrMember) {
		t.Errorf("a member: %v", err)
	}
	for _, id := range c.ids() {
		if g := c.group(id); g != l {
			if _, err := g.Invite(t.Context(), "n4"); !errors.As(err, new(*NotLeaderError)) {
				t.Errorf("by %s: %v", id, err)
			}
		}
	}
	// A configuration that is not committed.
	l.members.mu.Lock()
	l.members.mu.latest.index += 1000
	l.members.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), testHeartbeat)
	defer cancel()
	if _, err := l.Invite(ctx, "n4"); !errors.Is(err, ErrChanging) {
		t.Errorf("during a change: %v", err)
	}
}

// TestReaddedServerIsNotKnown: nothing that the leader knows about a former member counts when it is
// added again, as how far its log got.
func TestReaddedServerIsNotKnown(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	id := l.changer.successor()
	c.kill(id)
	eventually(t, id+" is removed", func() bool { return l.Remove(t.Context(), id) == nil })
	if err := l.AddNonvoter(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Members() {
		if m.ID == id && (m.Contact >= 0 || m.Match != 0) {
			t.Errorf("it has answered %v ago, and has entries up to %d", m.Contact, m.Match)
		}
	}
}

// TestPromoteWithLatestConfiguration: a server does not get a vote before it has the configuration
// that names it, without which it may not vote.
func TestPromoteWithLatestConfiguration(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	c.open("n2")
	if err := l.AddNonvoter(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n2 has the log", func() bool { return l.changer.behind("n2") == nil })
	match := l.changer.list()[1].Match
	l.members.mu.Lock()
	latest := l.members.mu.latest.index
	l.members.mu.latest.index = match + 1
	l.members.mu.Unlock()
	if err := l.Promote(short(t, testHeartbeat), "n2"); !errors.Is(err, ErrBehind) {
		t.Errorf("promoted: %v", err)
	}
	l.members.mu.Lock()
	l.members.mu.latest.index = latest
	l.members.mu.Unlock()
	if err := l.Promote(t.Context(), "n2"); err != nil {
		t.Error(err)
	}
}
