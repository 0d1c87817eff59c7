package raftmeta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/api"
)

// TestKillRestart kills servers, the leader first, and restarts them at other addresses, finally
// all of them.
func TestKillRestart(t *testing.T) {
	c := newCluster(t, 5, nil)
	written := 0
	write := func() { written++; c.set(fmt.Sprintf("/f%d", written), fmt.Sprint(written)) }
	write()
	first := c.leader().cfg.ID
	c.kill(first)
	write()
	second := c.leader().cfg.ID
	c.kill(second)
	write()
	c.open(first)
	c.open(second)
	write()
	all := c.ids()
	for _, id := range all {
		c.kill(id)
	}
	for _, id := range all {
		c.open(id)
	}
	write()
	l := c.leader()
	for i := 1; i <= written; i++ {
		if f, err := l.Get(t.Context(), fmt.Sprintf("/f%d", i)); err != nil || string(f.Data) != fmt.Sprint(i) {
			t.Errorf("file %d: %+v, %v", i, f, err)
		}
	}
	c.same()
}

// TestOneWayPartition cuts only one direction: a leader that receives nothing, or whose messages
// are lost, is replaced. A follower in that state does not depose the leader.
func TestOneWayPartition(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		c := newCluster(t, 3, nil)
		c.set("/f", "x")
		l := c.leader()
		cut := func(id string, cut bool) {
			for _, other := range c.ids() {
				switch {
				case other == id:
				case deaf:
					c.mesh.set(other, id, cut)
				default:
					c.mesh.set(id, other, cut)
				}
			}
		}
		cut(l.cfg.ID, true)
		next := c.leader(l.cfg.ID)
		if _, err := next.Set(t.Context(), "/f", []byte("y"), api.AnyGeneration); err != nil {
			t.Error(err)
		}
		c.mesh.healAll()
		c.same()
		c.close()
		c.groups, c.dirs = map[string]*Group{}, map[string]string{}
	}
}

// TestSnapshotReachesALaggingVoter restarts a voter after the others have compacted their logs.
func TestSnapshotReachesALaggingVoter(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.set("/f", "x")
	l := c.leader()
	id := "n1"
	if l.cfg.ID == id {
		id = "n2"
	}
	c.kill(id)
	var wg sync.WaitGroup
	for w := range 40 {
		wg.Go(func() {
			for i := range 50 {
				mustSet(t, l, fmt.Sprintf("/d%d/f%d", w, i), "x", api.AnyGeneration)
			}
		})
	}
	wg.Wait()
	for _, id := range c.ids() {
		if err := c.group(id).raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	g := c.open(id)
	c.same()
	old, err := filepath.Glob(filepath.Join(c.dirs[id], storage.SnapshotsName, "*"+storage.SnapshotSuffix))
	if err != nil || len(old) == 0 {
		t.Errorf("no snapshot came: %v", err)
	}
	if ids, err := g.snaps.IDs(); err != nil || len(ids) == 0 {
		t.Errorf("no snapshot came: %v, %v", ids, err)
	}
	// It can lead from there.
	eventually(t, "it leads", func() bool {
		l := c.leader()
		return l == g || l.TransferLeadership(t.Context(), id) != nil && false
	})
	c.set("/last", "x")
	c.same()
}

// TestSnapshotThenCrash starts a server that crashed after it got a snapshot from the leader, and
// before its log, which ends earlier, was deleted.
func TestSnapshotThenCrash(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.same()
	l := c.leader()
	id := "n1"
	if l.cfg.ID == id {
		id = "n2"
	}
	c.kill(id)
	for i := range 30 {
		c.set(fmt.Sprintf("/f%d", i), "x")
	}
	if err := l.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	copyFiles(t, filepath.Join(c.dirs[l.cfg.ID], storage.SnapshotsName), filepath.Join(c.dirs[id], storage.SnapshotsName))
	c.open(id)
	c.set("/last", "x")
	c.same()
}

// copyFiles copies the files of a directory.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			copyFiles(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoverLostMajority recovers a group of three from one data directory.
func TestRecoverLostMajority(t *testing.T) {
	c := newCluster(t, 3, nil)
	for i := range 30 {
		c.set(fmt.Sprintf("/d/f%d", i), "x")
	}
	if err := c.leader().raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.set("/after", "y")
	c.same()
	last := c.leader().raft.LastIndex()
	id := c.leader().cfg.ID
	for _, id := range c.ids() {
		c.kill(id)
	}
	cfg := Config{Dir: c.dirs[id], ID: id}
	if _, err := Recover(t.Context(), Config{Dir: c.dirs[id], ID: "n9"}); !errors.Is(err, ErrWrongServer) {
		t.Errorf("as another: %v", err)
	}
	before := filepath.Join(t.TempDir(), "before")
	copyFiles(t, cfg.Dir, before)
	seen, err := Inspect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Recover(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	verifyFolder(t, cfg.Dir)
	if seen.LastIndex != r.LastIndex || seen.LastTerm != r.LastTerm || !slices.Equal(seen.Voters, r.Voters) {
		t.Errorf("seen before as %+v", seen)
	}
	if r.Server != id || r.LastIndex < last || len(r.Voters) != 2 || len(r.Nonvoters) != 0 || r.Files != 31 {
		t.Errorf("report %+v", r)
	}
	if _, err := Recover(t.Context(), cfg); !errors.Is(err, ErrNothingToRecover) || !errors.Is(err, ErrOnlyVoter) {
		t.Errorf("again: %v", err)
	}
	// A crash before the snapshot has its name leaves a voter of three. A crash after it leaves a
	// single voter, whatever remains of the log.
	if _, err := Open(Config{Dir: before, ID: id}); !errors.Is(err, ErrNoStreams) {
		t.Errorf("before: %v", err)
	}
	copyFiles(t, filepath.Join(cfg.Dir, storage.SnapshotsName), filepath.Join(before, storage.SnapshotsName))
	for _, dir := range []string{cfg.Dir, before} {
		g := openGroup(t, Config{Dir: dir, ID: id})
		for i := range 30 {
			if _, err := g.Get(t.Context(), fmt.Sprintf("/d/f%d", i)); err != nil {
				t.Error(err)
			}
		}
		if f, err := g.Get(t.Context(), "/after"); err != nil || string(f.Data) != "y" {
			t.Errorf("got %+v, %v", f, err)
		}
		mustSet(t, g, "/new", "z", 0)
		if voters := g.Stats().Voters; voters != 1 {
			t.Errorf("%d voters", voters)
		}
	}
}
