package node_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// form starts n nodes that form one cluster, of three voters.
func form(t *testing.T, n int, changes ...func(*node.Config)) *testCluster {
	f := newTestCluster(t, n)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = n, f.addrs[:2]
		for _, change := range changes {
			change(&f.cfgs[i])
		}
	}
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	return f
}

// TestRecoveryOfALivingGroup: an operator recovers a voter though the others live on.
// They keep what they have acknowledged, and the voter becomes one of them again (RM3).
func TestRecoveryOfALivingGroup(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := form(t, 3)
	s := f.await(0, "three voters", votersAlive(3))
	behind := 0
	for f.cfgs[behind].Name == s.LeaderName {
		behind++
	}
	f.stop(behind)
	locks, err := session.NewClient(session.Config{Locator: session.Addresses{f.addrs[(behind+1)%3], f.addrs[(behind+2)%3]}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.Set(ctx, "/acked", []byte("yes"), 0, metaapi.SetOptions{}); err != nil {
		t.Fatal(err)
	}

	folders, err := identity.Inspect(f.cfgs[behind].DataDirs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raftmeta.Recover(ctx, raftmeta.Config{Dir: folders.RaftDir(), ID: folders.Node}); err != nil {
		t.Fatal(err)
	}
	if err := folders.SetRaftEpoch(folders.RaftEpoch + 1); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := f.open(short, behind); err == nil || !strings.Contains(err.Error(), "still runs without it") {
		t.Fatalf("the recovered node starts with %v", err)
	}
	f.start(behind)
	f.await((behind+1)%3, "three voters again", votersAlive(3))
	if file, err := locks.Get(ctx, "/acked"); err != nil || string(file.Data) != "yes" {
		t.Errorf("what was acknowledged is %q, %v", file.Data, err)
	}
}

// TestForgedCommands: commands of a node that is not the master change nothing, and the master's commands are accepted after them (I9, I11).
func TestForgedCommands(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, addr := range f.addrs {
		conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, sequencer := range []string{"exclusive:1:1099511627776:/master", "exclusive:1:1099511627776:/other", "shared:1:9:/master", "", "nonsense"} {
			for _, method := range []string{"cluster.hail", "cluster.start_voting"} {
				err := conn.Call(ctx, method, func(e *wire.Encoder) {
					e.Array(3)
					e.Str("evil")
					e.Str(sequencer)
					e.Uint(999)
				}, nil)
				if err == nil {
					t.Errorf("%s with sequencer %q is obeyed", method, sequencer)
				}
			}
		}
	}
	s := f.await(0, "three voters and their master", votersAlive(3))
	if s.RaftEpoch != 0 || s.Master == "evil" {
		t.Errorf("%+v", s)
	}
	f.stop(2)
	f.await(0, "one has left", func(s *client.RaftStatus) bool {
		for _, x := range s.Servers {
			if !x.Alive && x.State == api.NodeLeft {
				return true
			}
		}
		return false
	})
	f.start(2)
	f.await(0, "three voters again", votersAlive(3))
}

// TestCopiedFolders: a copy of a node's folders, started beside it, is refused: two
// processes with one vote would undo Raft's promises.
func TestCopiedFolders(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	f.stop(2)
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(f.cfgs[2].DataDirs[0])); err != nil {
		t.Fatal(err)
	}
	f.start(2)
	f.await(0, "three voters again", votersAlive(3))
	cfg := f.cfgs[2]
	cfg.DataDirs, cfg.Listen = []string{folder}, "127.0.0.1:0"
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	n, err := node.Start(ctx, cfg)
	if err == nil {
		_ = n.Close(ctx)
		t.Fatal("the copy serves")
	}
	if !strings.Contains(err.Error(), "another process serves as this node") {
		t.Errorf("the copy is refused with %v", err)
	}
	f.await(0, "three voters all the same", votersAlive(3))
}
