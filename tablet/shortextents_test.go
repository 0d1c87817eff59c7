package tablet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/tablet/storage"
)

// TestShortExtentsAreReleased: a log with few writes that leaves an extent whenever a replica is slow keeps no more disk space than LogSpaceMax,
// and a few extents.
func TestShortExtentsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extent = 256 << 10
		lists := clustertest.NewLists()
		cluster := clustertest.Quick
		cluster.Lists = lists
		c := clustertest.New(t, clustertest.Config{N: 5, Extent: extent, Cluster: cluster, Virtual: true})
		blobs := &ownLogs{Blobs: storage.OnReplicatedStore(c.All[0].Store, "n1")}
		meta := newMemMetadata()
		m := &Meta{ID: 1, Table: 1, LastMajor: time.Now()}
		meta.rows[metaKey(1, nil)] = metaRow{EncodeMeta(m), 1, "n1"}
		s, err := Start(t.Context(), Config{Blobs: blobs, Metadata: ownMetadata{meta, "n1"}, LogBytesMax: 8 * extent, LogSpaceMax: 8 * extent})
		noError(t, err)
		defer s.Close()
		noError(t, s.Load(context.Background(), Load{Meta: m, Schema: testSchema(t, "f")}))

		most := 0
		for n := range 30 {
			l := lists.LogList(t, "n1", blobs.logs[0])
			k, _ := l.Sealed()
			current := l.Extents[min(k, len(l.Extents)-1)].Replicas
			victim := current[slices.IndexFunc(current, func(node string) bool { return node != "n1" })]
			for way, cut := range c.Cut {
				cut.Store((way[0] == victim) != (way[1] == victim))
			}
			_, err := applySync(s, fmt.Sprint("row", n), setCell("v"))
			noError(t, err)
			time.Sleep(3 * time.Second)
			for _, cut := range c.Cut {
				cut.Store(false)
			}
			time.Sleep(12 * time.Second)
			l = lists.LogList(t, "n1", blobs.logs[0])
			most = max(most, len(l.Extents))
		}
		if most > 12 {
			t.Errorf("the log had up to %d extents for %d bytes", most, s.commitLog.pending())
		}
		if most < 6 {
			t.Errorf("the log had at most %d extents: none was left early", most)
		}
		if weak := s.commitLog.blob.Weak(); weak > 0 {
			t.Errorf("the log lacks redundancy up to %d", weak)
		}
	})
}
