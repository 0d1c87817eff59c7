package blobfs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/replog"
)

const vitalReserve = 4 << 20

// fullNodes are nodes whose folders are full, as the membership reports, except for high-priority
// data.
func fullNodes(t *testing.T, n int) (*nodes, *lists) {
	l := newLists()
	cfg := quick
	cfg.Lists, cfg.Logs = l, replog.Config{DeadlineMin: 2 * time.Second, Retry: 20 * time.Millisecond, Avoid: 200 * time.Millisecond}
	c := newNodes(t, nodesConfig{n: n, cluster: cfg, reserve: vitalReserve})
	for _, n := range c.all {
		c.setFull(n, true)
	}
	return c, l
}

// setFull leaves a node's folders less than an extent above their reserve, or much space.
func (c *nodes) setFull(n *node, full bool) {
	room := int64(1 << 30)
	if full {
		room = 100 << 10
	}
	for _, dir := range []string{"/a", "/b"} {
		n.fs.SetCapacity(dir, 0)
		used := int64(0)
		for _, f := range n.Stats().Folders {
			if f.Path == dir {
				used = f.BlobBytes + f.LogBytes
			}
		}
		n.fs.SetCapacity(dir, used+vitalReserve+room)
	}
	c.change(n.id, func(m *blobfs.Member) {
		if m.FreeBytes = 1 << 40; full {
			m.FreeBytes = 0
		}
	})
}

func putHighPriority(t *testing.T, s *blobfs.Store, data []byte) blobfs.Handle {
	t.Helper()
	w, err := s.CreateHighPriority(t.Context(), int64(len(data)))
	noError(t, err)
	_, err = w.Write(data)
	noError(t, err)
	h, err := w.Seal(t.Context())
	noError(t, err)
	return h
}

// High-priority data is written with all its replicas although all nodes are full for anything
// else. Nodes with space come first, and draining ones get none.
func TestHighPriorityBlobsOnFullNodes(t *testing.T) {
	c, _ := fullNodes(t, 6)
	n1 := c.all[0]
	refused := func() {
		t.Helper()
		if _, err := n1.Create(t.Context()); !errors.Is(err, blobfs.ErrDiskFull) {
			t.Fatalf("a blob without high priority: %v", err)
		}
	}
	on := func(h blobfs.Handle, nodes ...string) {
		t.Helper()
		for _, x := range h.Extents {
			if got := slices.Sorted(slices.Values(x.Replicas)); !slices.Equal(got, nodes) {
				t.Errorf("extent %d is on %v, want %v", x.Index, got, nodes)
			}
		}
	}
	refused()
	data := blobtest.Bytes(1, 600_000)
	h := putHighPriority(t, n1.Store, data)
	if c.holders(h) != 3 {
		t.Errorf("replicas: %+v", h.Extents)
	}
	for _, n := range c.all {
		get(t, n.Store, h, data)
	}
	refused()

	c.setFull(c.all[3], false)
	c.setFull(c.all[5], false)
	on(putHighPriority(t, n1.Store, data), "n1", "n4", "n6")
	c.setFull(c.all[5], true)
	for _, id := range []string{"n2", "n3", "n6"} {
		c.change(id, func(m *blobfs.Member) { m.Draining = true })
	}
	on(putHighPriority(t, n1.Store, data), "n1", "n4", "n5")
	c.change("n5", func(m *blobfs.Member) { m.Draining = true })
	on(putHighPriority(t, n1.Store, data), "n1", "n4")
}

// Replicas made by repair have no high priority: they wait for space.
func TestCopiesHaveNoPriority(t *testing.T) {
	c, _ := fullNodes(t, 3)
	for _, n := range c.all[1:] {
		c.change(n.id, func(m *blobfs.Member) { m.Alive = false })
	}
	h := putHighPriority(t, c.all[0].Store, blobtest.Bytes(1, 100_000))
	err := c.all[1].Peer().Copy(t.Context(), api.Copy{
		Ref:  api.Ref{Extent: blobfs.ExtentID{Blob: h.ID}, CRC: h.Extents[0].CRC},
		From: []string{"n1"}, Holders: blobfs.Holders{Epoch: 9, Nodes: []string{"n1", "n2"}},
	})
	if !errors.Is(err, blobfs.ErrDiskFull) {
		t.Errorf("copy to a full node: %v", err)
	}
}

// A high-priority log is created and continues when no node has space for another.
func TestHighPriorityLogOnFullNodes(t *testing.T) {
	c, l := fullNodes(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n1 := c.all[0]
	if _, err := n1.ReplicatedLogs().Create(ctx, "s1", blobfs.NewID()); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("a log without high priority: %v", err)
	}
	id := blobfs.NewID()
	w, err := n1.ReplicatedLogs().CreateHighPriority(ctx, "s1", id)
	noError(t, err)
	var want []logRecord
	for i := range 12 { // two extents, and what comes after
		p := blobtest.Bytes(uint64(i), 50_000)
		pos, err := w.Append(ctx, p)
		noError(t, err)
		want = append(want, logRecord{p, pos})
	}
	list := l.list(t, "s1", id)
	for _, x := range list.Extents {
		if len(x.Replicas) != 3 {
			t.Errorf("extent %d is on %v", x.Seq, x.Replicas)
		}
	}
	noError(t, w.Close())
	equalRecords(t, readLog(t, c.all[3].Store, "s1", id), want)
}
