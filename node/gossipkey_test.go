package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/rollover"
)

// keyTestCluster is a secured cluster of n nodes, of which all run.
func keyTestCluster(t *testing.T, n int, edit func(f *testCluster, i int)) (*testCluster, *transcript) {
	f, log := tokenTestCluster(t, n)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' log:\n%s", log.String())
		}
	})
	f.stop(0)
	for i := range f.cfgs {
		edit(f, i)
	}
	f.start(0)
	f.give(f.token(client.TokenRequest{Uses: int64(n - 1)}).Text, 1)
	f.startAll()
	f.await(0, "all vote", votersAlive(n))
	return f, log
}

// ids returns the ids of these nodes.
func (f *testCluster) ids(nodes ...int) (ids []string) {
	for _, i := range nodes {
		ids = append(ids, f.nodes[i].ID())
	}
	return ids
}

// ringWith is a member of gossip of a node of its own, with these keys. Others join it as they join any.
func ringWith(t *testing.T, cluster, id string, keys [][]byte) *gossip.Ring {
	r := good(gossip.Start(gossip.Config{Self: gossip.Meta{ID: id, Name: id, RPC: "127.0.0.1:1"}, Cluster: cluster, Keys: keys, Bind: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() { r.Close() })
	return r
}

// TestRemovalReplacesGossipKey: after a node was removed, the key that it has is of no use: by it nothing can be heard or sent, and no
// node gives it the new one. A node that was down from before the removal until after the rotation comes back, gets the new key
// and is alive to all. No log and no other file has any key.
func TestRemovalReplacesGossipKey(t *testing.T) {
	t.Parallel()
	f, log := keyTestCluster(t, 5, func(f *testCluster, i int) { f.cfgs[i].RolloverEvery(50 * time.Millisecond) })
	const away, gone = 3, 4
	ctx := within(t, 120*time.Second)
	up := []int{0, 1, 2}
	cluster, removed, id := f.nodes[0].ClusterID(), f.credential(gone), f.nodes[gone].ID()
	old := good(keydir.At(f.cfgs[gone].Security).Load()).GossipKeys
	if len(old) != 1 || !slices.EqualFunc(f.nodes[0].GossipKeys(), old, bytes.Equal) {
		t.Fatal("a new cluster has several gossip keys")
	}
	before := ringWith(t, cluster, "n00before", old)
	if err := before.Join(ctx, []string{f.nodes[0].GossipAddress()}); err != nil {
		t.Fatalf("the key of before is of no use before it is replaced: %v", err)
	}
	eventually(t, "a holder of the key hears of the nodes", func() bool { return len(before.Members()) == 6 })
	before.Close()
	f.stop(away)
	f.stop(gone)
	eventually(t, "the node is removed", func() bool { return f.client(1).Nodes().Remove(ctx, id, true) == nil })
	began := time.Now()
	eventually(t, "the nodes have another gossip key, and no other", func() bool {
		for _, i := range up {
			keys := f.nodes[i].GossipKeys()
			if len(keys) != 1 || bytes.Equal(keys[0], old[0]) || !bytes.Equal(keys[0], f.nodes[0].GossipKeys()[0]) {
				return false
			}
		}
		return true
	})
	t.Logf("all nodes have the new key alone %v after the removal", time.Since(began).Round(10*time.Millisecond))
	now := f.nodes[0].GossipKeys()
	f.start(away)
	up = append(up, away)
	eventually(t, "the node that was away is alive to all, and all are to it", func() bool {
		return !slices.ContainsFunc(up, func(i int) bool { return !f.nodes[i].Sees(f.ids(up...)...) })
	})
	for _, i := range up {
		if kept := good(keydir.At(f.cfgs[i].Security).Load()).GossipKeys; len(kept) != 1 || !bytes.Equal(kept[0], now[0]) {
			t.Errorf("node %d does not have the new gossip key alone on its disk", i)
		}
	}
	testOldKeyIsUseless(t, f, up, old, now)
	want := rollover.IDOfKey(now[0])
	for _, i := range up {
		if _, err := f.ask(removed, f.addrs[i], "security.gossip_key", func(e *wire.Encoder) { e.Array(1); e.Bin(want[:]) }); err == nil {
			t.Errorf("node %d lets a removed node ask for the gossip key", i)
		}
		var refused *rpc.Error
		if key, err := f.nodes[i].GiveGossipKey(ctx, id, want); key != nil || !errors.As(err, &refused) || refused.Code != rpc.CodePermissionDenied {
			t.Errorf("node %d gives a removed node the gossip key: %v", i, err)
		}
		if key, err := f.nodes[i].GiveGossipKey(ctx, f.nodes[0].ID(), want); !bytes.Equal(key, now[0]) {
			t.Errorf("node %d does not give a node the gossip key: %v", i, err)
		}
		expectAbsent(t, log.String(), string(good(os.ReadFile(keydir.At(f.cfgs[i].Security).NodeFile()))), append(now, old...))
	}
	expectNoFileHas(t, f, now[0])
}

// testOldKeyIsUseless has members with the old key of gossip, and for comparison one with the new key, try to join each node.
func testOldKeyIsUseless(t *testing.T, f *testCluster, up []int, old, now [][]byte) {
	t.Helper()
	ctx, cluster := within(t, 60*time.Second), f.nodes[0].ClusterID()
	out, in := ringWith(t, cluster, "n00out", old), ringWith(t, cluster, "n00in", now)
	for _, i := range up {
		if err := out.Join(ctx, []string{f.nodes[i].GossipAddress()}); err == nil {
			t.Errorf("node %d takes a list by the old gossip key", i)
		}
	}
	if err := in.Join(ctx, []string{f.nodes[0].GossipAddress()}); err != nil {
		t.Errorf("the new gossip key: %v", err)
	}
	eventually(t, "a holder of the new key hears of the nodes, and is known to them", func() bool {
		return len(in.Members()) >= len(up)+1 && !slices.ContainsFunc(up, func(i int) bool { return !f.nodes[i].Sees(append(f.ids(up...), "n00in")...) })
	})
	if all := out.Members(); len(all) != 1 {
		t.Errorf("a holder of the old key has heard of %+v", all)
	}
	in.Close()
}

// expectNoFileHas looks for a key in the files of all nodes outside of their folders of keys, as bytes and as text.
func expectNoFileHas(t *testing.T, f *testCluster, key []byte) {
	t.Helper()
	texts := [][]byte{key, fmt.Appendf(nil, "%x", key)}
	for i := range f.cfgs {
		err := filepath.WalkDir(f.cfgs[i].DataDirs[0], func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "gossip.key" {
				return nil // it may be gone
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			for _, text := range texts {
				if bytes.Contains(b, text) {
					t.Errorf("%s has the gossip key", path)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if mode := good(os.Stat(filepath.Join(f.cfgs[i].Security, "gossip.key"))).Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("others may read the gossip key of node %d: %v", i, mode)
		}
	}
}

// TestRotationOutlivesMaster: the master ends in each stage of a rotation of the gossip key, before any other node has done what
// the stage asks. The next master finishes the rotation, and the one that ended has the key when it is back.
func TestRotationOutlivesMaster(t *testing.T) {
	t.Parallel()
	f, _ := keyTestCluster(t, 3, func(f *testCluster, i int) { f.cfgs[i].KeysByHand() })
	ctx := within(t, 240*time.Second)
	for round, c := range []struct {
		what  string
		until func(masterID int, before []byte)
	}{
		{"a key is made of which nothing is written", func(masterID int, _ []byte) {
			if err := f.nodes[masterID].SpareGossipKey(bytes.Repeat([]byte{1}, 32)); err != nil {
				t.Fatal(err)
			}
		}},
		{"install is written", func(masterID int, before []byte) { f.rotateUntil(t, ctx, masterID, before, rollover.Install) }},
		{"use is written", func(masterID int, before []byte) { f.rotateUntil(t, ctx, masterID, before, rollover.Use) }},
		{"retire is written", func(masterID int, before []byte) { f.rotateUntil(t, ctx, masterID, before, rollover.Retire) }},
	} {
		masterID := f.awaitMaster(t)
		before := f.nodes[masterID].GossipKeys()[0]
		// The mark of a node that never was begins a rotation as any does.
		if err := f.nodes[masterID].PutFile(ctx, fmt.Sprintf("/removed/n%016x", round), []byte("x")); err != nil {
			t.Fatal(err)
		}
		c.until(masterID, before)
		f.stop(masterID)
		f.finishRotation(t, ctx, c.what, before)
		f.start(masterID)
		f.finishRotation(t, ctx, c.what+", and the node is back", before)
		all := []int{0, 1, 2}
		eventually(t, c.what+": all nodes are alive to each other", func() bool {
			return !slices.ContainsFunc(all, func(i int) bool { return !f.nodes[i].Sees(f.ids(all...)...) })
		})
		f.await(0, "three voters", votersAlive(3))
	}
}

// awaitMaster returns which node is the master.
func (f *testCluster) awaitMaster(t *testing.T) (masterID int) {
	t.Helper()
	eventually(t, "there is a master", func() bool {
		masterID = slices.IndexFunc(f.nodes, func(n *node.Node) bool { return n != nil && n.IsMaster() })
		return masterID >= 0
	})
	return masterID
}

// rotateUntil makes steps of a rotation, by which the master writes the stage last and does nothing of it.
func (f *testCluster) rotateUntil(t *testing.T, ctx context.Context, masterID int, before []byte, stage rollover.KeyStage) {
	t.Helper()
	eventually(t, "stage "+stage.String(), func() bool {
		if rec, err := f.nodes[masterID].KeyRotation(ctx); err == nil && rec != nil && rec.Stage == stage && rec.New != rollover.IDOfKey(before) {
			return true
		}
		for i := range f.nodes {
			if i != masterID {
				_ = f.nodes[i].StepGossipKey()
			}
		}
		_ = f.nodes[masterID].StepGossipKey()
		return false
	})
}

// finishRotation makes steps of all nodes that run until the rotation is over.
func (f *testCluster) finishRotation(t *testing.T, ctx context.Context, what string, before []byte) {
	t.Helper()
	var last []string
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(last, "\n"))
		}
	}()
	eventually(t, what+": the rotation is over", func() bool {
		last = nil
		var keys [][]byte
		over := true
		for i, n := range f.nodes {
			if n == nil {
				continue
			}
			err := n.StepGossipKey()
			rec, readErr := n.KeyRotation(ctx)
			own := n.GossipKeys()
			last = append(last, fmt.Sprintf("node %d: %v; %+v, %v; %d keys", i, err, rec, readErr, len(own)))
			over = over && err == nil && rec != nil && rec.Stage == rollover.Retire && len(own) == 1 && rollover.IDOfKey(own[0]) == rec.New &&
				!bytes.Equal(own[0], before)
			keys = append(keys, own[0])
		}
		return over && !slices.ContainsFunc(keys, func(k []byte) bool { return !bytes.Equal(k, keys[0]) })
	})
}

// TestOperatorReplacesGossipKey: an administrator has the gossip key replaced, also a second time, and the authority stays.
func TestOperatorReplacesGossipKey(t *testing.T) {
	t.Parallel()
	f, _ := keyTestCluster(t, 2, func(f *testCluster, i int) { f.cfgs[i].RolloverEvery(50 * time.Millisecond) })
	ctx, admin := within(t, 90*time.Second), f.client(1)
	signer := good(admin.Authority().Status(ctx)).Old
	seen := [][]byte{f.nodes[0].GossipKeys()[0]}
	for range 2 {
		if s := good(admin.Authority().RotateGossipKey(ctx)); s.Stage != "none" || s.Old != signer {
			t.Errorf("the authority is being replaced: %+v", s)
		}
		eventually(t, "both nodes have another key alone", func() bool {
			one, two := f.nodes[0].GossipKeys(), f.nodes[1].GossipKeys()
			return len(one) == 1 && len(two) == 1 && bytes.Equal(one[0], two[0]) &&
				!slices.ContainsFunc(seen, func(k []byte) bool { return bytes.Equal(k, one[0]) })
		})
		seen = append(seen, f.nodes[0].GossipKeys()[0])
		eventually(t, "both nodes are alive", func() bool { return f.nodes[0].Sees(f.ids(0, 1)...) && f.nodes[1].Sees(f.ids(0, 1)...) })
	}
	f.stop(1)
	f.start(1)
	eventually(t, "both nodes are alive after a start", func() bool { return f.nodes[0].Sees(f.ids(0, 1)...) && f.nodes[1].Sees(f.ids(0, 1)...) })
}

// TestRemovedMasterMakesNoKey: a master that was itself removed, and has not ended yet, makes no gossip key, which it would have. The
// next master does.
func TestRemovedMasterMakesNoKey(t *testing.T) {
	t.Parallel()
	f, _ := keyTestCluster(t, 3, func(f *testCluster, i int) { f.cfgs[i].KeysByHand() })
	ctx := within(t, 120*time.Second)
	masterID := f.awaitMaster(t)
	id, before := f.nodes[masterID].ID(), f.nodes[masterID].GossipKeys()
	if err := f.nodes[masterID].PutFile(ctx, "/removed/"+id, []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the master knows that it was removed", func() bool {
		select {
		case <-f.nodes[masterID].Done():
			return true
		default:
			return false
		}
	})
	var err error
	eventually(t, "the master looks at the gossip key", func() bool {
		err = f.nodes[masterID].StepGossipKey()
		return err != nil || len(f.nodes[masterID].GossipKeys()) > 1
	})
	if rec, _ := f.nodes[masterID].KeyRotation(ctx); !errors.Is(err, removal.ErrRemoved) || rec != nil || !slices.EqualFunc(f.nodes[masterID].GossipKeys(), before, bytes.Equal) {
		t.Errorf("a removed master has begun a rotation: %+v, %v", rec, err)
	}
	f.stop(masterID)
	f.finishRotation(t, ctx, "the master was removed", before[0])
}

// TestRecoveryHealsGossip: the lock service is recovered from a voter that was down while a node was removed and the gossip key was
// replaced, or an operator had the key replaced. That voter has the old key, and the recovered lock service has neither the rotation nor the
// removal. All nodes get a third key and see each other, and the removed node is marked again.
func TestRecoveryHealsGossip(t *testing.T) {
	t.Parallel()
	t.Run("removal", func(t *testing.T) { t.Parallel(); testRecoveryHealsGossip(t, true) })
	t.Run("operator", func(t *testing.T) { t.Parallel(); testRecoveryHealsGossip(t, false) })
}

func testRecoveryHealsGossip(t *testing.T, removal bool) {
	f, _ := keyTestCluster(t, 3, func(f *testCluster, i int) { f.cfgs[i].RolloverEvery(50 * time.Millisecond) })
	ctx, gone := within(t, 120*time.Second), "n00000000000000ff"
	masterID := f.awaitMaster(t)
	behind, other := (masterID+1)%3, (masterID+2)%3
	old := f.nodes[masterID].GossipKeys()[0]
	f.stop(behind)
	eventually(t, "the replacement begins", func() bool {
		if removal {
			return f.nodes[other].PutFile(ctx, "/removed/"+gone, []byte("x")) == nil
		}
		_, err := f.client(other).Authority().RotateGossipKey(ctx)
		return err == nil
	})
	eventually(t, "the others have another key alone, and know of the removal", func() bool {
		return !slices.ContainsFunc([]int{masterID, other}, func(i int) bool {
			keys := f.nodes[i].GossipKeys()
			list, _ := os.ReadFile(filepath.Join(f.cfgs[i].DataDirs[0], "removed"))
			return len(keys) != 1 || bytes.Equal(keys[0], old) || removal != bytes.Contains(list, []byte(gone))
		})
	})
	replaced := f.nodes[other].GossipKeys()[0]
	f.stop(masterID)
	f.stop(other)
	folders := good(identity.Inspect(f.cfgs[behind].DataDirs))
	if _, err := raftmeta.Recover(ctx, raftmeta.Config{Dir: folders.RaftDir(), ID: folders.Node}); err != nil {
		t.Fatal(err)
	}
	if err := folders.SetRaftEpoch(folders.RaftEpoch + 1); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{behind, masterID, other} {
		f.start(i)
	}
	if t.Failed() {
		t.FailNow()
	}
	all := []int{0, 1, 2}
	eventually(t, "the node is removed again", func() bool {
		_, err := f.nodes[behind].File(ctx, "/removed/"+gone)
		return !removal || err == nil
	})
	eventually(t, "all nodes have one key, and see each other", func() bool {
		now := f.nodes[behind].GossipKeys()[0]
		return !bytes.Equal(now, old) && !bytes.Equal(now, replaced) && !slices.ContainsFunc(all, func(i int) bool {
			keys := f.nodes[i].GossipKeys()
			return len(keys) != 1 || !bytes.Equal(keys[0], now) || !f.nodes[i].Sees(f.ids(all...)...)
		})
	})
	f.await(0, "three voters", votersAlive(3))
}

// TestLostKeyBringsNoOlderBack: the master stops with a new key that no other node has. A node that was down during the rotation before
// gets the key in use, so that a rotation that it begins does not start with its outdated key, which a removed node has.
func TestLostKeyBringsNoOlderBack(t *testing.T) {
	t.Parallel()
	f, _ := keyTestCluster(t, 3, func(f *testCluster, i int) { f.cfgs[i].KeysByHand() })
	ctx := within(t, 120*time.Second)
	masterID := f.awaitMaster(t)
	away, first := (masterID+1)%3, f.nodes[masterID].GossipKeys()[0]
	remove := func(id string) {
		t.Helper()
		eventually(t, "a node is removed", func() bool { return f.nodes[masterID].PutFile(ctx, "/removed/"+id, []byte("x")) == nil })
	}
	f.stop(away)
	remove("n0000000000000001")
	f.finishRotation(t, ctx, "a node is away", first)
	f.start(away)
	masterID = f.awaitMaster(t)
	second := f.nodes[masterID].GossipKeys()[0]
	remove("n0000000000000002")
	eventually(t, "the master alone has another key", func() bool {
		_ = f.nodes[masterID].StepGossipKey()
		rec, err := f.nodes[masterID].KeyRotation(ctx)
		return err == nil && rec.Stage == rollover.Install && rec.Old == rollover.IDOfKey(second)
	})
	f.stop(masterID)
	eventually(t, "the node that was away has the key in use", func() bool {
		_ = f.nodes[away].StepGossipKey()
		return bytes.Equal(f.nodes[away].GossipKeys()[0], second)
	})
	f.finishRotation(t, ctx, "the new key is lost", second)
	if rec, err := f.nodes[away].KeyRotation(ctx); err != nil || rec.Old != rollover.IDOfKey(second) {
		t.Errorf("the rotation began with another key than that in use: %v", err)
	}
}

// TestUnreadableRotation: a record of a rotation that cannot be read is an error, and changes no key.
func TestUnreadableRotation(t *testing.T) {
	t.Parallel()
	f, _ := keyTestCluster(t, 1, func(f *testCluster, i int) { f.cfgs[i].KeysByHand() })
	ctx := within(t, 60*time.Second)
	before := f.nodes[0].GossipKeys()
	eventually(t, "the record is written", func() bool { return f.nodes[0].PutFile(ctx, "/security/gossip", []byte(`{"format":2}`)) == nil })
	if err := f.nodes[0].StepGossipKey(); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("a step by a record of a later format: %v", err)
	}
	if !slices.EqualFunc(f.nodes[0].GossipKeys(), before, bytes.Equal) {
		t.Error("the keys were changed")
	}
}
