package blobfs_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/internal/vfs"
)

// flip changes the byte of a file at off.
func flip(t *testing.T, f vfs.File, off int64) {
	t.Helper()
	var b [1]byte
	_, err := f.ReadAt(b[:], off)
	noError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b[:], off)
	noError(t, err)
}

// corruptReplica flips a byte in a node's replica.
func (n *node) corruptReplica(t *testing.T, x blobfs.ExtentID, off int64) {
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
			flip(t, f, 4096+off)
			return
		}
	}
	t.Fatalf("%s has no %s", n.id, x)
}

// I7: a corrupt replica is never served, here or elsewhere, and its node records the corruption.
func TestCorruptReplicas(t *testing.T) {
	c := newNodes(t, nodesConfig{n: 4, cluster: quick})
	data := blobtest.Bytes(1, 250_000)
	h := put(t, c.all[0].Store, data)
	held := h.Extents[0].Replicas
	x := blobfs.ExtentID{Blob: h.ID}
	for i, id := range held[:2] {
		n := c.get(id)
		n.corruptReplica(t, x, 70_000)
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
		if len(c.get(held[0]).Corrupt()) != 1 || i == 1 && n.Corrupt()[x] == nil {
			t.Errorf("%s has not recorded its corrupt replica", n.id)
		}
	}
	c.get(held[2]).corruptReplica(t, x, 70_000)
	var corrupt *blobfs.CorruptError
	for _, reader := range c.all {
		r, err := reader.OpenBlob(t.Context(), h)
		noError(t, err)
		if _, err := r.ReadAt(make([]byte, 8000), 69_000); !errors.As(err, &corrupt) {
			t.Errorf("with no good replica: %v", err)
		}
		r.Close()
	}
	// A wrong handle marks no replica as corrupt.
	wrong := put(t, c.all[0].Store, blobtest.Bytes(2, 250_000))
	wrong.ID, wrong.Extents[0].CRC = put(t, c.all[0].Store, data).ID, 7
	if _, err := c.all[0].OpenBlob(t.Context(), wrong); !errors.As(err, &corrupt) {
		t.Errorf("wrong handle: %v", err)
	}
	for _, n := range c.all {
		if len(n.Corrupt()) > 1 {
			t.Errorf("%s: %v", n.id, n.Corrupt())
		}
	}
}

// full leaves a node no space for another extent, or frees that space again.
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
		// The membership does not report it yet.
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
			t.Errorf("with space again: %+v", h.Extents)
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
