package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// TestEveryNodeForgets: after a node was removed, no node lists it, saves it for its next start, or spreads it to others: neither nodes
// that were up nor one that was down meanwhile, whose file of peers has it.
func TestEveryNodeForgets(t *testing.T) {
	t.Parallel()
	t.Run("open", func(t *testing.T) {
		t.Parallel()
		f := newTestCluster(t, 5)
		for i := range f.cfgs {
			f.cfgs[i].Expect, f.cfgs[i].Join = 5, f.addrs[:3]
		}
		testForgets(t, f)
	})
	t.Run("secured", func(t *testing.T) {
		t.Parallel()
		f, log := tokenTestCluster(t, 5)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the nodes' log:\n%s", log.String())
			}
		})
		f.give(f.token(client.TokenRequest{Uses: 4}).Text, 1)
		testForgets(t, f)
	})
}

func testForgets(t *testing.T, f *testCluster) {
	f.startAll()
	const away, gone = 3, 4
	f.await(0, "five voters", votersAlive(5))
	id, ctx := f.nodes[gone].ID(), within(t, 90*time.Second)
	peers := func(i int) string { return string(good(os.ReadFile(filepath.Join(f.cfgs[i].DataDirs[0], "peers")))) }
	eventually(t, "the node that is down soon remembers the one to be removed", func() bool { return strings.Contains(peers(away), id) })
	f.stop(away)
	f.stop(gone)
	admin := f.client(1)
	eventually(t, "the node is removed", func() bool { return admin.Nodes().Remove(ctx, id, true) == nil })
	f.start(away)
	up := []int{0, 1, 2, away}
	last := ""
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	eventually(t, "all nodes forget the one that was removed", func() bool {
		last = ""
		for _, i := range up {
			if where := f.nodes[i].Remembers(id); where != "" {
				last += fmt.Sprintf("node %d has it in %s; ", i, where)
			}
			if strings.Contains(peers(i), id) {
				last += fmt.Sprintf("node %d has it in its file; ", i)
			}
			if text, _ := os.ReadFile(filepath.Join(f.cfgs[i].DataDirs[0], "removed")); !strings.Contains(string(text), id) {
				last += fmt.Sprintf("node %d has not written down that it was removed; ", i)
			}
		}
		return last == "" || t.Failed()
	})
	for _, i := range up {
		for _, j := range up {
			if other := f.nodes[j].ID(); j != i && !strings.Contains(peers(i), other) {
				t.Errorf("node %d does not remember node %s: %s", i, other, peers(i))
			}
		}
	}
}
