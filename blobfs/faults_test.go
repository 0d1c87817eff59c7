package blobfs_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
)

func TestReplicasAndZones(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 6, zones: 3})
	for i := range 10 {
		writer := c.all[i%6]
		h := put(t, writer.Store, blobtest.Bytes(uint64(i), 700_000))
		if c.holders(h) != 3 {
			t.Errorf("fewer than 3 replicas: %+v", h)
		}
		for _, ref := range h.Extents {
			zones := map[string]bool{}
			for _, id := range ref.Replicas {
				zones[c.members[slices.Index(c.all, c.get(id))].Zone] = true
			}
			if ref.Replicas[0] != writer.id || len(zones) != 3 {
				t.Errorf("written by %s: replicas on %v, zones %v", writer.id, ref.Replicas, zones)
			}
		}
		for _, n := range c.all {
			get(t, n.Store, h, blobtest.Bytes(uint64(i), 700_000))
		}
	}
}

func TestFewerLiveThanReplicas(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 4})
	data := blobtest.Bytes(1, 300_000)
	for live := 3; live >= 1; live-- {
		c.change(c.all[live].id, func(m *blobfs.Member) { m.Alive = false })
		h := put(t, c.all[0].Store, data)
		if got := c.holders(h); got != min(live, 3) {
			t.Errorf("%d replicas of %d live nodes", got, live)
		}
		get(t, c.all[3].Store, h, data) // who is said to be dead may still read
	}
}

// A node that leaves or is full keeps no replica, but writes and reads.
func TestLeavingWriter(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 5})
	c.change("n1", func(m *blobfs.Member) { m.Leaving = true })
	c.change("n2", func(m *blobfs.Member) { m.FreeBytes = 0 })
	data := blobtest.Bytes(1, 600_000)
	h := put(t, c.all[0].Store, data)
	if c.holders(h) != 3 {
		t.Errorf("replicas: %+v", h.Extents)
	}
	for _, ref := range h.Extents {
		if slices.Contains(ref.Replicas, "n1") || slices.Contains(ref.Replicas, "n2") {
			t.Errorf("replicas on %v", ref.Replicas)
		}
	}
	get(t, c.all[0].Store, h, data)
	// With nobody else, it stays.
	for _, n := range c.all[1:] {
		c.change(n.id, func(m *blobfs.Member) { m.Leaving = true })
	}
	if h := put(t, c.all[0].Store, data); h.Extents[0].Replicas[0] != "n1" || c.holders(h) != 1 {
		t.Errorf("with nobody else: %+v", h.Extents)
	}
}

// cutWrite writes a blob, and calls fault once so many bytes of it are written.
func cutWrite(t *testing.T, s *blobfs.Store, data []byte, at int, fault func()) (blobfs.Handle, error) {
	t.Helper()
	w, err := s.Create(t.Context())
	noError(t, err)
	for off := 0; off < len(data); {
		n := min(50_000, len(data)-off)
		if off <= at && at < off+n {
			fault()
		}
		if _, err := w.Write(data[off : off+n]); err != nil {
			return blobfs.Handle{}, err
		}
		off += n
	}
	if at >= len(data) {
		fault()
	}
	return w.Seal(t.Context())
}

// A replica that dies in mid-stream is replaced, wherever in the chain it is and however far
// the stream has come.
func TestReplicaDiesInMidStream(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, at := range []int{0, 100_000, 500_000, 700_000, len(data)} {
		for place := 1; place <= 2; place++ {
			t.Run(fmt.Sprintf("%d-of-chain-at-%d", place, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newNodes(t, nodesConfig{n: 5, cluster: quick, virtual: true})
					var victim *node
					h, err := cutWrite(t, c.all[0].Store, data, at, func() {
						victim = c.victim(c.all[0], place)
						victim.kill()
					})
					noError(t, err)
					if c.aliveHolders(h) != 3 {
						t.Errorf("after %s died: %+v", victim.id, h.Extents)
					}
					for _, n := range c.all {
						if n != victim {
							get(t, n.Store, h, data)
						}
					}
				})
			})
		}
	}
}

// The same for a writer that keeps no replica itself: what only the dead node had is sent again.
func TestReplicaDiesWithoutWriters(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, at := range []int{0, 100_000, 500_000, 700_000, len(data)} {
		for place := 1; place <= 3; place++ {
			synctest.Test(t, func(t *testing.T) {
				c := newNodes(t, nodesConfig{n: 6, cluster: quick, extent: 512 << 10, virtual: true})
				c.change("n1", func(m *blobfs.Member) { m.Leaving = true })
				var victim *node
				h, err := cutWrite(t, c.all[0].Store, data, at, func() {
					victim = c.victim(c.all[0], place)
					victim.kill()
				})
				noError(t, err)
				if c.aliveHolders(h) != 3 {
					t.Errorf("after %s died at %d: %+v", victim.id, at, h.Extents)
				}
				for _, n := range c.all {
					if n != victim {
						get(t, n.Store, h, data)
					}
				}
			})
		}
	}
}

// victim returns a node that has a stream of the extent being written, in the given place of its
// chain; if none can be told, any.
func (c *nodes) victim(writer *node, place int) *node {
	var open []*node
	deadline := time.Now().Add(time.Second)
	for ; len(open) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		open = nil
		for _, n := range c.all {
			if n != writer && n.hasTemporary() {
				open = append(open, n)
			}
		}
	}
	if len(open) == 0 {
		return c.all[1]
	}
	return open[(place-1)%len(open)]
}

func (n *node) hasTemporary() bool {
	for _, dir := range []string{"/a/blobs", "/b/blobs"} {
		names, _ := n.fs.ReadDir(dir)
		if slices.ContainsFunc(names, func(s string) bool { return strings.HasSuffix(s, ".tmp") }) {
			return true
		}
	}
	return false
}

// aliveHolders is the least number of replicas that an extent had when it was sealed; those on
// nodes that live are looked at.
func (c *nodes) aliveHolders(h blobfs.Handle) int {
	least := len(c.all)
	for _, ref := range h.Extents {
		alive := 0
		for _, id := range ref.Replicas {
			n := c.get(id)
			if n.dead {
				alive++ // it was alive when the extent was sealed
				continue
			}
			st, err := n.StatExtent(c.t.Context(), blobfs.ExtentID{Blob: h.ID, Index: ref.Index})
			if err != nil || st.CRC != ref.CRC {
				c.t.Errorf("extent %d on %s: %+v, %v", ref.Index, id, st, err)
			}
			alive++
		}
		least = min(least, alive)
	}
	return least
}

// A node that nobody hears, or that hears nobody, is replaced as one that is dead.
func TestOneWayPartitions(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, silent := range []bool{false, true} {
		for _, at := range []int{0, 400_000, len(data)} {
			t.Run(fmt.Sprintf("silent-%v-at-%d", silent, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newNodes(t, nodesConfig{n: 4, cluster: quick, virtual: true})
					var victim *node
					h, err := cutWrite(t, c.all[0].Store, data, at, func() {
						victim = c.victim(c.all[0], 1)
						for _, n := range c.all {
							if silent {
								c.cut[[2]string{victim.id, n.id}].Store(true)
							} else {
								c.cut[[2]string{n.id, victim.id}].Store(true)
							}
						}
					})
					noError(t, err)
					if c.aliveHolders(h) != 3 {
						t.Errorf("without %s: %+v", victim.id, h.Extents)
					}
					for _, n := range c.all {
						if n != victim {
							get(t, n.Store, h, data)
						}
					}
				})
			})
		}
	}
}

// A writer that is cut off from all others goes on alone.
func TestWriterCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, nodesConfig{virtual: true, n: 3, cluster: quick})
		data := blobtest.Bytes(1, 600_000)
		h, err := cutWrite(t, c.all[0].Store, data, 300_000, func() {
			for _, n := range c.all[1:] {
				c.cut[[2]string{"n1", n.id}].Store(true)
			}
		})
		noError(t, err)
		if last := h.Extents[len(h.Extents)-1]; !slices.Equal(last.Replicas, []string{"n1"}) {
			t.Errorf("last extent on %v", last.Replicas)
		}
		get(t, c.all[0].Store, h, data)
		start := time.Now()
		put(t, c.all[0].Store, data)
		if d := time.Since(start); d > 4*quick.ReplyTimeout {
			t.Errorf("a second blob took %v: who was silent is asked again", d)
		}
	})
}

func TestStaleHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, nodesConfig{virtual: true, n: 7, cluster: quick})
		data := blobtest.Bytes(1, 600_000)
		h := put(t, c.all[0].Store, data)
		held := h.Extents[0].Replicas
		for i := range h.Extents {
			h.Extents[i].Replicas = []string{"gone", "n7", "n6"}
		}
		for _, n := range c.all {
			get(t, n.Store, h, data)
		}
		// One good replica is enough, even if the fleet believes that its node is dead.
		for _, id := range held[:2] {
			c.get(id).kill()
		}
		c.change(held[2], func(m *blobfs.Member) { m.Alive = false })
		for _, n := range c.all {
			if !n.dead {
				r, err := n.OpenBlob(t.Context(), blobfs.Handle{ID: h.ID, Length: h.Extents[0].Length, Extents: h.Extents[:1]})
				noError(t, err)
				p := make([]byte, 1000)
				if _, err := r.ReadAt(p, 4000); err != nil || !bytes.Equal(p, data[4000:5000]) {
					t.Errorf("%s: %v", n.id, err)
				}
				r.Close()
			}
		}
		// With the last one gone, it is not said that there is no such blob.
		c.get(held[2]).kill()
		for _, n := range c.all {
			if !n.dead {
				if _, err := n.OpenBlob(t.Context(), h); !errors.Is(err, api.ErrUnreachable) || errors.Is(err, blobfs.ErrNoBlob) {
					t.Errorf("%s: %v", n.id, err)
				}
			}
		}
	})
}

// A reader goes on when the node that it reads from dies under it.
func TestReaderOutlivesReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, nodesConfig{virtual: true, n: 5, cluster: quick})
		data := blobtest.Bytes(1, 250_000)
		h := put(t, c.all[0].Store, data)
		held := h.Extents[0].Replicas
		reader := c.all[slices.IndexFunc(c.all, func(n *node) bool { return !slices.Contains(held, n.id) })]
		r, err := reader.OpenBlob(t.Context(), h)
		noError(t, err)
		defer r.Close()
		p := make([]byte, 90_000)
		for _, id := range append([]string{""}, held[:2]...) {
			if id != "" {
				c.get(id).kill()
			}
			noError(t, r.ReadChecked(p, 100_000, func(p []byte) error {
				if !bytes.Equal(p, data[100_000:190_000]) {
					return errors.New("wrong bytes")
				}
				return nil
			}))
		}
	})
}

// rotten flips a byte in a node's replica.
func (n *node) rotten(t *testing.T, x blobfs.ExtentID, off int64) {
	t.Helper()
	for _, dir := range []string{"/a/blobs", "/b/blobs"} {
		names, err := n.fs.ReadDir(dir)
		noError(t, err)
		for _, name := range names {
			if name != x.String() && !strings.HasPrefix(name, x.String()+"of") {
				continue
			}
			f, err := n.fs.Open(filepath.Join(dir, name))
			noError(t, err)
			defer f.Close()
			var b [1]byte
			_, err = f.ReadAt(b[:], 4096+off)
			noError(t, err)
			b[0] ^= 1
			_, err = f.WriteAt(b[:], 4096+off)
			noError(t, err)
			return
		}
	}
	t.Fatalf("%s has no %s", n.id, x)
}

// I7: a rotten replica is never served, here or elsewhere, and its node learns of it.
func TestRottenReplicas(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 4, cluster: quick})
	data := blobtest.Bytes(1, 250_000)
	h := put(t, c.all[0].Store, data)
	held := h.Extents[0].Replicas
	x := blobfs.ExtentID{Blob: h.ID}
	for i, id := range held[:2] {
		n := c.get(id)
		n.rotten(t, x, 70_000)
		for range 2 {
			for _, reader := range c.all {
				get(t, reader.Store, h, data)
				r, err := reader.OpenBlob(t.Context(), h)
				noError(t, err)
				noError(t, r.ReadChecked(make([]byte, 8000), 69_000, func(p []byte) error {
					if !bytes.Equal(p, data[69_000:77_000]) {
						return errors.New("wrong bytes")
					}
					return nil
				}))
				r.Close()
			}
		}
		if len(c.get(held[0]).Rotten()) != 1 || i == 1 && n.Rotten()[x] == nil {
			t.Errorf("%s does not know that its replica is rotten", n.id)
		}
	}
	c.get(held[2]).rotten(t, x, 70_000)
	var corrupt *blobfs.CorruptError
	for _, reader := range c.all {
		r, err := reader.OpenBlob(t.Context(), h)
		noError(t, err)
		if _, err := r.ReadAt(make([]byte, 8000), 69_000); !errors.As(err, &corrupt) {
			t.Errorf("with no good replica: %v", err)
		}
		r.Close()
	}
	// A wrong handle makes no replica rotten.
	wrong := put(t, c.all[0].Store, blobtest.Bytes(2, 250_000))
	wrong.ID, wrong.Extents[0].CRC = put(t, c.all[0].Store, data).ID, 7
	if _, err := c.all[0].OpenBlob(t.Context(), wrong); !errors.As(err, &corrupt) {
		t.Errorf("wrong handle: %v", err)
	}
	for _, n := range c.all {
		if len(n.Rotten()) > 1 {
			t.Errorf("%s: %v", n.id, n.Rotten())
		}
	}
}

// full leaves a node no room for another extent, and gives what it has back.
func (n *node) full(full bool) {
	for _, f := range []string{"/a", "/b"} {
		if full {
			n.fs.SetCapacity(f, 1)
		} else {
			n.fs.SetCapacity(f, 1<<30)
		}
	}
}

func TestFullDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNodes(t, nodesConfig{virtual: true, n: 5})
		data := blobtest.Bytes(1, 600_000)
		// The fleet does not know yet.
		c.all[1].full(true)
		c.all[2].full(true)
		h := put(t, c.all[0].Store, data)
		if c.holders(h) != 3 {
			t.Errorf("two of five full: %+v", h.Extents)
		}
		// The writer's own disk is full, from the start and then in mid-stream.
		c.all[2].full(false)
		c.all[0].full(true)
		h = put(t, c.all[0].Store, data)
		if c.holders(h) != 3 {
			t.Errorf("writer and another full: %+v", h.Extents)
		}
		get(t, c.all[0].Store, h, data)
		c.all[0].full(false)
		h, err := cutWrite(t, c.all[0].Store, data, 300_000, func() { c.all[0].full(true) })
		noError(t, err)
		if c.holders(h) != 3 {
			t.Errorf("writer full in mid-stream: %+v", h.Extents)
		}
		get(t, c.all[0].Store, h, data)

		before := c.files()
		for _, n := range c.all {
			n.full(true)
		}
		if _, err := c.all[0].Create(t.Context()); !errors.Is(err, blobfs.ErrDiskFull) {
			t.Errorf("all full: %v", err)
		}
		if after := c.files(); after != before {
			t.Errorf("%d files became %d", before, after)
		}
		for _, n := range c.all {
			n.full(false)
		}
		if h := put(t, c.all[0].Store, data); c.holders(h) != 3 {
			t.Errorf("with room again: %+v", h.Extents)
		}
	})
}

func (c *nodes) files() (n int) {
	for _, node := range c.all {
		for _, dir := range []string{"/a/blobs", "/b/blobs"} {
			names, _ := node.fs.ReadDir(dir)
			n += len(names)
		}
	}
	return n
}

// A blob that is given up leaves nothing, on any node.
func TestAbortLeavesNothing(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 4})
	w, err := c.all[0].Create(t.Context())
	noError(t, err)
	_, err = w.Write(blobtest.Bytes(1, 900_000))
	noError(t, err)
	w.Abort()
	c.eventually("no file is left", func() bool { return c.files() == 0 })

	h := put(t, c.all[0].Store, blobtest.Bytes(1, 900_000))
	noError(t, c.all[3].Delete(t.Context(), h.ID)) // from any node
	if n := c.files(); n != 0 {
		t.Errorf("%d files of a deleted blob", n)
	}
	if err := c.all[1].Delete(t.Context(), h.ID); !errors.Is(err, blobfs.ErrNoBlob) {
		t.Errorf("deleted twice: %v", err)
	}
}

func (c *nodes) eventually(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not in time: %s", what)
		}
	}
}

// What is begun and never continued goes away by itself.
func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := quick
		cluster.StreamIdle = 50 * time.Millisecond
		c := newNodes(t, nodesConfig{virtual: true, n: 3, cluster: cluster})
		data := blobtest.Bytes(1, 500_000)
		h, err := cutWrite(t, c.all[0].Store, data, 250_000, func() {
			c.eventually("streams are given up", func() bool { return !c.all[1].hasTemporary() && !c.all[2].hasTemporary() })
		})
		noError(t, err) // the writer begins them anew
		get(t, c.all[2].Store, h, data)
	})
}

// A stream whose writer could not say that it gave this node up does not keep a copy out for longer than writers wait.
func TestCopyOverOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := quick
		cluster.ReplyTimeout = 5 * time.Second
		c := newNodes(t, nodesConfig{virtual: true, n: 4, cluster: cluster})
		data := blobtest.Bytes(1, 200_000)
		h := put(t, c.all[0].Store, data)
		out := c.all[slices.IndexFunc(c.all, func(n *node) bool { return !slices.Contains(h.Extents[0].Replicas, n.id) })]
		peer := out.Peer()
		x := blobfs.ExtentID{Blob: h.ID}
		stream, begun := api.StreamID{1}, make(chan error, 2)
		peer.Begin(t.Context(), api.Begin{Stream: stream, Extent: x}, func(err error) { begun <- err })
		noError(t, <-begun)
		copied := func() error {
			return peer.Copy(t.Context(), api.Copy{Ref: api.Ref{Extent: x, CRC: h.Extents[0].CRC}, From: h.Extents[0].Replicas})
		}
		time.Sleep(4 * time.Second)
		if err := copied(); !errors.Is(err, api.ErrExtentExists) {
			t.Errorf("over a stream that may go on: %v", err)
		}
		peer.Piece(t.Context(), stream, 0, data[:64<<10], func(err error) { begun <- err })
		noError(t, <-begun)
		time.Sleep(4 * time.Second)
		if err := copied(); !errors.Is(err, api.ErrExtentExists) {
			t.Errorf("over a stream that goes on: %v", err)
		}
		time.Sleep(2 * time.Second)
		noError(t, copied())
		if _, err := peer.Resume(t.Context(), stream); !errors.Is(err, api.ErrNoStream) {
			t.Errorf("the stream goes on: %v", err)
		}
		noError(t, out.VerifyExtent(t.Context(), x))
	})
}

// The rest of what a peer offers, over the wire.
func TestPeer(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 4})
	data := blobtest.Bytes(1, 1_200_000)
	h := put(t, c.all[0].Store, data)
	out := c.all[slices.IndexFunc(c.all, func(n *node) bool { return !slices.Contains(h.Extents[0].Replicas, n.id) })]
	peer, err := fleet{c.all[0]}.Peer(t.Context(), out.id)
	if out == c.all[0] || err != nil {
		t.Fatal(out.id, err)
	}
	ctx := t.Context()
	for i, ref := range h.Extents {
		x := blobfs.ExtentID{Blob: h.ID, Index: i}
		_, _ = peer.DropBlob(ctx, blobfs.NewID(), api.Surplus)
		_ = peer.Drop(ctx, x, api.Surplus)
		list := blobfs.Holders{Epoch: 7, Nodes: []string{"n1", out.id}}
		noError(t, peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: ref.CRC}, From: []string{"gone", ref.Replicas[0]}, Holders: list}))
		noError(t, peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: ref.CRC}, From: nil, Holders: list})) // it has it
		st, err := peer.Stat(ctx, x)
		noError(t, err)
		if st.Length != ref.Length || st.CRC != ref.CRC || st.Last != (i == len(h.Extents)-1) || st.Offset != int64(i)*256<<10 || st.Holders.Epoch != 7 || st.Created.IsZero() {
			t.Errorf("copied as %+v", st)
		}
		noError(t, out.VerifyExtent(ctx, x))
		if err := peer.SetHolders(ctx, x, blobfs.Holders{Epoch: 6}); !errors.Is(err, api.ErrStaleHolders) {
			t.Errorf("stale holders: %v", err)
		}
	}
	x := blobfs.ExtentID{Blob: h.ID}
	infos, err := peer.List(ctx, blobfs.ExtentID{Index: -1}, 100)
	noError(t, err)
	if len(infos) < len(h.Extents) || infos[0].ID != x || infos[0].Holders.Epoch != 7 {
		t.Errorf("list %+v", infos)
	}
	var corrupt *blobfs.CorruptError
	other := api.Copy{Ref: api.Ref{Extent: blobfs.ExtentID{Blob: blobfs.NewID()}, CRC: 1}, From: []string{"n1"}}
	for _, bad := range []struct{ err, want error }{
		{peer.Read(ctx, api.Ref{Extent: x, CRC: 1}, make([]byte, 10), 0), nil},
		{peer.Read(ctx, api.Ref{Extent: blobfs.ExtentID{Blob: h.ID, Index: 99}}, nil, 0), local.ErrNoExtent},
		{peer.Copy(ctx, other), local.ErrNoExtent},
		{peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: 1}, From: []string{"n1"}}), local.ErrExtentExists},
		{peer.Read(ctx, api.Ref{Extent: x}, make([]byte, api.PieceBytesMax+1), 0), api.ErrBadRequest},
		{peer.Drop(ctx, x, 99), api.ErrBadRequest},
		{peer.Abort(ctx, api.StreamID{1}), api.ErrNoStream},
	} {
		if bad.want == nil && !errors.As(bad.err, &corrupt) || bad.want != nil && !errors.Is(bad.err, bad.want) {
			t.Errorf("error %v, want %v", bad.err, bad.want)
		}
	}
	n, err := peer.DropBlob(ctx, h.ID, api.Surplus)
	if err != nil || n != len(h.Extents) {
		t.Errorf("dropped %d, %v", n, err)
	}
	get(t, out.Store, h, data)
}

var faultSeed = flag.Uint64("fault.seed", 0, "run only this seed of the random faults")

// TestRandomFaults writes blobs while nodes die, fall silent, fill up and rot, and reads all of
// them afterwards. Every extent that was sealed while nodes lived is readable.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if soak, err := strconv.ParseUint(os.Getenv("STELE_SOAK"), 10, 32); err == nil {
		seeds *= soak
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		if *faultSeed != 0 && *faultSeed != seed {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("replay: go test ./blobfs -run TestRandomFaults -fault.seed %d", seed)
			synctest.Test(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

func randomFaults(t *testing.T, rng *rand.Rand) {
	c := newNodes(t, nodesConfig{n: 6, cluster: quick, virtual: true})
	type blob struct {
		h    blobfs.Handle
		data []byte
	}
	var blobs []blob
	kills, rots := 0, 0
	for i := range 8 {
		data := blobtest.Bytes(rng.Uint64(), rng.IntN(1<<20))
		var writer *node
		for writer == nil || writer.dead {
			writer = c.all[rng.IntN(len(c.all))]
		}
		h, err := cutWrite(t, writer.Store, data, rng.IntN(len(data)+100_000), func() {
			victim := c.all[rng.IntN(len(c.all))]
			switch k := rng.IntN(5); {
			case k == 0 && kills < 2 && victim != writer:
				kills++
				victim.kill()
			case k == 1:
				victim.full(true)
			case k == 2:
				for _, v := range c.all {
					v.full(false)
				}
			case k == 3 && victim != writer:
				to := c.all[rng.IntN(len(c.all))]
				c.cut[[2]string{victim.id, to.id}].Store(true)
			case k == 4 && rots == 0 && len(blobs) > 0 && kills == 0:
				b := blobs[rng.IntN(len(blobs))]
				if n := c.get(b.h.Extents[0].Replicas[0]); !n.dead && len(b.data) > 0 && len(b.h.Extents[0].Replicas) > 1 {
					rots++
					n.rotten(t, blobfs.ExtentID{Blob: b.h.ID}, rng.Int64N(b.h.Extents[0].Length))
				}
			}
		})
		if err != nil {
			if !errors.Is(err, blobfs.ErrDiskFull) && !errors.Is(err, api.ErrUnreachable) {
				t.Errorf("blob %d: %v", i, err)
			}
			continue
		}
		blobs = append(blobs, blob{h, data})
	}
	for _, b := range c.cut {
		b.Store(false)
	}
	for _, n := range c.all {
		if n.dead {
			continue
		}
		for _, b := range blobs {
			lost := slices.ContainsFunc(b.h.Extents, func(ref blobfs.ExtentRef) bool {
				return !slices.ContainsFunc(ref.Replicas, func(id string) bool {
					return !c.get(id).dead && c.get(id).VerifyExtent(t.Context(), blobfs.ExtentID{Blob: b.h.ID, Index: ref.Index}) == nil
				})
			})
			if !lost {
				get(t, n.Store, b.h, b.data)
			}
		}
		noError(t, n.Store.Verify(t.Context(), func(p blobfs.Problem) {
			if rots == 0 {
				t.Errorf("%s: %v", n.id, p)
			}
		}))
	}
}
