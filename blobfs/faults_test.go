package blobfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
)

func TestReplicasAndZones(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 6, Zones: 3})
	for i := range 10 {
		writer := c.All[i%6]
		h := clustertest.Put(t, writer.Store, blobtest.Bytes(uint64(i), 700_000))
		if c.Holders(h) != 3 {
			t.Errorf("fewer than 3 replicas: %+v", h)
		}
		for _, ref := range h.Extents {
			zones := map[string]bool{}
			for _, id := range ref.Replicas {
				zones[c.Members[slices.Index(c.All, c.Get(id))].Zone] = true
			}
			if ref.Replicas[0] != writer.ID || len(zones) != 3 {
				t.Errorf("written by %s: replicas on %v, zones %v", writer.ID, ref.Replicas, zones)
			}
		}
		for _, n := range c.All {
			clustertest.Get(t, n.Store, h, blobtest.Bytes(uint64(i), 700_000))
		}
	}
}

func TestFewerLiveThanReplicas(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 4})
	data := blobtest.Bytes(1, 300_000)
	for live := 3; live >= 1; live-- {
		c.Change(c.All[live].ID, func(m *blobfs.Member) { m.Alive = false })
		h := clustertest.Put(t, c.All[0].Store, data)
		if got := c.Holders(h); got != min(live, 3) {
			t.Errorf("%d replicas of %d live nodes", got, live)
		}
		clustertest.Get(t, c.All[3].Store, h, data) // a node reported as dead may still read
	}
}

// A node that is draining or full keeps no replica, but writes and reads.
func TestDrainingWriter(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 5})
	c.Change("n1", func(m *blobfs.Member) { m.Draining = true })
	c.Change("n2", func(m *blobfs.Member) { m.FreeBytes = 0 })
	data := blobtest.Bytes(1, 600_000)
	h := clustertest.Put(t, c.All[0].Store, data)
	if c.Holders(h) != 3 {
		t.Errorf("replicas: %+v", h.Extents)
	}
	for _, ref := range h.Extents {
		if slices.Contains(ref.Replicas, "n1") || slices.Contains(ref.Replicas, "n2") {
			t.Errorf("replicas on %v", ref.Replicas)
		}
	}
	clustertest.Get(t, c.All[0].Store, h, data)
	// Without other nodes it keeps the replica.
	for _, n := range c.All[1:] {
		c.Change(n.ID, func(m *blobfs.Member) { m.Draining = true })
	}
	if h := clustertest.Put(t, c.All[0].Store, data); h.Extents[0].Replicas[0] != "n1" || c.Holders(h) != 1 {
		t.Errorf("without other nodes: %+v", h.Extents)
	}
}

// cutWrite writes a blob and calls fault once at bytes of it are written.
func cutWrite(t *testing.T, s *blobfs.Store, data []byte, at int, fault func()) (blobfs.Handle, error) {
	t.Helper()
	w, err := s.Create(t.Context())
	clustertest.NoError(t, err)
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

// A replica that dies in mid-stream is replaced, at any place in the chain and any point of the
// stream.
func TestReplicaDiesInMidStream(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, at := range []int{0, 100_000, 500_000, 700_000, len(data)} {
		for place := 1; place <= 2; place++ {
			t.Run(fmt.Sprintf("%d-of-chain-at-%d", place, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := clustertest.New(t, clustertest.Config{N: 5, Cluster: clustertest.Quick, Virtual: true})
					var victim *clustertest.Node
					h, err := cutWrite(t, c.All[0].Store, data, at, func() {
						victim = c.Victim(c.All[0], place)
						victim.Kill()
					})
					clustertest.NoError(t, err)
					if c.AliveHolders(h) != 3 {
						t.Errorf("after %s died: %+v", victim.ID, h.Extents)
					}
					for _, n := range c.All {
						if n != victim {
							clustertest.Get(t, n.Store, h, data)
						}
					}
				})
			})
		}
	}
}

// The same for a writer without a local replica: bytes that only the dead node had are sent again.
func TestReplicaDiesWithoutWriters(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, at := range []int{0, 100_000, 500_000, 700_000, len(data)} {
		for place := 1; place <= 3; place++ {
			synctest.Test(t, func(t *testing.T) {
				c := clustertest.New(t, clustertest.Config{N: 6, Cluster: clustertest.Quick, Extent: 512 << 10, Virtual: true})
				c.Change("n1", func(m *blobfs.Member) { m.Draining = true })
				var victim *clustertest.Node
				h, err := cutWrite(t, c.All[0].Store, data, at, func() {
					victim = c.Victim(c.All[0], place)
					victim.Kill()
				})
				clustertest.NoError(t, err)
				if c.AliveHolders(h) != 3 {
					t.Errorf("after %s died at %d: %+v", victim.ID, at, h.Extents)
				}
				for _, n := range c.All {
					if n != victim {
						clustertest.Get(t, n.Store, h, data)
					}
				}
			})
		}
	}
}

// A node that is cut off in one direction is replaced like a dead one.
func TestOneWayPartitions(t *testing.T) {
	data := blobtest.Bytes(1, 900_000)
	for _, silent := range []bool{false, true} {
		for _, at := range []int{0, 400_000, len(data)} {
			t.Run(fmt.Sprintf("silent-%v-at-%d", silent, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := clustertest.New(t, clustertest.Config{N: 4, Cluster: clustertest.Quick, Virtual: true})
					var victim *clustertest.Node
					h, err := cutWrite(t, c.All[0].Store, data, at, func() {
						victim = c.Victim(c.All[0], 1)
						for _, n := range c.All {
							if silent {
								c.Cut[[2]string{victim.ID, n.ID}].Store(true)
							} else {
								c.Cut[[2]string{n.ID, victim.ID}].Store(true)
							}
						}
					})
					clustertest.NoError(t, err)
					if c.AliveHolders(h) != 3 {
						t.Errorf("without %s: %+v", victim.ID, h.Extents)
					}
					for _, n := range c.All {
						if n != victim {
							clustertest.Get(t, n.Store, h, data)
						}
					}
				})
			})
		}
	}
}

// A writer that is cut off from all others continues alone.
func TestWriterCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 3, Cluster: clustertest.Quick})
		data := blobtest.Bytes(1, 600_000)
		h, err := cutWrite(t, c.All[0].Store, data, 300_000, func() {
			for _, n := range c.All[1:] {
				c.Cut[[2]string{"n1", n.ID}].Store(true)
			}
		})
		clustertest.NoError(t, err)
		if last := h.Extents[len(h.Extents)-1]; !slices.Equal(last.Replicas, []string{"n1"}) {
			t.Errorf("last extent on %v", last.Replicas)
		}
		clustertest.Get(t, c.All[0].Store, h, data)
		start := time.Now()
		clustertest.Put(t, c.All[0].Store, data)
		if d := time.Since(start); d > 4*clustertest.Quick.ReplyTimeout {
			t.Errorf("a second blob took %v: silent nodes are asked again", d)
		}
	})
}

func TestStaleHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 7, Cluster: clustertest.Quick})
		data := blobtest.Bytes(1, 600_000)
		h := clustertest.Put(t, c.All[0].Store, data)
		held := h.Extents[0].Replicas
		for i := range h.Extents {
			h.Extents[i].Replicas = []string{"gone", "n7", "n6"}
		}
		for _, n := range c.All {
			clustertest.Get(t, n.Store, h, data)
		}
		// One good replica is enough, even if the membership reports its node as dead.
		for _, id := range held[:2] {
			c.Get(id).Kill()
		}
		c.Change(held[2], func(m *blobfs.Member) { m.Alive = false })
		for _, n := range c.All {
			if !n.Dead {
				r, err := n.OpenBlob(t.Context(), blobfs.Handle{ID: h.ID, Length: h.Extents[0].Length, Extents: h.Extents[:1]})
				clustertest.NoError(t, err)
				p := make([]byte, 1000)
				if _, err := r.ReadAt(p, 4000); err != nil || !bytes.Equal(p, data[4000:5000]) {
					t.Errorf("%s: %v", n.ID, err)
				}
				r.Close()
			}
		}
		// Without the last one the error is not that there is no such blob.
		c.Get(held[2]).Kill()
		for _, n := range c.All {
			if !n.Dead {
				if _, err := n.OpenBlob(t.Context(), h); !errors.Is(err, api.ErrUnreachable) || errors.Is(err, blobfs.ErrNoBlob) {
					t.Errorf("%s: %v", n.ID, err)
				}
			}
		}
	})
}

// A reader continues when the node that it reads from dies.
func TestReaderOutlivesReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 5, Cluster: clustertest.Quick})
		data := blobtest.Bytes(1, 250_000)
		h := clustertest.Put(t, c.All[0].Store, data)
		held := h.Extents[0].Replicas
		reader := c.All[slices.IndexFunc(c.All, func(n *clustertest.Node) bool { return !slices.Contains(held, n.ID) })]
		r, err := reader.OpenBlob(t.Context(), h)
		clustertest.NoError(t, err)
		defer r.Close()
		p := make([]byte, 90_000)
		for _, id := range append([]string{""}, held[:2]...) {
			if id != "" {
				c.Get(id).Kill()
			}
			clustertest.NoError(t, r.ReadChecked(p, 100_000, func(p []byte) error {
				if !bytes.Equal(p, data[100_000:190_000]) {
					return errors.New("wrong bytes")
				}
				return nil
			}))
		}
	})
}

// An aborted blob leaves nothing on any node.
func TestAbortLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 4})
		w, err := c.All[0].Create(t.Context())
		clustertest.NoError(t, err)
		_, err = w.Write(blobtest.Bytes(1, 900_000))
		clustertest.NoError(t, err)
		w.Abort()
		c.Eventually("no file left", func() bool { return c.Files() == 0 })

		h := clustertest.Put(t, c.All[0].Store, blobtest.Bytes(1, 900_000))
		clustertest.NoError(t, c.All[3].Delete(t.Context(), h.ID)) // from any node
		if n := c.Files(); n != 0 {
			t.Errorf("%d files of a deleted blob", n)
		}
		if err := c.All[1].Delete(t.Context(), h.ID); !errors.Is(err, blobfs.ErrNoBlob) {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

// A stream that was begun and not continued is dropped.
func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Quick
		cluster.StreamIdle = 50 * time.Millisecond
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 3, Cluster: cluster})
		data := blobtest.Bytes(1, 500_000)
		h, err := cutWrite(t, c.All[0].Store, data, 250_000, func() {
			c.Eventually("streams are dropped", func() bool { return !c.All[1].HasTemporary() && !c.All[2].HasTemporary() })
		})
		clustertest.NoError(t, err) // the writer begins them again
		clustertest.Get(t, c.All[2].Store, h, data)
	})
}

// A stream whose writer could not abort it blocks a copy no longer than writers wait.
func TestCopyOverOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Quick
		cluster.ReplyTimeout = 5 * time.Second
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 4, Cluster: cluster})
		data := blobtest.Bytes(1, 200_000)
		h := clustertest.Put(t, c.All[0].Store, data)
		out := c.All[slices.IndexFunc(c.All, func(n *clustertest.Node) bool { return !slices.Contains(h.Extents[0].Replicas, n.ID) })]
		peer := out.Peer()
		x := blobfs.ExtentID{Blob: h.ID}
		stream, begun := api.StreamID{1}, make(chan error, 2)
		peer.Begin(t.Context(), api.Begin{Stream: stream, Extent: x}, func(err error) { begun <- err })
		clustertest.NoError(t, <-begun)
		copied := func() error {
			return peer.Copy(t.Context(), api.Copy{Ref: api.Ref{Extent: x, CRC: h.Extents[0].CRC}, From: h.Extents[0].Replicas})
		}
		time.Sleep(4 * time.Second)
		if err := copied(); !errors.Is(err, api.ErrExtentExists) {
			t.Errorf("over a stream that may go on: %v", err)
		}
		peer.Piece(t.Context(), stream, 0, data[:64<<10], func(err error) { begun <- err })
		clustertest.NoError(t, <-begun)
		time.Sleep(4 * time.Second)
		if err := copied(); !errors.Is(err, api.ErrExtentExists) {
			t.Errorf("over a stream that goes on: %v", err)
		}
		time.Sleep(2 * time.Second)
		clustertest.NoError(t, copied())
		if _, err := peer.Resume(t.Context(), stream); !errors.Is(err, api.ErrNoStream) {
			t.Errorf("the stream goes on: %v", err)
		}
		clustertest.NoError(t, out.VerifyExtent(t.Context(), x))
	})
}

// The other methods of a peer, over the wire.
func TestPeer(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 4})
	data := blobtest.Bytes(1, 1_200_000)
	h := clustertest.Put(t, c.All[0].Store, data)
	out := c.All[slices.IndexFunc(c.All, func(n *clustertest.Node) bool { return !slices.Contains(h.Extents[0].Replicas, n.ID) })]
	peer, err := clustertest.Membership{N: c.All[0]}.Peer(t.Context(), out.ID)
	if out == c.All[0] || err != nil {
		t.Fatal(out.ID, err)
	}
	ctx := t.Context()
	for i, ref := range h.Extents {
		x := blobfs.ExtentID{Blob: h.ID, Index: i}
		_, _ = peer.DropBlob(ctx, blobfs.NewID(), api.Surplus)
		_ = peer.Drop(ctx, x, api.Surplus)
		list := blobfs.Holders{Epoch: 7, Nodes: []string{"n1", out.ID}}
		clustertest.NoError(t, peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: ref.CRC}, From: []string{"gone", ref.Replicas[0]}, Holders: list}))
		clustertest.NoError(t, peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: ref.CRC}, From: nil, Holders: list})) // it has the extent already
		st, err := peer.Stat(ctx, x)
		clustertest.NoError(t, err)
		if st.Length != ref.Length || st.CRC != ref.CRC || st.Last != (i == len(h.Extents)-1) || st.Offset != int64(i)*256<<10 || st.Holders.Epoch != 7 || st.Created.IsZero() {
			t.Errorf("copied as %+v", st)
		}
		clustertest.NoError(t, out.VerifyExtent(ctx, x))
		if err := peer.SetHolders(ctx, x, blobfs.Holders{Epoch: 6}); !errors.Is(err, api.ErrStaleHolders) {
			t.Errorf("stale holders: %v", err)
		}
	}
	x := blobfs.ExtentID{Blob: h.ID}
	infos, err := peer.List(ctx, blobfs.ExtentID{Index: -1}, 100)
	clustertest.NoError(t, err)
	if len(infos) < len(h.Extents) || infos[0].ID != x || infos[0].Holders.Epoch != 7 {
		t.Errorf("list %+v", infos)
	}
	var corrupt *blobfs.CorruptError
	other := api.Copy{Ref: api.Ref{Extent: blobfs.ExtentID{Blob: blobfs.NewID()}, CRC: 1}, From: []string{"n1"}}
	aborted := make(chan error, 1)
	peer.Abort(ctx, api.StreamID{1}, func(err error) { aborted <- err })
	for _, bad := range []struct{ err, want error }{
		{peer.Read(ctx, api.Ref{Extent: x, CRC: 1}, make([]byte, 10), 0), nil},
		{peer.Read(ctx, api.Ref{Extent: blobfs.ExtentID{Blob: h.ID, Index: 99}}, nil, 0), local.ErrNoExtent},
		{peer.Copy(ctx, other), local.ErrNoExtent},
		{peer.Copy(ctx, api.Copy{Ref: api.Ref{Extent: x, CRC: 1}, From: []string{"n1"}}), local.ErrExtentExists},
		{peer.Read(ctx, api.Ref{Extent: x}, make([]byte, api.PieceBytesMax+1), 0), api.ErrBadRequest},
		{peer.Drop(ctx, x, 99), api.ErrBadRequest},
		{<-aborted, api.ErrNoStream},
	} {
		if bad.want == nil && !errors.As(bad.err, &corrupt) || bad.want != nil && !errors.Is(bad.err, bad.want) {
			t.Errorf("error %v, want %v", bad.err, bad.want)
		}
	}
	n, err := peer.DropBlob(ctx, h.ID, api.Surplus)
	if err != nil || n != len(h.Extents) {
		t.Errorf("dropped %d, %v", n, err)
	}
	clustertest.Get(t, out.Store, h, data)
}
