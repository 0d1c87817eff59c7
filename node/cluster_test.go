package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/security/pki"
)

// testCluster is a cluster of nodes in one process, on loopback.
type testCluster struct {
	t     testing.TB
	addrs []string
	nodes []*node.Node
	cfgs  []node.Config
	as    *pki.Credential // of the clients; nil for plain ones
}

// newTestCluster prepares n nodes that expect each other.
func newTestCluster(t testing.TB, n int) *testCluster {
	f := &testCluster{t: t, nodes: make([]*node.Node, n)}
	for i := range n {
		addr, err := testport.New()
		if err != nil {
			t.Fatal(err)
		}
		f.addrs = append(f.addrs, addr)
		f.cfgs = append(f.cfgs, node.Config{
			DataDirs: []string{t.TempDir()}, Listen: f.addrs[i], Gossip: "127.0.0.1:0", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 2 << 20,
			Name: fmt.Sprintf("n%d", i+1), VoterStable: 2 * time.Second,
		})
		if testing.Verbose() {
			f.cfgs[i].Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", f.cfgs[i].Name)
		}
	}
	t.Cleanup(func() {
		for i := range f.nodes {
			f.stop(i)
		}
	})
	return f
}

func (f *testCluster) start(i int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := f.open(ctx, i); err != nil {
		f.t.Errorf("start %s: %v", f.cfgs[i].Name, err)
	}
}

// open starts node i, if it can be.
func (f *testCluster) open(ctx context.Context, i int) (*node.Node, error) {
	n, err := node.Start(ctx, f.cfgs[i])
	if err == nil {
		f.nodes[i] = n
	}
	return n, err
}

// startAll starts those that do not run, all at once.
func (f *testCluster) startAll() {
	f.t.Helper()
	var wg sync.WaitGroup
	for i := range f.nodes {
		if f.nodes[i] == nil {
			wg.Go(func() { f.start(i) })
		}
	}
	wg.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

func (f *testCluster) stop(i int) {
	if f.nodes[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f.nodes[i].Close(ctx); err != nil {
		f.t.Errorf("stop %s: %v", f.cfgs[i].Name, err)
	}
	f.nodes[i] = nil
}

func (f *testCluster) client(i int) *client.Client {
	f.t.Helper()
	c, err := client.Open(context.Background(), f.nodes[i].RPCAddr(), client.Config{Credential: f.as})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// await waits until the group as node i sees it is as wanted.
func (f *testCluster) await(i int, what string, ok func(*client.RaftStatus) bool) *client.RaftStatus {
	f.t.Helper()
	c := f.client(i)
	var last *client.RaftStatus
	var lastErr error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := c.Nodes().RaftStatus(ctx)
		cancel()
		if lastErr = err; err == nil {
			if last = s; ok(s) {
				return s
			}
		}
	}
	f.t.Fatalf("%s: not so after 30 s: %+v, %v", what, last, lastErr)
	return nil
}

func votersAlive(n int) func(*client.RaftStatus) bool {
	return func(s *client.RaftStatus) bool {
		voters, alive := 0, 0
		for _, x := range s.Servers {
			if x.Voter {
				voters++
			}
			if x.Voter && x.Alive {
				alive++
			}
		}
		return voters == n && alive == n && s.Master != ""
	}
}

// TestThreeNodesFormOne: three fresh nodes that expect three form one cluster of three
// voters; it lives on without any one of them, and comes back whole.
func TestThreeNodesFormOne(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	id := f.nodes[0].ClusterID()
	for _, n := range f.nodes[1:] {
		if n.ClusterID() != id {
			t.Fatalf("two clusters: %s and %s", id, n.ClusterID())
		}
	}
	s := f.await(0, "three voters", votersAlive(3))
	for holders, end := 0, time.Now().Add(10*time.Second); holders != 3; time.Sleep(20 * time.Millisecond) {
		var err error
		if holders, err = f.nodes[0].LogHolders(t.Context()); err != nil || time.Now().After(end) {
			t.Fatalf("%d nodes say that they have a log of the group: %v", holders, err)
		}
	}
	leader := -1
	for i := range f.cfgs {
		if f.cfgs[i].Name == s.LeaderName {
			leader = i
		}
	}
	other := (leader + 1) % 3
	f.stop(leader)
	f.await(other, "another leader", func(s *client.RaftStatus) bool {
		return s.Leader != "" && s.LeaderName != f.cfgs[leader].Name && s.MasterName == s.LeaderName
	})
	nodes, err := f.client(other).Nodes().List(context.Background())
	if err != nil || len(nodes) != 3 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	for _, n := range nodes {
		want := api.NodeAlive
		if n.Name == f.cfgs[leader].Name {
			want = api.NodeLeft
		}
		if n.State != want {
			t.Errorf("%s is %s, want %s", n.Name, n.State, want)
		}
	}
	// The restart needs no flag.
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 0, nil
	}
	f.startAll()
	f.await(leader, "three voters again", votersAlive(3))

	// All at once, and at other addresses but for one that the others remember.
	for i := range f.nodes {
		f.stop(i)
	}
	for i := range f.cfgs[1:] {
		f.cfgs[i+1].Listen = "127.0.0.1:0"
	}
	f.startAll()
	f.await(1, "three voters after a restart of all", votersAlive(3))
	if f.nodes[2].ClusterID() != id {
		t.Errorf("cluster %s became %s", id, f.nodes[2].ClusterID())
	}
}
