package blobfs_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/internal/vfs"
)

// suiteStore is one node of a cluster for the conformance suite. It verifies and closes all nodes.
type suiteStore struct {
	*clustertest.Node
	c *clustertest.Cluster
}

func (s suiteStore) Verify(ctx context.Context, report func(blobfs.Problem)) error {
	for _, n := range s.c.All {
		if err := n.Store.Verify(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	t.Parallel() // together with others: on disk it waits for syncs
	t.Run("alone", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobtest.Store {
			s, err := blobfs.Open(blobfs.Config{FS: vfs.NewMem(vfs.MemOptions{}), Folders: []string{"/a"}, ExtentBytes: 256 << 10, ReserveBytes: -1, Node: "n1"})
			clustertest.NoError(t, err)
			return s
		})
	})
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("nodes-%d", n), func(t *testing.T) {
			blobtest.Run(t, func(t *testing.T) blobtest.Store {
				c := clustertest.New(t, clustertest.Config{N: n})
				return suiteStore{c.All[0], c}
			})
			blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
				return newSuiteLogs(t, clustertest.Config{N: n})
			})
		})
	}
	t.Run("nodes-3-mixed", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobtest.Store {
			c := clustertest.New(t, clustertest.Config{N: 3, Mixed: true})
			return suiteStore{c.All[0], c}
		})
		blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
			return newSuiteLogs(t, clustertest.Config{N: 3, Mixed: true})
		})
	})
	t.Run("nodes-3-on-disk", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobtest.Store {
			c := clustertest.New(t, clustertest.Config{N: 3, Dir: t.TempDir()})
			return suiteStore{c.All[0], c}
		})
		blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
			return newSuiteLogs(t, clustertest.Config{N: 3, Dir: t.TempDir()})
		})
	})
}

// suiteLogs are replicated logs for the conformance suite: the first node writes, the last one
// reads.
type suiteLogs struct {
	suiteStore
	lists *clustertest.Lists
}

func newSuiteLogs(t *testing.T, cfg clustertest.Config) suiteLogs {
	l := clustertest.NewLists()
	cfg.Cluster.Lists = l
	c := clustertest.New(t, cfg)
	return suiteLogs{suiteStore{c.All[0], c}, l}
}

func (s suiteLogs) OneProcess() bool { return false }

func (s suiteLogs) CreateLog(ctx context.Context, id blobfs.ID) (blobtest.LogWriter, error) {
	w, err := s.ReplicatedLogs().Create(ctx, s.ID, id)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s suiteLogs) OpenLog(ctx context.Context, id blobfs.ID) (blobtest.LogReader, error) {
	r, err := s.c.All[len(s.c.All)-1].ReplicatedLogs().Open(ctx, s.ID, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s suiteLogs) RemoveLog(ctx context.Context, id blobfs.ID) error {
	return s.ReplicatedLogs().Remove(ctx, s.ID, id)
}

// Logs returns the logs that the lock service lists.
func (s suiteLogs) Logs() (infos []blobfs.LogInfo) {
	ids, err := s.ReplicatedLogs().List(context.Background(), s.ID)
	clustertest.NoError(s.c.T, err)
	for _, id := range ids {
		l := s.lists.LogList(s.c.T, s.ID, id)
		infos = append(infos, blobfs.LogInfo{ID: id, Start: l.Start, Extents: len(l.Extents), Writing: !l.Closed})
	}
	return infos
}
