package raftmeta

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/api"
)

// storeHook calls a function after entries were stored.
type storeHook struct {
	storage.Backend
	stored func()
}

func (b *storeHook) StoreLogs(logs []*raft.Log) error {
	err := b.Backend.StoreLogs(logs)
	b.stored()
	return err
}

// compacted creates a group of one whose log begins after its newest snapshot, so that every
// further server gets the snapshot. It returns the leader.
func compacted(t *testing.T, c *cluster) *Group {
	t.Helper()
	l := c.leader()
	for i := range 30 {
		c.set(fmt.Sprintf("/d/f%d", i), "x")
	}
	if err := l.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := l.store.DeleteRange(1, l.raft.LastIndex()); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAnswerLostThenLeaderDies loses the first answer of a follower after a snapshot installation,
// and then the leader. The others must continue.
func TestAnswerLostThenLeaderDies(t *testing.T) {
	var lose sync.Once
	var c *cluster
	c = newCluster(t, 1, func(id string, cfg *Config) {
		if id != "n3" {
			return
		}
		cfg.OpenLog = wrapBolt(func(b storage.Backend) storage.Backend {
			return &storeHook{b, func() {
				lose.Do(func() {
					trans := c.group("n3").trans
					trans.mu.Lock()
					defer trans.mu.Unlock()
					for _, conn := range trans.mu.conns {
						_ = conn.Close()
					}
				})
			}}
		})
	})
	compacted(t, c)
	for _, id := range []string{"n2", "n3"} {
		c.open(id)
		c.join(id)
	}
	c.set("/after", "y")
	c.kill("n1")
	c.set("/last", "z")
	c.same()
	for _, path := range []string{"/d/f29", "/after", "/last"} {
		if _, err := c.leader().Get(t.Context(), path); err != nil {
			t.Error(err)
		}
	}
}

// flipBit flips one bit of a file.
func flipBit(t *testing.T, file string, at int64) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 0x10
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCorruptSnapshotIsNotSent flips a bit of the leader's snapshot, in its header and in its
// stream, before two servers join that need it. The leader writes a new snapshot, and no server
// installs the corrupt one.
func TestCorruptSnapshotIsNotSent(t *testing.T) {
	for _, at := range []int64{30, -60, -1} {
		c := newCluster(t, 1, nil)
		l := compacted(t, c)
		damaged := snapshotFiles(t, c.dirs["n1"])
		flipBit(t, damaged[0], at)
		for _, id := range []string{"n2", "n3"} {
			c.open(id)
			c.join(id)
		}
		c.set("/after", "y")
		c.same()
		if files := snapshotFiles(t, c.dirs["n1"]); len(files) != 1 || files[0] == damaged[0] {
			t.Errorf("the leader has %q, of which %q was damaged", files, damaged)
		}
		for _, id := range []string{"n2", "n3", l.cfg.ID} {
			c.kill(id)
			verifyFolder(t, c.dirs[id])
			c.open(id)
		}
		c.set("/last", "z")
		c.same()
		c.close()
		c.groups, c.dirs = map[string]*Group{}, map[string]string{}
	}
}

// TestInstallRejectsCorruptStream sends a follower streams that are corrupt or truncated. None gets its
// final name, and the follower's state is unchanged.
func TestInstallRejectsCorruptStream(t *testing.T) {
	l := newScriptedLeader(t)
	if err := l.install(1, 8, 1, snapshotOf(t, 1, 8)); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(1, 8, 1, 12, commands(1, 9, 12))
	l.has(12)
	whole := snapshotOf(t, 1, 30)
	for i := 0; i < len(whole); i += 37 {
		bad := bytes.Clone(whole)
		bad[i] ^= 4
		if err := l.install(1, 30, 1, bad); err == nil {
			t.Errorf("byte %d changed: installed", i)
		}
	}
	if err := l.install(1, 30, 1, whole[:len(whole)-10]); err == nil {
		t.Error("installed a part")
	}
	if err := l.install(1, 30, 1, append(bytes.Clone(whole), 0)); err == nil {
		t.Error("installed with a byte after it")
	}
	if files := snapshotFiles(t, l.c.dirs["n2"]); len(files) != 1 {
		t.Errorf("it has %q", files)
	}
	l.mustAppend(1, 12, 1, 13, commands(1, 13, 13))
	l.has(13)
	l.restart()
	if err := l.install(1, 30, 1, whole); err != nil {
		t.Error(err)
	}
	l.has(30)
}

// TestOldSnapshotMayBeDamaged corrupts a snapshot that is not the newest. Verify reports it, and
// the server starts without it.
func TestOldSnapshotMayBeDamaged(t *testing.T) {
	for _, at := range []int64{12, -3} {
		dir := t.TempDir()
		g, err := Open(Config{Dir: dir, ID: "n1"})
		if err == nil {
			err = g.WaitReady(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustSet(t, g, "/f", "x", api.AnyGeneration)
			if err := g.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		files := snapshotFiles(t, dir)
		if len(files) != 2 {
			t.Fatalf("snapshots %q", files)
		}
		flipBit(t, files[0], at)
		var problems []error
		if err := Verify(t.Context(), nil, dir, nil, func(p error) { problems = append(problems, p) }); err != nil || len(problems) != 1 {
			t.Errorf("verify: %v, %v", problems, err)
		}
		g, err = Open(Config{Dir: dir, ID: "n1"})
		if err != nil {
			t.Errorf("byte %d changed: %v", at, err)
			continue
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLogOutlivesADamagedSnapshot starts a server with a corrupt snapshot from the leader and its
// log from before: the log is kept.
func TestLogOutlivesADamagedSnapshot(t *testing.T) {
	l := newScriptedLeader(t)
	if err := l.install(1, 8, 1, snapshotOf(t, 1, 8)); err != nil {
		t.Fatal(err)
	}
	l.mustAppend(1, 8, 1, 12, commands(1, 9, 12))
	l.has(12)
	dir := l.c.dirs["n2"]
	s := l.n2.snaps
	l.c.kill("n2")
	sink, err := s.Create(1, 30, 1, scriptedMembers, 1, nil)
	if err == nil {
		_, err = sink.Write(snapshotOf(t, 1, 30))
	}
	if err = errors.Join(err, sink.Close()); err != nil {
		t.Fatal(err)
	}
	newest := snapshotFiles(t, dir)[1]
	flipBit(t, newest, -3)
	var bad *CorruptError
	if _, err := Open(Config{Dir: dir, ID: "n2", Streams: l.c.mesh.streams("n2")}); !errors.As(err, &bad) || bad.File != newest {
		t.Errorf("open: %v", err)
	}
	sum, problems, err := storage.CheckLog(vfs.OS(), filepath.Join(dir, storage.LogName))
	if err != nil || len(problems) != 0 || sum.First != 9 || sum.Last != 12 {
		t.Errorf("log from %d to %d, %v, %v", sum.First, sum.Last, problems, err)
	}
	flipBit(t, newest, -3)
	l.n2 = l.c.open("n2")
	l.has(30)
}
