package blobfs_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
)

// I7: a corrupt replica is never served, here or elsewhere, and its node records the corruption.
func TestCorruptReplicas(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 4, Cluster: clustertest.Quick})
	data := blobtest.Bytes(1, 250_000)
	h := clustertest.Put(t, c.All[0].Store, data)
	held := h.Extents[0].Replicas
	x := blobfs.ExtentID{Blob: h.ID}
	for i, id := range held[:2] {
		n := c.Get(id)
		n.CorruptReplica(t, x, 70_000)
		for range 2 {
			for _, reader := range c.All {
				clustertest.Get(t, reader.Store, h, data)
				r, err := reader.OpenBlob(t.Context(), h)
				clustertest.NoError(t, err)
				clustertest.NoError(t, r.ReadChecked(make([]byte, 8000), 69_000, func(p []byte) error {
					if !bytes.Equal(p, data[69_000:77_000]) {
						return errors.New("wrong bytes")
					}
					return nil
				}))
				r.Close()
			}
		}
		if len(c.Get(held[0]).Corrupt()) != 1 || i == 1 && n.Corrupt()[x] == nil {
			t.Errorf("%s has not recorded its corrupt replica", n.ID)
		}
	}
	c.Get(held[2]).CorruptReplica(t, x, 70_000)
	var corrupt *blobfs.CorruptError
	for _, reader := range c.All {
		r, err := reader.OpenBlob(t.Context(), h)
		clustertest.NoError(t, err)
		if _, err := r.ReadAt(make([]byte, 8000), 69_000); !errors.As(err, &corrupt) {
			t.Errorf("with no good replica: %v", err)
		}
		r.Close()
	}
	// A wrong handle marks no replica as corrupt.
	wrong := clustertest.Put(t, c.All[0].Store, blobtest.Bytes(2, 250_000))
	wrong.ID, wrong.Extents[0].CRC = clustertest.Put(t, c.All[0].Store, data).ID, 7
	if _, err := c.All[0].OpenBlob(t.Context(), wrong); !errors.As(err, &corrupt) {
		t.Errorf("wrong handle: %v", err)
	}
	for _, n := range c.All {
		if len(n.Corrupt()) > 1 {
			t.Errorf("%s: %v", n.ID, n.Corrupt())
		}
	}
}

func TestFullDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Virtual: true, N: 5})
		data := blobtest.Bytes(1, 600_000)
		// The membership does not report it yet.
		c.All[1].Full(true)
		c.All[2].Full(true)
		h := clustertest.Put(t, c.All[0].Store, data)
		if c.Holders(h) != 3 {
			t.Errorf("two of five full: %+v", h.Extents)
		}
		// The writer's own disk is full, from the start and then in mid-stream.
		c.All[2].Full(false)
		c.All[0].Full(true)
		h = clustertest.Put(t, c.All[0].Store, data)
		if c.Holders(h) != 3 {
			t.Errorf("writer and another full: %+v", h.Extents)
		}
		clustertest.Get(t, c.All[0].Store, h, data)
		c.All[0].Full(false)
		h, err := cutWrite(t, c.All[0].Store, data, 300_000, func() { c.All[0].Full(true) })
		clustertest.NoError(t, err)
		if c.Holders(h) != 3 {
			t.Errorf("writer full in mid-stream: %+v", h.Extents)
		}
		clustertest.Get(t, c.All[0].Store, h, data)

		before := c.Files()
		for _, n := range c.All {
			n.Full(true)
		}
		if _, err := c.All[0].Create(t.Context()); !errors.Is(err, blobfs.ErrDiskFull) {
			t.Errorf("all full: %v", err)
		}
		if after := c.Files(); after != before {
			t.Errorf("%d files became %d", before, after)
		}
		for _, n := range c.All {
			n.Full(false)
		}
		if h := clustertest.Put(t, c.All[0].Store, data); c.Holders(h) != 3 {
			t.Errorf("with space again: %+v", h.Extents)
		}
	})
}
