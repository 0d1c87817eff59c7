package raftmeta

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/raftmeta/api"
)

// scriptedLeader sends messages of a test's choice to n2, as the leader n1 would.
type scriptedLeader struct {
	t     *testing.T
	c     *cluster
	trans *transport
	n2    *Group
}

// newScriptedLeader opens n2, which has no vote and so calls no election.
func newScriptedLeader(t *testing.T) *scriptedLeader {
	c := newCluster(t, 0, nil)
	trans := newTransport("n1", c.mesh.streams("n1"), slog.New(slog.DiscardHandler), newContacts())
	delete(c.mesh.mu.at, "n1") // it accepts no connections
	t.Cleanup(func() {
		if err := trans.close(); err != nil {
			t.Error(err)
		}
	})
	return &scriptedLeader{t, c, trans, c.open("n2")}
}

var scriptedMembers = raft.Configuration{Servers: []raft.Server{
	{Suffrage: raft.Voter, ID: "n1", Address: "n1"},
	{Suffrage: raft.Nonvoter, ID: "n2", Address: "n2"},
}}

// file is the path that entry index sets in these tests.
func file(index uint64) string { return fmt.Sprintf("/f%d", index) }

// commands returns entries first to last of a term, each of which writes a file.
func commands(term, first, last uint64) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		c := fsm.Command{Op: fsm.OpSet, Path: file(i), Data: fmt.Appendf(nil, "%d in term %d", i, term), Generation: api.AnyGeneration}
		logs = append(logs, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: c.Encode()})
	}
	return logs
}

// append sends entries after prev, which has term prevTerm.
func (l *scriptedLeader) append(term, prev, prevTerm, commit uint64, logs []*raft.Log) raft.AppendEntriesResponse {
	l.t.Helper()
	var resp raft.AppendEntriesResponse
	err := l.trans.AppendEntries("n2", "n2", &raft.AppendEntriesRequest{
		RPCHeader: headerOf("n1"), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: logs, LeaderCommitIndex: commit}, &resp)
	if err != nil {
		l.t.Fatalf("append after %d: %v", prev, err)
	}
	return resp
}

// mustAppend is append, which must succeed.
func (l *scriptedLeader) mustAppend(term, prev, prevTerm, commit uint64, logs []*raft.Log) {
	l.t.Helper()
	if resp := l.append(term, prev, prevTerm, commit, logs); !resp.Success {
		l.t.Fatalf("entries after %d: %+v", prev, resp)
	}
}

// snapshotOf returns the stream of a snapshot of everything that commands writes up to last in a
// term.
func snapshotOf(t *testing.T, term, last uint64) []byte {
	m := fsm.NewMachine(func(err error) { t.Error(err) })
	for _, l := range commands(term, 1, last) {
		m.Apply(fsm.Entry{Index: l.Index, Term: l.Term, Command: l.Data})
	}
	var b bytes.Buffer
	if err := m.Freeze().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// install sends a snapshot that ends with entry index of term entryTerm.
func (l *scriptedLeader) install(term, index, entryTerm uint64, data []byte) error {
	var resp raft.InstallSnapshotResponse
	err := l.trans.InstallSnapshot("n2", "n2", &raft.InstallSnapshotRequest{
		RPCHeader: headerOf("n1"), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: entryTerm,
		Configuration: raft.EncodeConfiguration(scriptedMembers), ConfigurationIndex: 1, Size: int64(len(data)),
	}, &resp, bytes.NewReader(data))
	if err == nil && !resp.Success {
		err = errors.New("not installed")
	}
	return err
}

// has waits until n2 has applied up to last.
func (l *scriptedLeader) has(last uint64) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("n2 has applied entry %d", last), func() bool {
		var applied uint64
		l.n2.machine.View(func(_ *fsm.Namespace, a uint64) { applied = a })
		return applied >= last
	})
	l.n2.machine.View(func(ns *fsm.Namespace, applied uint64) {
		for i := uint64(1); i <= last; i++ {
			if ns.Get(file(i)) == nil {
				l.t.Errorf("with %d applied, %s is missing", applied, file(i))
			}
		}
	})
}

// restart closes n2 and opens it again.
func (l *scriptedLeader) restart() {
	l.t.Helper()
	l.c.kill("n2")
	verifyFolder(l.t, l.c.dirs["n2"])
	l.n2 = l.c.open("n2")
}

// TestAnswerLostAfterInstall repeats the entries that follow an installed snapshot, as a leader
// does after a lost answer. The entry before them is the last one of the snapshot, which is in no
// log.
func TestAnswerLostAfterInstall(t *testing.T) {
	l := newScriptedLeader(t)
	if err := l.install(2, 100, 1, snapshotOf(t, 1, 100)); err != nil {
		t.Fatal(err)
	}
	logs := commands(2, 101, 105)
	l.mustAppend(2, 100, 1, 100, logs)
	l.mustAppend(2, 100, 1, 105, logs)
	l.has(105)
	if resp := l.append(2, 100, 2, 105, logs); resp.Success {
		t.Error("entries after entry 100 of another term were accepted")
	}
	// The same holds after a restart, and with a snapshot of n2's own.
	l.restart()
	l.mustAppend(2, 100, 1, 105, logs)
	l.has(105)
	if err := l.n2.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := l.n2.store.DeleteRange(101, 105); err != nil { // what compaction deletes later
		t.Fatal(err)
	}
	l.mustAppend(2, 105, 2, 106, commands(2, 106, 106))
	l.mustAppend(2, 105, 2, 106, commands(2, 106, 106))
	l.has(106)
}

// TestEntriesBeforeTheSnapshot sends entries from before the end of an installed snapshot: those
// that the snapshot covers count as stored.
func TestEntriesBeforeTheSnapshot(t *testing.T) {
	l := newScriptedLeader(t)
	if err := l.install(2, 20, 1, snapshotOf(t, 1, 20)); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(2, 10, 1, 20, commands(1, 11, 15))
	l.mustAppend(2, 18, 1, 20, nil)
	if last := l.n2.raft.LastIndex(); last != 20 {
		t.Errorf("the log ends at %d", last)
	}
	l.mustAppend(2, 0, 0, 21, append(commands(1, 1, 20), commands(2, 21, 22)...))
	l.has(21)
	if last := l.n2.raft.LastIndex(); last != 22 {
		t.Errorf("the log ends at %d", last)
	}
}

// TestCommitOnlyWhatMatches sends a commit index beyond the entries that a message proves to be the
// leader's. Later entries, from another leader, are not applied.
func TestCommitOnlyWhatMatches(t *testing.T) {
	l := newScriptedLeader(t)
	l.mustAppend(1, 0, 0, 3, commands(1, 1, 10))
	l.has(3)
	l.mustAppend(3, 3, 1, 8, nil)
	l.mustAppend(3, 3, 1, 8, commands(3, 4, 8))
	l.has(8)
	l.n2.machine.View(func(ns *fsm.Namespace, _ uint64) {
		if got := string(ns.Get(file(5)).Data); got != "5 in term 3" {
			t.Errorf("file 5 has %q", got)
		}
	})
}

// TestLateInstall sends snapshots that end before what a follower has, in the
// current term: none takes anything away.
func TestLateInstall(t *testing.T) {
	l := newScriptedLeader(t)
	early := snapshotOf(t, 1, 8)
	if err := l.install(1, 8, 1, early); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(1, 8, 1, 38, commands(1, 9, 38))
	l.has(38)
	l.mustAppend(1, 38, 1, 38, commands(1, 39, 40)) // not committed yet
	for _, index := range []uint64{8, 20, 38, 40} {
		if err := l.install(1, index, 1, snapshotOf(t, 1, index)); err != nil {
			t.Errorf("snapshot %d: %v", index, err)
		}
		if first, _ := l.n2.store.FirstIndex(); first != 9 {
			t.Errorf("after snapshot %d the log begins at %d", index, first)
		}
		if last := l.n2.raft.LastIndex(); last != 40 {
			t.Errorf("after snapshot %d the log ends at %d", index, last)
		}
		l.has(38)
	}
	if ids, err := l.n2.snaps.IDs(); err != nil || len(ids) != 1 {
		t.Errorf("snapshots %q, %v", ids, err)
	}
	l.mustAppend(1, 40, 1, 41, commands(1, 41, 41))
	l.has(41)
	l.restart()
	l.mustAppend(1, 41, 1, 42, commands(1, 42, 42))
	l.has(42)
}

// TestInstallsRace sends the same snapshot twice concurrently, and entries after it.
func TestInstallsRace(t *testing.T) {
	l := newScriptedLeader(t)
	data := snapshotOf(t, 1, 8)
	second := make(chan error, 1)
	r, w := io.Pipe()
	go func() {
		var resp raft.InstallSnapshotResponse
		second <- l.trans.InstallSnapshot("n2", "n2", &raft.InstallSnapshotRequest{
			RPCHeader: headerOf("n1"), SnapshotVersion: 1, Term: 1, LastLogIndex: 8, LastLogTerm: 1,
			Configuration: raft.EncodeConfiguration(scriptedMembers), ConfigurationIndex: 1, Size: int64(len(data)),
		}, &resp, r)
	}()
	// The first bytes are there before the other copy, the rest after it and the
	// entries.
	_, _ = w.Write(data[:10])
	first := make(chan error, 1)
	go func() { first <- l.install(1, 8, 1, data) }()
	_, _ = w.Write(data[10:])
	_ = w.Close()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(1, 8, 1, 20, commands(1, 9, 20))
	l.has(20)
	if ids, err := l.n2.snaps.IDs(); err != nil || len(ids) != 1 {
		t.Errorf("snapshots %q, %v", ids, err)
	}
}

// TestInstallOverConflict sends a snapshot to a follower whose log extends beyond it with entries
// that were never committed. Raft cannot move the end of its log back, so the server stops and
// continues from the snapshot after a restart.
func TestInstallOverConflict(t *testing.T) {
	for _, index := range []uint64{10, 8} { // the log's end, and before it
		l := newScriptedLeader(t)
		l.mustAppend(1, 0, 0, 3, commands(1, 1, 10))
		l.has(3)
		if err := l.install(3, index, 3, snapshotOf(t, 3, index)); err != nil {
			t.Logf("install: %v", err) // the connections may be cut first
		}
		if err := <-l.c.fatal; !errors.Is(err, ErrLogReplaced) {
			t.Fatalf("snapshot %d over a log of 10: %v", index, err)
		}
		l.restart()
		if first, _ := l.n2.store.FirstIndex(); first != 0 {
			t.Errorf("the log begins at %d", first)
		}
		l.mustAppend(3, index, 3, index+2, commands(3, index+1, index+2))
		l.mustAppend(3, index, 3, index+2, commands(3, index+1, index+2))
		l.has(index + 2)
		l.n2.machine.View(func(ns *fsm.Namespace, _ uint64) {
			if got := string(ns.Get(file(5)).Data); got != "5 in term 3" {
				t.Errorf("file 5 has %q", got)
			}
		})
	}
}

// TestRequestBehindInstall sends entries while a snapshot replaces the log. Raft must not receive them: it would apply entries of the old log.
func TestRequestBehindInstall(t *testing.T) {
	l := newScriptedLeader(t)
	l.mustAppend(1, 0, 0, 3, commands(1, 1, 10))
	l.has(3)
	data := snapshotOf(t, 3, 8)
	r, w := io.Pipe()
	installed := make(chan error, 1)
	go func() {
		var resp raft.InstallSnapshotResponse
		installed <- l.trans.InstallSnapshot("n2", "n2", &raft.InstallSnapshotRequest{
			RPCHeader: headerOf("n1"), SnapshotVersion: 1, Term: 3, LastLogIndex: 8, LastLogTerm: 3,
			Configuration: raft.EncodeConfiguration(scriptedMembers), ConfigurationIndex: 1, Size: int64(len(data)),
		}, &resp, r)
	}()
	_, _ = w.Write(data[:10])
	eventually(t, "raft waits for the rest", func() bool {
		l.n2.trans.gate.mu.Lock()
		defer l.n2.trans.gate.mu.Unlock()
		closed := l.n2.trans.gate.mu.closed
		select {
		case <-closed:
			return closed != nil
		default:
			return false
		}
	})
	rejected := make(chan error, 1)
	go func() {
		var resp raft.AppendEntriesResponse
		rejected <- l.trans.AppendEntries("n2", "n2", &raft.AppendEntriesRequest{
			RPCHeader: headerOf("n1"), Term: 3, PrevLogEntry: 10, PrevLogTerm: 1, LeaderCommitIndex: 10}, &resp)
	}()
	if err := <-rejected; err == nil {
		t.Error("entries were accepted while a snapshot was being installed")
	}
	_, _ = w.Write(data[10:])
	_ = w.Close()
	if err := <-l.c.fatal; !errors.Is(err, ErrLogReplaced) {
		t.Fatal(err)
	}
	<-installed // its error is of a connection that may have been cut
	l.restart()
	l.mustAppend(3, 8, 3, 10, commands(3, 9, 10))
	l.has(10)
}

// TestInstallBroken breaks off a snapshot that replaces the log: the server keeps its log, and serves on.
func TestInstallBroken(t *testing.T) {
	l := newScriptedLeader(t)
	l.mustAppend(1, 0, 0, 3, commands(1, 1, 10))
	l.has(3)
	data := snapshotOf(t, 3, 8)
	var resp raft.InstallSnapshotResponse
	if err := l.trans.InstallSnapshot("n2", "n2", &raft.InstallSnapshotRequest{
		RPCHeader: headerOf("n1"), SnapshotVersion: 1, Term: 3, LastLogIndex: 8, LastLogTerm: 3,
		Configuration: raft.EncodeConfiguration(scriptedMembers), ConfigurationIndex: 1, Size: int64(len(data)),
	}, &resp, bytes.NewReader(data[:10])); err == nil {
		t.Error("a part of a snapshot was accepted")
	}
	eventually(t, "entries are accepted again", func() bool {
		var resp raft.AppendEntriesResponse
		err := l.trans.AppendEntries("n2", "n2", &raft.AppendEntriesRequest{
			RPCHeader: headerOf("n1"), Term: 3, PrevLogEntry: 3, PrevLogTerm: 1, Entries: commands(3, 4, 6), LeaderCommitIndex: 6}, &resp)
		return err == nil && resp.Success
	})
	l.has(6)
}

// snapshotFiles returns the paths of the snapshots in a directory, oldest first.
func snapshotFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, storage.SnapshotsName, "*"+storage.SnapshotSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
