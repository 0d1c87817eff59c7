package repair_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

// repairCluster is a cluster with running repairers in virtual time. The nodes call each other
// directly.
type repairCluster struct {
	t   *testing.T
	all []*repairNode
	cfg blobfs.Cluster

	mu            sync.Mutex
	changed       chan struct{}
	cut           map[[2]string]bool // calls in this direction are lost
	blobs         map[blobfs.ID]repairBlob
	copies        int // made by Copy
	extent        int64
	log           slog.Handler                          // of all nodes
	checked       func(from, to string, all []api.Held) // called with each answer of Check
	beforeChanged func()                                // called after the membership changed and before Changed fires
}

type repairBlob struct {
	h    blobfs.Handle
	data []byte
}

type repairNode struct {
	of      *repairCluster
	member  blobfs.Member
	FS      *vfs.Mem
	up      bool
	removed bool // permanently removed
	used    int64
	counted time.Time
	store   *blobfs.Store
}

const keptExtent = 64 << 10

func newRepairCluster(t *testing.T, n int, cfg blobfs.Cluster) *repairCluster {
	c := &repairCluster{t: t, extent: keptExtent, cfg: cfg, changed: make(chan struct{}), cut: map[[2]string]bool{}, blobs: map[blobfs.ID]repairBlob{}, log: slog.DiscardHandler}
	for range n {
		c.add(1 << 30)
	}
	t.Cleanup(func() {
		for _, n := range c.all {
			n.stop()
		}
	})
	return c
}

// add adds an empty node.
func (c *repairCluster) add(capacity int64) *repairNode {
	n := &repairNode{of: c, FS: vfs.NewMem(vfs.MemOptions{})}
	n.member = blobfs.Member{ID: fmt.Sprintf("n%d", len(c.all)+1), CapacityBytes: capacity}
	c.mu.Lock()
	c.all = append(c.all, n)
	c.mu.Unlock()
	n.start()
	return n
}

// start starts a node's process. All nodes see it at once.
func (n *repairNode) start() {
	cluster := n.of.cfg
	cluster.Membership = nodeMembership{n}
	n.setMember(func(m *blobfs.Member) { m.Alive, m.Since = true, time.Now() })
	s, err := blobfs.OpenIn(cluster, blobfs.Config{FS: n.FS, Folders: []string{"/a", "/b"}, ExtentBytes: n.of.extent, ReserveBytes: -1, Logger: slog.New(n.of.log)})
	clustertest.NoError(n.of.t, err)
	n.of.mu.Lock()
	n.store, n.up = s, true
	n.of.mu.Unlock()
}

// stop ends the process. The membership reports it as dead at once.
func (n *repairNode) stop() {
	n.of.mu.Lock()
	s := n.store
	up := n.up
	n.up = false
	n.of.mu.Unlock()
	if !up {
		return
	}
	clustertest.NoError(n.of.t, s.Close())
	n.setMember(func(m *blobfs.Member) { m.Alive = false })
}

// setMember changes a node's entry in the membership.
func (n *repairNode) setMember(f func(m *blobfs.Member)) {
	n.of.mu.Lock()
	f(&n.member)
	n.of.mu.Unlock()
	if n.of.beforeChanged != nil {
		n.of.beforeChanged()
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	close(n.of.changed)
	n.of.changed = make(chan struct{})
}

// remove removes a node from the membership.
func (n *repairNode) remove() { n.setMember(func(*blobfs.Member) { n.removed = true }) }

// usedLocked returns the bytes of a node's extents, as of some seconds ago.
func (n *repairNode) usedLocked() int64 {
	if now := time.Now(); now.Sub(n.counted) > 3*time.Second {
		n.used, n.counted = 0, now
		for _, f := range n.store.Stats().Folders {
			n.used += f.BlobBytes
		}
	}
	return n.used
}

type nodeMembership struct{ N *repairNode }

func (f nodeMembership) Self() string { return f.N.member.ID }

func (f nodeMembership) Members() []blobfs.Member {
	c := f.N.of
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []blobfs.Member
	for _, n := range c.all {
		if n.removed {
			continue
		}
		m := n.member
		m.FreeBytes = m.CapacityBytes
		if n.up {
			m.FreeBytes -= n.usedLocked()
		}
		all = append(all, m)
	}
	return all
}

func (f nodeMembership) Changed() <-chan struct{} {
	f.N.of.mu.Lock()
	defer f.N.of.mu.Unlock()
	return f.N.of.changed
}

func (f nodeMembership) Peer(_ context.Context, id string) (api.Peer, error) {
	c := f.N.of
	for _, n := range c.all {
		if n.member.ID == id {
			return directPeer{to: n, from: f.N}, nil
		}
	}
	return nil, fmt.Errorf("no node %s", id)
}

// directPeer is a node as another one calls it. Only methods that repairers call can be lost.
type directPeer struct {
	api.Peer
	from, to *repairNode
}

// target waits for the duration of a call and returns its target. A lost call uses up the caller's
// timeout.
func (p directPeer) target(ctx context.Context) (api.Peer, error) {
	if err := wait(ctx, 100*time.Microsecond); err != nil {
		return nil, err
	}
	c := p.to.of
	c.mu.Lock()
	up, store, lost := p.to.up, p.to.store, c.cut[[2]string{p.from.member.ID, p.to.member.ID}]
	c.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", api.ErrUnreachable, ctx.Err())
	}
	if !up {
		return nil, fmt.Errorf("%w: connection refused", api.ErrUnreachable)
	}
	return store.Peer(), nil
}

// answered returns an error if the answer is lost.
func (p directPeer) answered(ctx context.Context) error {
	c := p.to.of
	c.mu.Lock()
	lost := c.cut[[2]string{p.to.member.ID, p.from.member.ID}]
	c.mu.Unlock()
	if lost {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", api.ErrUnreachable, ctx.Err())
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", api.ErrUnreachable, ctx.Err())
	}
}

// call makes a call.
func call[R any](ctx context.Context, p directPeer, f func(api.Peer) (R, error)) (R, error) {
	var none R
	to, err := p.target(ctx)
	if err != nil {
		return none, err
	}
	r, err := f(to)
	if errLost := p.answered(ctx); errLost != nil {
		return none, errLost
	}
	if err != nil {
		err = api.FromRPC(api.ToRPC(err))
	}
	return r, err
}

type nothing struct{}

func (p directPeer) Check(ctx context.Context, xs []blobfs.ExtentID) ([]api.Held, error) {
	all, err := call(ctx, p, func(to api.Peer) ([]api.Held, error) { return to.Check(ctx, xs) })
	p.to.of.mu.Lock()
	f := p.to.of.checked
	p.to.of.mu.Unlock()
	if f != nil && err == nil {
		f(p.from.member.ID, p.to.member.ID, all)
	}
	return all, err
}

func (p directPeer) Stat(ctx context.Context, x blobfs.ExtentID) (local.ExtentStat, error) {
	return call(ctx, p, func(to api.Peer) (local.ExtentStat, error) { return to.Stat(ctx, x) })
}

func (p directPeer) Read(ctx context.Context, r api.Ref, b []byte, off int64) error {
	_, err := call(ctx, p, func(to api.Peer) (nothing, error) { return nothing{}, to.Read(ctx, r, b, off) })
	return err
}

func (p directPeer) ReadToCopy(ctx context.Context, r api.Ref, b []byte, off int64) error {
	_, err := call(ctx, p, func(to api.Peer) (nothing, error) { return nothing{}, to.ReadToCopy(ctx, r, b, off) })
	return err
}

func (p directPeer) SetHolders(ctx context.Context, x blobfs.ExtentID, h blobfs.Holders) error {
	_, err := call(ctx, p, func(to api.Peer) (nothing, error) { return nothing{}, to.SetHolders(ctx, x, h) })
	return err
}

func (p directPeer) Verify(ctx context.Context, r api.Ref) error {
	_, err := call(ctx, p, func(to api.Peer) (nothing, error) { return nothing{}, to.Verify(ctx, r) })
	return err
}

func (p directPeer) DropBlob(ctx context.Context, id blobfs.ID, why api.Reason) (int, error) {
	return call(ctx, p, func(to api.Peer) (int, error) { return to.DropBlob(ctx, id, why) })
}

func (p directPeer) Copy(ctx context.Context, c api.Copy) error {
	_, err := call(ctx, p, func(to api.Peer) (nothing, error) {
		_, had := p.to.store.ExtentInfo(c.Extent)
		err := to.Copy(ctx, c)
		if err == nil && had != nil {
			k := p.to.of
			k.mu.Lock()
			k.copies++
			k.mu.Unlock()
		}
		return nothing{}, err
	})
	return err
}

// put writes a blob of one extent on given nodes, as a writer does.
func (c *repairCluster) put(rng *rand.Rand, bytes int, nodes ...*repairNode) blobfs.ID {
	c.t.Helper()
	return c.putOn(rng, bytes, nodes, nodes)
}

// putOn writes a blob of one extent on some nodes, with a list that may name others.
func (c *repairCluster) putOn(rng *rand.Rand, bytes int, on, nodes []*repairNode) blobfs.ID {
	c.t.Helper()
	data := blobtest.Bytes(rng.Uint64(), bytes)
	id := blobfs.ID{}
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.member.ID)
	}
	h := blobfs.Handle{ID: id, Length: int64(bytes)}
	for _, n := range on {
		w, err := n.store.CreateExtent(c.t.Context(), blobfs.ExtentID{Blob: id}, 0)
		clustertest.NoError(c.t, err)
		clustertest.NoError(c.t, w.Write(data))
		list := blobfs.Holders{Epoch: 1, Nodes: names}
		if len(nodes) == 1 {
			list = blobfs.Holders{}
		}
		ref, err := w.Seal(c.t.Context(), true, list)
		clustertest.NoError(c.t, err)
		ref.Replicas = nil
		h.Extents = []blobfs.ExtentRef{ref}
	}
	c.blobs[id] = repairBlob{h, data}
	return id
}

// some returns n different nodes.
func (c *repairCluster) some(rng *rand.Rand, n int) []*repairNode {
	var up []*repairNode
	for _, m := range c.all {
		if m.up {
			up = append(up, m)
		}
	}
	rng.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	return up[:n]
}

// good returns the live nodes that have a good replica of a blob's extent, as verified by a full
// read.
func (c *repairCluster) good(id blobfs.ID) []string {
	var ids []string
	for _, n := range c.all {
		if n.up && n.store.VerifyExtent(context.Background(), blobfs.ExtentID{Blob: id}) == nil {
			ids = append(ids, n.member.ID)
		}
	}
	return ids
}

// made returns the number of copies.
func (c *repairCluster) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copies
}

// countHolding counts the live nodes that have a replica, good or not.
func (c *repairCluster) countHolding(id blobfs.ID) int {
	count := 0
	for _, n := range c.all {
		if n.up {
			if _, err := n.store.ExtentInfo(blobfs.ExtentID{Blob: id}); err == nil {
				count++
			}
		}
	}
	return count
}

// short counts the blobs that have fewer than n replicas, and those that have more.
func (c *repairCluster) short(n int) (fewer, more int) {
	for id := range c.blobs {
		switch g := c.countHolding(id); {
		case g < n:
			fewer++
		case g > n:
			more++
		}
	}
	return fewer, more
}

// until waits, in virtual time, until f returns true, and returns how long that took.
func (c *repairCluster) until(limit time.Duration, what string, f func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for !f() {
		if time.Since(start) > limit {
			c.t.Fatalf("after %v: not yet %s", limit, what)
		}
		time.Sleep(2 * time.Second)
	}
	return time.Since(start)
}

// agreed checks that, for each extent, all live nodes that have it have the same, correct list.
func (c *repairCluster) agreed() error {
	for id := range c.blobs {
		good := c.good(id)
		for _, n := range c.all {
			if !slices.Contains(good, n.member.ID) {
				continue
			}
			x, err := n.store.ExtentInfo(blobfs.ExtentID{Blob: id})
			if err != nil {
				return err
			}
			if list := slices.Sorted(slices.Values(x.Holders.Nodes)); !slices.Equal(list, slices.Sorted(slices.Values(good))) {
				return fmt.Errorf("%s: list on %s is %d %v, it is on %v", x.ID, n.member.ID, x.Holders.Epoch, list, good)
			}
		}
	}
	return nil
}

// readable reads all blobs on a node, which is live.
func (c *repairCluster) readable(from *repairNode) {
	c.t.Helper()
	for _, b := range c.blobs {
		clustertest.Get(c.t, from.store, b.h, b.data)
	}
}

// flip changes a byte of a replica's payload.
func (n *repairNode) flip(id blobfs.ID, at int64) {
	n.of.t.Helper()
	for _, dir := range []string{"/a", "/b"} {
		f, err := n.FS.Open(dir + "/blobs/" + id.String() + ".0of1")
		if err != nil {
			continue
		}
		defer f.Close()
		var b [1]byte
		_, err = f.ReadAt(b[:], 4096+at)
		clustertest.NoError(n.of.t, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b[:], 4096+at)
		clustertest.NoError(n.of.t, err)
		return
	}
	n.of.t.Fatalf("%s has no file of %s", n.member.ID, id)
}

// removeFile removes the file of a blob's only extent without the store's knowledge.
func (n *repairNode) removeFile(id blobfs.ID) {
	n.of.t.Helper()
	if n.FS.Remove("/a/blobs/"+id.String()+".0of1") != nil {
		clustertest.NoError(n.of.t, n.FS.Remove("/b/blobs/"+id.String()+".0of1"))
	}
}

// ids returns the blobs, sorted.
func (c *repairCluster) ids() []blobfs.ID {
	var ids []blobfs.ID
	for id := range c.blobs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b blobfs.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}
