package replog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
)

type benchLog interface {
	Append(ctx context.Context, p []byte) (int64, error)
	Release(pos int64)
}

// BenchmarkLog appends payloads one after the other, to a log of package local and to logs on
// several nodes, all on one disk, each behind a server on loopback.
func BenchmarkLog(b *testing.B) {
	for _, n := range []int{0, 1, 3} {
		for _, size := range []int{100, 4 << 10, 64<<10 - 64} {
			name := fmt.Sprintf("nodes-%d/%dB", n, size)
			if n == 0 {
				name = fmt.Sprintf("local/%dB", size)
			}
			b.Run(name, func(b *testing.B) { benchAppend(b, n, size) })
		}
	}
}

func benchAppend(b *testing.B, n, size int) {
	cfg := blobfs.Cluster{Lists: clustertest.NewLists()}
	c := clustertest.New(b, clustertest.Config{N: max(n, 1), Cluster: cfg, Dir: b.TempDir(), Extent: 64 << 20})
	var w benchLog
	var err error
	if n == 0 {
		w, err = c.All[0].CreateLog(b.Context(), blobfs.NewID())
	} else {
		w, err = c.All[0].ReplicatedLogs().Create(b.Context(), "n1", blobfs.NewID())
	}
	clustertest.NoError(b, err)
	appendOne := func(p []byte) {
		pos, err := w.Append(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		w.Release(pos - 64<<20)
	}
	warm := blobtest.Bytes(1, 1<<20-64)
	for range 200 {
		appendOne(warm)
	}
	p := blobtest.Bytes(1, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		appendOne(p)
	}
}
