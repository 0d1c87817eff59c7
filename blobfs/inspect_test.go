package blobfs_test

import (
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/logproto"
)

// TestInspectLog: a sealed extent of a log without data needs no replicas: it is left, and gets no new ones, while later extents are needed.
// One with data, and the one that is written to, need all.
func TestInspectLog(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 3, Cluster: clustertest.Quick})
	nodes := []string{c.All[0].ID, c.All[1].ID}
	l := logproto.List{Extents: []logproto.Extent{
		{Seq: 1, Length: 0, Replicas: nodes}, {Seq: 2, Length: 5, Replicas: nodes}, {Seq: 3, Length: logproto.Open, Replicas: nodes},
	}}
	for i, x := range c.All[0].InspectLog(t.Context(), blobfs.NewID(), &l, false) {
		if want := []int{0, 3, 3}[i]; x.Wanted != want || x.Index != i+1 {
			t.Errorf("extent %d of length %d: %d replicas wanted, want %d", x.Index, x.Length, x.Wanted, want)
		}
	}
}
