package repair_test

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/repair"
)

// BenchmarkRepair kills one of three nodes that all have all extents, next to an empty fourth node,
// and measures the time from the end of the grace period until each extent has three replicas
// again. All nodes are in one process, on one disk, and call each other over loopback.
func BenchmarkRepair(b *testing.B) {
	for _, size := range []struct{ extents, bytes int }{{10_000, 4 << 10}, {32, 32 << 20}} {
		b.Run(fmt.Sprintf("%dx%dKiB", size.extents, size.bytes>>10), func(b *testing.B) {
			for range b.N {
				benchRepair(b, size.extents, size.bytes)
			}
		})
	}
}

func benchRepair(b *testing.B, extents, bytes int) {
	b.StopTimer()
	const grace = time.Second
	c := clustertest.New(b, clustertest.Config{N: 4, Keep: true, Extent: 64 << 20, Dir: b.TempDir(), Cluster: blobfs.Cluster{
		Repair: repair.Config{Grace: grace, RepairBytes: 1 << 40},
	}})
	var group sync.WaitGroup
	for _, n := range c.All[:3] {
		for part := range 8 {
			group.Go(func() {
				for i := part; i < extents; i += 8 {
					benchExtent(b, n, i, bytes)
				}
			})
		}
	}
	group.Wait()
	cpu := processorTime()
	b.StartTimer()
	c.Change("n3", func(m *blobfs.Member) { m.Alive = false })
	c.All[2].Kill()
	dead := time.Now()
	for c.All[3].Extents() < extents || c.All[0].Repairs().ToCopy+c.All[1].Repairs().ToCopy > 0 {
		if time.Since(dead) > 5*time.Minute {
			b.Fatalf("after %v: %d of %d extents", time.Since(dead), c.All[3].Extents(), extents)
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(dead) - grace
	b.StopTimer()
	b.ReportMetric(took.Seconds(), "s/repair")
	b.ReportMetric(float64(extents)/took.Seconds(), "extents/s")
	b.ReportMetric(float64(extents)*float64(bytes)/took.Seconds()/1e6, "MB/s-copied")
	b.ReportMetric((processorTime()-cpu).Seconds()/took.Seconds(), "processors")
	b.StartTimer()
}

// benchExtent writes extent i on a node.
func benchExtent(b *testing.B, n *clustertest.Node, i, bytes int) {
	id := blobfs.ID{byte(i * 37), byte(i), byte(i >> 8), byte(i >> 16)}
	w, err := n.CreateExtent(b.Context(), blobfs.ExtentID{Blob: id}, 0)
	if err == nil {
		if err = w.Write(blobtest.Bytes(uint64(i), bytes)); err == nil {
			_, err = w.Seal(b.Context(), true, blobfs.Holders{Epoch: 1, Nodes: []string{"n1", "n2", "n3"}})
		}
	}
	if err != nil {
		b.Error(err)
	}
	if bytes > 1<<20 {
		runtime.GC() // frees the bytes
	}
}

// processorTime returns the CPU time that this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
