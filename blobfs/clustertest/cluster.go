package clustertest

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
)

// Cluster is a cluster in one process: each store is behind a server of its own on loopback.
type Cluster struct {
	T   testing.TB
	All []*Node

	mu      sync.Mutex
	Members []blobfs.Member
	changed chan struct{}
	// Cut has the directions in which no byte passes.
	Cut map[[2]string]*atomic.Bool
}

// Node is one store of a cluster, and its server.
type Node struct {
	*blobfs.Store
	ID      string
	of      *Cluster
	FS      *vfs.Mem // nil on real folders
	srv     *rpc.Server
	dial    func(ctx context.Context) (net.Conn, error)
	remotes map[string]*api.Remote // guarded by Cluster.mu
	served  chan error
	Dead    bool
}

// Config configures a cluster.
type Config struct {
	Mixed   bool // every other node, from the first on, encrypts its folders
	N       int
	Extent  int64
	Dir     string // real folders; in memory if empty
	Cluster blobfs.Cluster
	Zones   int
	Reserve int64         // of each folder; none if 0
	Keep    bool          // run the repairers
	Spare   time.Duration // blobfs.Config.UsedSpareMax
	Virtual bool          // within a synctest bubble: no real network
}

// silenceMax is how long calls between nodes wait for a sign of life. They have deadlines of their
// own, and polling each connection every second is slow in tests that simulate weeks.
const silenceMax = 10 * time.Hour

// New starts a cluster, which the end of the test stops.
func New(t testing.TB, cfg Config) *Cluster {
	c := &Cluster{T: t, changed: make(chan struct{}), Cut: map[[2]string]*atomic.Bool{}}
	if cfg.Extent == 0 {
		cfg.Extent = 256 << 10
	}
	for i := range cfg.N {
		n := &Node{ID: fmt.Sprintf("n%d", i+1), of: c, remotes: map[string]*api.Remote{}, served: make(chan error, 1)}
		m := blobfs.Member{ID: n.ID, CapacityBytes: 1 << 40, FreeBytes: 1 << 40, Alive: true}
		if cfg.Zones > 0 {
			m.Zone = fmt.Sprint("z", i%cfg.Zones)
		}
		c.Members = append(c.Members, m)
		c.All = append(c.All, n)
	}
	for _, n := range c.All {
		for _, to := range c.All {
			c.Cut[[2]string{n.ID, to.ID}] = new(atomic.Bool)
		}
	}
	for _, n := range c.All {
		n.open(cfg)
	}
	t.Cleanup(func() {
		for _, n := range c.All {
			n.Kill()
		}
		for _, n := range c.All {
			*n = Node{ID: n.ID, of: c, Dead: true} // package testing keeps c until all tests are over: 40 MB each
		}
	})
	return c
}

func (n *Node) open(cfg Config) {
	t := n.of.T
	local := blobfs.Config{ExtentBytes: cfg.Extent, ReserveBytes: -1, UsedSpareMax: cfg.Spare, Logger: slog.New(slog.DiscardHandler)}
	if cfg.Reserve > 0 {
		local.ReserveBytes = cfg.Reserve
	}
	if cfg.Dir == "" {
		if n.FS == nil {
			n.FS = vfs.NewMem(vfs.MemOptions{})
		}
		local.FS, local.Folders = n.FS, []string{"/a", "/b"}
	} else {
		local.Folders = []string{filepath.Join(cfg.Dir, n.ID)}
	}
	if cfg.Mixed && slices.Index(n.of.All, n)%2 == 0 {
		local.MasterKeys = []blobfs.MasterKey{{1, n.ID[1]}}
	}
	cluster := cfg.Cluster
	cluster.Repair.Off = !cfg.Keep
	cluster.Membership = Membership{n}
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
	if cfg.Virtual {
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

// Reopen starts a node that was killed.
func (n *Node) Reopen(cfg Config) {
	n.of.mu.Lock()
	n.Dead, n.remotes = false, map[string]*api.Remote{}
	n.of.mu.Unlock()
	n.open(cfg)
}

// Kill ends a node abruptly. The membership still reports it as alive.
func (n *Node) Kill() {
	n.of.mu.Lock()
	if n.Dead {
		n.of.mu.Unlock()
		return
	}
	n.Dead = true
	remotes := n.remotes
	n.remotes = nil
	n.of.mu.Unlock()
	n.srv.Close()
	<-n.served
	for _, r := range remotes {
		_ = r.Close()
	}
	if err := n.Store.Close(); err != nil {
		n.of.T.Errorf("close %s: %v", n.ID, err)
	}
}

// Restart kills a node, calls meanwhile, which may change its disks, and opens it again.
func (n *Node) Restart(cfg Config, meanwhile func()) {
	n.Kill()
	meanwhile()
	n.of.mu.Lock()
	n.Dead, n.remotes = false, map[string]*api.Remote{}
	for _, other := range n.of.All {
		if r := other.remotes[n.ID]; r != nil {
			delete(other.remotes, n.ID)
			defer r.Close()
		}
	}
	n.of.mu.Unlock()
	n.open(cfg)
}

// Get returns the node with an ID.
func (c *Cluster) Get(id string) *Node {
	return c.All[slices.IndexFunc(c.All, func(n *Node) bool { return n.ID == id })]
}

// Change changes a node's entry in the membership.
func (c *Cluster) Change(id string, f func(m *blobfs.Member)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.Members {
		if c.Members[i].ID == id {
			f(&c.Members[i])
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Membership is the membership as one node sees it.
type Membership struct{ N *Node }

// Self implements blobfs.Membership.
func (f Membership) Self() string { return f.N.ID }

// Members implements blobfs.Membership.
func (f Membership) Members() []blobfs.Member {
	f.N.of.mu.Lock()
	defer f.N.of.mu.Unlock()
	return slices.Clone(f.N.of.Members)
}

// Changed implements blobfs.Membership.
func (f Membership) Changed() <-chan struct{} {
	f.N.of.mu.Lock()
	defer f.N.of.mu.Unlock()
	return f.N.of.changed
}

// Peer implements blobfs.Membership.
func (f Membership) Peer(_ context.Context, id string) (api.Peer, error) {
	c := f.N.of
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.All, func(n *Node) bool { return n.ID == id })
	if i < 0 || f.N.Dead {
		return nil, errors.New("no such node")
	}
	r := f.N.remotes[id]
	if r == nil {
		to := c.All[i]
		out, in := c.Cut[[2]string{f.N.ID, id}], c.Cut[[2]string{id, f.N.ID}]
		r = api.NewRemote(func(ctx context.Context) (*rpc.Conn, error) {
			return rpc.Dial(ctx, to.ID, rpc.ConnConfig{SilenceMax: silenceMax, Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
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
		f.N.remotes[id] = r
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

// Quick has short timeouts, for tests in which nodes fall silent.
var Quick = blobfs.Cluster{ReplyTimeout: 300 * time.Millisecond, SealTimeout: 3 * time.Second, HedgeAfter: 60 * time.Millisecond}

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Put writes a blob.
func Put(t testing.TB, s *blobfs.Store, data []byte) blobfs.Handle {
	t.Helper()
	w, err := s.Create(t.Context())
	NoError(t, err)
	_, err = w.Write(data)
	NoError(t, err)
	h, err := w.Seal(t.Context())
	NoError(t, err)
	return h
}

// Get reads a blob and compares it with want.
func Get(t testing.TB, s *blobfs.Store, h blobfs.Handle, want []byte) {
	t.Helper()
	r, err := s.OpenBlob(t.Context(), h)
	NoError(t, err)
	defer r.Close()
	got := make([]byte, r.Size())
	if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("blob differs or is unreadable: %v", err)
	}
}

// Holders checks that each extent is on exactly the nodes that the handle names and that each has
// the list. It returns the lowest number of replicas of any extent.
func (c *Cluster) Holders(h blobfs.Handle) int {
	c.T.Helper()
	least := len(c.All)
	for _, ref := range h.Extents {
		least = min(least, len(ref.Replicas))
		for _, n := range c.All {
			if n.Dead {
				continue
			}
			st, err := n.StatExtent(context.Background(), blobfs.ExtentID{Blob: h.ID, Index: ref.Index})
			named := slices.Contains(ref.Replicas, n.ID)
			if (err == nil) != named {
				c.T.Errorf("extent %d: %s has it: %v; the handle names %v", ref.Index, n.ID, err, ref.Replicas)
				continue
			}
			if !named {
				continue
			}
			list := slices.Sorted(slices.Values(st.Holders.Nodes))
			if want := slices.Sorted(slices.Values(ref.Replicas)); st.CRC != ref.CRC || st.Length != ref.Length || !slices.Equal(list, want) {
				c.T.Errorf("extent %d on %s: %+v, want %+v", ref.Index, n.ID, st, ref)
			}
		}
	}
	return least
}
