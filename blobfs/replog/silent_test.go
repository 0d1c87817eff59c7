package replog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/clustertest"
)

// A reader of a log of many extents waits for a silent node once, not once for each extent; and not at all if the
// membership reports that node as dead.
func TestReaderWaitsOnceForSilentNode(t *testing.T) {
	for name, alive := range map[string]bool{"reported alive": true, "reported dead": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newIdleLog(t, 4)
				for range 20 {
					x.fill()
				}
				for way, cut := range x.Cut {
					cut.Store(way[0] == "n1" || way[1] == "n1")
				}
				x.Change("n1", func(m *blobfs.Member) { m.Alive = alive })
				began := time.Now()
				for _, n := range x.All[1:] { // one of them at least has only some of the extents
					all, err := clustertest.ReadLogOnce(t.Context(), n.Store, "n1", x.id)
					clustertest.NoError(t, err)
					if len(all) < 20 {
						t.Errorf("%d payloads", len(all))
					}
				}
				const wait = 2 * time.Second // three readers, which wait for 300 ms
				if took := time.Since(began); took > wait {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}
