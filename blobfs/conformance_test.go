package blobfs_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/internal/vfs"
)

// suiteStore is one node of a cluster for the conformance suite. It verifies and closes all nodes.
type suiteStore struct {
	*node
	c *nodes
}

func (s suiteStore) Verify(ctx context.Context, report func(blobfs.Problem)) error {
	for _, n := range s.c.all {
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
			noError(t, err)
			return s
		})
	})
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("nodes-%d", n), func(t *testing.T) {
			blobtest.Run(t, func(t *testing.T) blobtest.Store {
				c := newNodes(t, nodesConfig{n: n})
				return suiteStore{c.all[0], c}
			})
			blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
				return newSuiteLogs(t, nodesConfig{n: n})
			})
		})
	}
	t.Run("nodes-3-mixed", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobtest.Store {
			c := newNodes(t, nodesConfig{n: 3, mixed: true})
			return suiteStore{c.all[0], c}
		})
		blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
			return newSuiteLogs(t, nodesConfig{n: 3, mixed: true})
		})
	})
	t.Run("nodes-3-on-disk", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobtest.Store {
			c := newNodes(t, nodesConfig{n: 3, dir: t.TempDir()})
			return suiteStore{c.all[0], c}
		})
		blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
			return newSuiteLogs(t, nodesConfig{n: 3, dir: t.TempDir()})
		})
	})
}

// suiteLogs are replicated logs for the conformance suite: the first node writes, the last one
// reads.
type suiteLogs struct {
	suiteStore
	lists *lists
}

func newSuiteLogs(t *testing.T, cfg nodesConfig) suiteLogs {
	l := newLists()
	cfg.cluster.Lists = l
	c := newNodes(t, cfg)
	return suiteLogs{suiteStore{c.all[0], c}, l}
}

func (s suiteLogs) OneProcess() bool { return false }

func (s suiteLogs) CreateLog(ctx context.Context, id blobfs.ID) (blobtest.LogWriter, error) {
	w, err := s.ReplicatedLogs().Create(ctx, s.id, id)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s suiteLogs) OpenLog(ctx context.Context, id blobfs.ID) (blobtest.LogReader, error) {
	r, err := s.c.all[len(s.c.all)-1].ReplicatedLogs().Open(ctx, s.id, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s suiteLogs) RemoveLog(ctx context.Context, id blobfs.ID) error {
	return s.ReplicatedLogs().Remove(ctx, s.id, id)
}

// Logs returns the logs that the lock service lists.
func (s suiteLogs) Logs() (infos []blobfs.LogInfo) {
	ids, err := s.ReplicatedLogs().List(context.Background(), s.id)
	noError(s.c.t, err)
	for _, id := range ids {
		l := s.lists.list(s.c.t, s.id, id)
		infos = append(infos, blobfs.LogInfo{ID: id, Start: l.Start, Extents: len(l.Extents), Writing: !l.Closed})
	}
	return infos
}
