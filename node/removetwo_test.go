package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/removal"
)

// TestRemoveTwo: of three voters one is removed, and no other right after it nor at the same time: the majority stays.
func TestRemoveTwo(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	c, ctx := f.client(0), within(t, 60*time.Second)
	answers := make(chan error, 2)
	for _, i := range []int{1, 2} {
		id := f.nodes[i].ID()
		go func() { answers <- c.Nodes().Remove(ctx, id, true) }()
	}
	removed := 0
	for range 2 {
		var used *client.NodeInUseError
		switch err := <-answers; {
		case err == nil:
			removed++
		case !errors.As(err, &used):
			t.Errorf("remove one of two at once: %v", err)
		}
	}
	if removed != 1 {
		t.Fatalf("of three voters %d were removed at once, want 1", removed)
	}
	for _, n := range f.nodes[1:] {
		if err := c.Nodes().Remove(ctx, n.ID(), true); err == nil {
			t.Error("a second voter of three is removed right after the first")
		}
	}
	f.await(0, "two voters", votersAlive(2))
}

// TestRemoveMaster: the master removes itself when another node was asked.
func TestRemoveMaster(t *testing.T) {
	t.Parallel()
	f, _, _ := secureThree(t)
	masterID := -1
	eventually(t, "there is a master", func() bool {
		for i, n := range f.nodes {
			if n.IsMaster() {
				masterID = i
			}
		}
		return masterID >= 0
	})
	id, other := f.nodes[masterID].ID(), (masterID+1)%3
	ctx := within(t, 60*time.Second)
	var used *client.NodeInUseError
	if err := f.client(masterID).Nodes().Remove(ctx, id, true); !errors.As(err, &used) {
		t.Errorf("the node that is asked is to be removed: %v", err)
	}
	if err := f.client(other).Nodes().Remove(ctx, id, true); err != nil && !errors.Is(err, client.ErrAmbiguous) {
		t.Errorf("remove the master: %v", err)
	}
	select {
	case <-f.nodes[masterID].Done():
		if err := f.nodes[masterID].Err(); !errors.Is(err, removal.ErrRemoved) {
			t.Errorf("the node that was removed ends: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("a node that was removed goes on")
	}
	f.stop(masterID)
	f.await(other, "two voters", votersAlive(2))
}

// TestRemovedWhileStarting: a node that starts, and cannot ask the lock service yet, turns a removed node away.
func TestRemovedWhileStarting(t *testing.T) {
	t.Parallel()
	f, _, _ := secureThree(t)
	ctx := within(t, 90*time.Second)
	masterID := -1
	eventually(t, "there is a master", func() bool {
		for i, n := range f.nodes {
			if n.IsMaster() {
				masterID = i
			}
		}
		return masterID >= 0
	})
	starts, gone := masterID, (masterID+1)%3
	removed, stays := f.credential(gone), f.credential((masterID+2)%3)
	id := f.nodes[gone].ID()
	f.stop(gone)
	eventually(t, "the node can be removed", func() bool { return f.client(starts).Nodes().Remove(ctx, id, true) == nil })
	file := filepath.Join(f.cfgs[starts].DataDirs[0], "removed")
	eventually(t, "it is kept which node was removed", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), id)
	})
	f.await(starts, "two voters", votersAlive(2))
	for i := range f.nodes {
		f.stop(i)
	}
	opening, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := f.open(opening, starts); err == nil {
			t.Error("one of two voters serves")
		}
	}()
	defer func() { end(); <-ended }()
	eventually(t, "the port is open to nodes", func() bool {
		_, err := f.ask(stays, f.addrs[starts], "cluster.who", nil)
		return err == nil
	})
	if _, err := f.ask(removed, f.addrs[starts], "cluster.who", nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a node that was removed asks one that starts: %v", err)
	}
}
