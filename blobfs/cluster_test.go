package blobfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/rpc"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodes is a cluster in one process: each store is behind a server of its own on loopback.
type nodes struct {
	t   testing.TB
	all []*node

	mu      sync.Mutex
	members []blobfs.Member
	changed chan struct{}
	// cut has the directions in which no byte passes.
	cut map[[2]string]*atomic.Bool
}

type node struct {
	*blobfs.Store
	id      string
	of      *nodes
	fs      *vfs.Mem // nil on real folders
	srv     *rpc.Server
	dial    func(ctx context.Context) (net.Conn, error)
	remotes map[string]*api.Remote // guarded by nodes.mu
	served  chan error
	dead    bool
}

type nodesConfig struct {
	mixed   bool // every other node, from the first on, encrypts its folders
	n       int
	extent  int64
	dir     string // real folders; in memory if empty
	cluster blobfs.Cluster
	zones   int
	reserve int64         // of each folder; none if 0
	keep    bool          // run the repairers
	spare   time.Duration // blobfs.Config.UsedSpareMax
	virtual bool          // within a synctest bubble: no real network
}

// silenceMax is how long calls between nodes wait for a sign of life. They have deadlines of their
// own, and polling each connection every second is slow in tests that simulate weeks.
const silenceMax = 10 * time.Hour

func newNodes(t testing.TB, cfg nodesConfig) *nodes {
	c := &nodes{t: t, changed: make(chan struct{}), cut: map[[2]string]*atomic.Bool{}}
	if cfg.extent == 0 {
		cfg.extent = 256 << 10
	}
	for i := range cfg.n {
		n := &node{id: fmt.Sprintf("n%d", i+1), of: c, remotes: map[string]*api.Remote{}, served: make(chan error, 1)}
		m := blobfs.Member{ID: n.id, CapacityBytes: 1 << 40, FreeBytes: 1 << 40, Alive: true}
		if cfg.zones > 0 {
			m.Zone = fmt.Sprint("z", i%cfg.zones)
		}
		c.members = append(c.members, m)
		c.all = append(c.all, n)
	}
	for _, n := range c.all {
		for _, to := range c.all {
			c.cut[[2]string{n.id, to.id}] = new(atomic.Bool)
		}
	}
	for _, n := range c.all {
		n.open(cfg)
	}
	t.Cleanup(func() {
		for _, n := range c.all {
			n.kill()
		}
		for _, n := range c.all {
			*n = node{id: n.id, of: c, dead: true} // package testing keeps c until all tests are over: 40 MB each
		}
	})
	return c
}

func (n *node) open(cfg nodesConfig) {
	t := n.of.t
	local := blobfs.Config{ExtentBytes: cfg.extent, ReserveBytes: -1, UsedSpareMax: cfg.spare, Logger: slog.New(slog.DiscardHandler)}
	if cfg.reserve > 0 {
		local.ReserveBytes = cfg.reserve
	}
	if cfg.dir == "" {
		if n.fs == nil {
			n.fs = vfs.NewMem(vfs.MemOptions{})
		}
		local.FS, local.Folders = n.fs, []string{"/a", "/b"}
	} else {
		local.Folders = []string{filepath.Join(cfg.dir, n.id)}
	}
	if cfg.mixed && slices.Index(n.of.all, n)%2 == 0 {
		local.MasterKeys = []blobfs.MasterKey{{1, n.id[1]}}
	}
	cluster := cfg.cluster
	cluster.Repair.Off = !cfg.keep
	cluster.Membership = membership{n}
	var err error
	if n.Store, err = blobfs.OpenIn(cluster, local); err != nil {
		t.Fatal(err)
	}
	if n.srv, err = rpc.NewServer(rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	peer := n.Peer()
	api.Serve(n.srv, func() (api.Peer, error) { return peer, nil })
	var l net.Listener
	var dial func(context.Context) (net.Conn, error)
	if cfg.virtual {
		p := newPipeListener()
		l, dial = p, func(context.Context) (net.Conn, error) { return p.dial() }
	} else {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	n.of.mu.Lock()
	n.dial = dial // other nodes may be dialing if the node existed before
	n.of.mu.Unlock()
	go func() { n.served <- n.srv.Serve(l) }()
}

// reopen starts a node that was killed.
func (n *node) reopen(cfg nodesConfig) {
	n.of.mu.Lock()
	n.dead, n.remotes = false, map[string]*api.Remote{}
	n.of.mu.Unlock()
	n.open(cfg)
}

// kill ends a node abruptly. The membership still reports it as alive.
func (n *node) kill() {
	n.of.mu.Lock()
	if n.dead {
		n.of.mu.Unlock()
		return
	}
	n.dead = true
	remotes := n.remotes
	n.remotes = nil
	n.of.mu.Unlock()
	n.srv.Close()
	<-n.served
	for _, r := range remotes {
		_ = r.Close()
	}
	if err := n.Store.Close(); err != nil {
		n.of.t.Errorf("close %s: %v", n.id, err)
	}
}

// restart kills a node, calls meanwhile, which may change its disks, and opens it again.
func (n *node) restart(cfg nodesConfig, meanwhile func()) {
	n.kill()
	meanwhile()
	n.of.mu.Lock()
	n.dead, n.remotes = false, map[string]*api.Remote{}
	for _, other := range n.of.all {
		if r := other.remotes[n.id]; r != nil {
			delete(other.remotes, n.id)
			defer r.Close()
		}
	}
	n.of.mu.Unlock()
	n.open(cfg)
}

func (c *nodes) get(id string) *node {
	return c.all[slices.IndexFunc(c.all, func(n *node) bool { return n.id == id })]
}

// change changes a node's entry in the membership.
func (c *nodes) change(id string, f func(m *blobfs.Member)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.members {
		if c.members[i].ID == id {
			f(&c.members[i])
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// membership is the membership as one node sees it.
type membership struct{ n *node }

func (f membership) Self() string { return f.n.id }

func (f membership) Members() []blobfs.Member {
	f.n.of.mu.Lock()
	defer f.n.of.mu.Unlock()
	return slices.Clone(f.n.of.members)
}

func (f membership) Changed() <-chan struct{} {
	f.n.of.mu.Lock()
	defer f.n.of.mu.Unlock()
	return f.n.of.changed
}

func (f membership) Peer(_ context.Context, id string) (api.Peer, error) {
	c := f.n.of
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(n *node) bool { return n.id == id })
	if i < 0 || f.n.dead {
		return nil, errors.New("no such node")
	}
	r := f.n.remotes[id]
	if r == nil {
		to := c.all[i]
		out, in := c.cut[[2]string{f.n.id, id}], c.cut[[2]string{id, f.n.id}]
		r = api.NewRemote(func(ctx context.Context) (*rpc.Conn, error) {
			return rpc.Dial(ctx, to.id, rpc.ConnConfig{SilenceMax: silenceMax, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
				to.of.mu.Lock()
				dial := to.dial
				to.of.mu.Unlock()
				conn, err := dial(ctx)
				if err != nil {
					return nil, err
				}
				return &lossyConn{Conn: conn, out: out, in: in}, nil
			}})
		})
		f.n.remotes[id] = r
	}
	return r, nil
}

// lossyConn drops bytes in either direction while it is cut.
type lossyConn struct {
	net.Conn
	out, in *atomic.Bool
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if c.out.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.in.Load() {
			return n, err
		}
	}
}

// quick has short timeouts, for tests in which nodes fall silent.
var quick = blobfs.Cluster{ReplyTimeout: 300 * time.Millisecond, SealTimeout: 3 * time.Second, HedgeAfter: 60 * time.Millisecond}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, s *blobfs.Store, data []byte) blobfs.Handle {
	t.Helper()
	w, err := s.Create(t.Context())
	noError(t, err)
	_, err = w.Write(data)
	noError(t, err)
	h, err := w.Seal(t.Context())
	noError(t, err)
	return h
}

func get(t testing.TB, s *blobfs.Store, h blobfs.Handle, want []byte) {
	t.Helper()
	r, err := s.OpenBlob(t.Context(), h)
	noError(t, err)
	defer r.Close()
	got := make([]byte, r.Size())
	if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("blob differs or is unreadable: %v", err)
	}
}

// holders checks that each extent is on exactly the nodes that the handle names and that each has
// the list. It returns the lowest number of replicas of any extent.
func (c *nodes) holders(h blobfs.Handle) int {
	c.t.Helper()
	least := len(c.all)
	for _, ref := range h.Extents {
		least = min(least, len(ref.Replicas))
		for _, n := range c.all {
			if n.dead {
				continue
			}
			st, err := n.StatExtent(context.Background(), blobfs.ExtentID{Blob: h.ID, Index: ref.Index})
			named := slices.Contains(ref.Replicas, n.id)
			if (err == nil) != named {
				c.t.Errorf("extent %d: %s has it: %v; the handle names %v", ref.Index, n.id, err, ref.Replicas)
				continue
			}
			if !named {
				continue
			}
			list := slices.Sorted(slices.Values(st.Holders.Nodes))
			if want := slices.Sorted(slices.Values(ref.Replicas)); st.CRC != ref.CRC || st.Length != ref.Length || !slices.Equal(list, want) {
				c.t.Errorf("extent %d on %s: %+v, want %+v", ref.Index, n.id, st, ref)
			}
		}
	}
	return least
}
