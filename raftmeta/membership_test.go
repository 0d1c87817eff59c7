package raftmeta

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
)

// members returns a configuration with these voters as a log entry.
func members(index, term uint64, ids ...string) *raft.Log {
	var c raft.Configuration
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	return &raft.Log{Index: index, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}
}

// TestMembersAfterTruncation replaces an uncommitted configuration by another one at a smaller
// index, as a later leader does.
func TestMembersAfterTruncation(t *testing.T) {
	var m membership
	bolt, err := storage.OpenBolt(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bolt.Close() })
	open := func() *storage.Log {
		return storage.NewLog(bolt, storage.LogOptions{StallTimeout: func() time.Duration { return time.Minute }, OnFail: func(err error) { t.Error(err) }, Members: &m})
	}
	s := open()
	store := func(logs ...*raft.Log) {
		t.Helper()
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	latest := func(index uint64, ids ...string) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		var got []string
		for _, s := range m.mu.latest.servers {
			got = append(got, string(s.ID))
		}
		if m.mu.latest.index != index || fmt.Sprint(got) != fmt.Sprint(ids) || m.several.Load() != (len(ids) > 1) {
			t.Errorf("latest is %q at %d, not %q at %d", got, m.mu.latest.index, ids, index)
		}
	}
	store(members(1, 1, "n1"), &raft.Log{Index: 2, Term: 1, Type: raft.LogNoop}, members(3, 1, "n1", "n2"), &raft.Log{Index: 4, Term: 1, Type: raft.LogNoop}, members(5, 1, "n1", "n2", "n3"))
	m.commit(1, []raft.Server{{ID: "n1", Address: "n1"}})
	latest(5, "n1", "n2", "n3")
	if err := s.DeleteRange(4, 5); err != nil {
		t.Fatal(err)
	}
	// Entry 3 is committed, because entry 5 was made after it, although it has not been applied
	// here.
	latest(3, "n1", "n2")
	store(members(4, 2, "n1", "n2", "n4"))
	latest(4, "n1", "n2", "n4")
	if ok, _ := m.isMember("n4"); !ok {
		t.Error("n4 may not vote")
	}
	if ok, _ := m.isMember("n3"); ok {
		t.Error("n3 may vote")
	}
	// Neither compaction nor reading old entries changes the latest configuration.
	if err := s.DeleteRange(1, 2); err != nil {
		t.Fatal(err)
	}
	if err := open().GetLog(3, new(raft.Log)); err != nil {
		t.Fatal(err)
	}
	latest(4, "n1", "n2", "n4")
}

// TestMembersOfASnapshot installs a snapshot with members that are not in the log: their votes are
// accepted from then on.
func TestMembersOfASnapshot(t *testing.T) {
	l := newScriptedLeader(t)
	logs := commands(1, 1, 10)
	logs[0] = members(1, 1, "n3")
	logs[9] = members(10, 1, "n3", "n4") // not committed
	l.mustAppend(1, 0, 0, 9, logs)
	eventually(t, "n1 is no member", func() bool { ok, _ := l.n2.members.isMember("n1"); return !ok })
	if err := l.install(2, 30, 2, snapshotOf(t, 2, 30)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"n1": true, "n2": true, "n3": false, "n4": false} {
		if ok, _ := l.n2.members.isMember(id); ok != want {
			t.Errorf("%s may vote: %v", id, ok)
		}
	}
	l.mustAppend(2, 30, 2, 31, commands(2, 31, 31))
}
