package blobfs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/replog"
)

// fullNodes are nodes whose folders are full, as the membership reports, except for high-priority
// data.
func fullNodes(t *testing.T, n int) (*clustertest.Cluster, *clustertest.Lists) {
	l := clustertest.NewLists()
	cfg := clustertest.Quick
	cfg.Lists, cfg.Logs = l, replog.Config{DeadlineMin: 2 * time.Second, Retry: 20 * time.Millisecond, Avoid: 200 * time.Millisecond}
	c := clustertest.New(t, clustertest.Config{N: n, Cluster: cfg, Reserve: clustertest.Reserve})
	for _, n := range c.All {
		c.SetFull(n, true)
	}
	return c, l
}

func putHighPriority(t *testing.T, s *blobfs.Store, data []byte) blobfs.Handle {
	t.Helper()
	w, err := s.CreateHighPriority(t.Context(), int64(len(data)))
	clustertest.NoError(t, err)
	_, err = w.Write(data)
	clustertest.NoError(t, err)
	h, err := w.Seal(t.Context())
	clustertest.NoError(t, err)
	return h
}

// High-priority data is written with all its replicas although all nodes are full for anything
// else. Nodes with space come first, and draining ones get none.
func TestHighPriorityBlobsOnFullNodes(t *testing.T) {
	c, _ := fullNodes(t, 6)
	n1 := c.All[0]
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
	if c.Holders(h) != 3 {
		t.Errorf("replicas: %+v", h.Extents)
	}
	for _, n := range c.All {
		clustertest.Get(t, n.Store, h, data)
	}
	refused()

	c.SetFull(c.All[3], false)
	c.SetFull(c.All[5], false)
	on(putHighPriority(t, n1.Store, data), "n1", "n4", "n6")
	c.SetFull(c.All[5], true)
	for _, id := range []string{"n2", "n3", "n6"} {
		c.Change(id, func(m *blobfs.Member) { m.Draining = true })
	}
	on(putHighPriority(t, n1.Store, data), "n1", "n4", "n5")
	c.Change("n5", func(m *blobfs.Member) { m.Draining = true })
	on(putHighPriority(t, n1.Store, data), "n1", "n4")
}

// Replicas made by repair have no high priority: they wait for space.
func TestCopiesHaveNoPriority(t *testing.T) {
	c, _ := fullNodes(t, 3)
	for _, n := range c.All[1:] {
		c.Change(n.ID, func(m *blobfs.Member) { m.Alive = false })
	}
	h := putHighPriority(t, c.All[0].Store, blobtest.Bytes(1, 100_000))
	err := c.All[1].Peer().Copy(t.Context(), api.Copy{
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
	n1 := c.All[0]
	if _, err := n1.ReplicatedLogs().Create(ctx, "s1", blobfs.NewID()); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("a log without high priority: %v", err)
	}
	id := blobfs.NewID()
	w, err := n1.ReplicatedLogs().CreateHighPriority(ctx, "s1", id)
	clustertest.NoError(t, err)
	var want []clustertest.Record
	for i := range 12 { // two extents, and what comes after
		p := blobtest.Bytes(uint64(i), 50_000)
		pos, err := w.Append(ctx, p)
		clustertest.NoError(t, err)
		want = append(want, clustertest.Record{P: p, Pos: pos})
	}
	list := l.LogList(t, "s1", id)
	for _, x := range list.Extents {
		if len(x.Replicas) != 3 {
			t.Errorf("extent %d is on %v", x.Seq, x.Replicas)
		}
	}
	clustertest.NoError(t, w.Close())
	clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[3].Store, "s1", id), want)
}
