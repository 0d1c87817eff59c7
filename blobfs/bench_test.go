package blobfs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
)

// BenchmarkRawWrite measures the disk: it writes and syncs a file of 64 MiB in pieces of 256 KiB,
// and three such files one after the other, like three replicas on one disk.
func BenchmarkRawWrite(b *testing.B) {
	buf := blobtest.Bytes(1, 256<<10)
	for _, copies := range []int{1, 3} {
		b.Run(fmt.Sprintf("64MiB/copies-%d", copies), func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(64 << 20)
			for range b.N {
				for c := range copies {
					f, err := os.Create(filepath.Join(dir, fmt.Sprint(c)))
					clustertest.NoError(b, err)
					for range (64 << 20) / len(buf) {
						_, err := f.Write(buf)
						clustertest.NoError(b, err)
					}
					clustertest.NoError(b, f.Sync())
					clustertest.NoError(b, f.Close())
					clustertest.NoError(b, os.Remove(f.Name()))
				}
			}
		})
	}
}

// BenchmarkWrite writes and deletes blobs, on a single node and with three replicas over loopback,
// all on one disk and two processors.
func BenchmarkWrite(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, size := range []int{64 << 10, 1 << 20, 64 << 20, 256 << 20} {
			b.Run(fmt.Sprintf("%dKiB/R-%d", size>>10, replicas), func(b *testing.B) {
				c := clustertest.New(b, clustertest.Config{N: replicas, Extent: 64 << 20, Dir: b.TempDir()})
				p := blobtest.Bytes(1, 1<<20)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					w, err := c.All[0].Create(b.Context())
					clustertest.NoError(b, err)
					for left := size; left > 0; left -= len(p) {
						_, err := w.Write(p[:min(left, len(p))])
						clustertest.NoError(b, err)
					}
					h, err := w.Seal(b.Context())
					clustertest.NoError(b, err)
					if len(h.Extents[0].Replicas) != replicas {
						b.Fatalf("replicas on %v", h.Extents[0].Replicas)
					}
					b.StopTimer()
					clustertest.NoError(b, c.All[0].Delete(b.Context(), h.ID))
					b.StartTimer()
				}
			})
		}
	}
}

// benchBlob writes a blob of 64 MiB, one extent, which fits into the page cache.
func benchBlob(b *testing.B, s *blobfs.Store) blobfs.Handle {
	b.Helper()
	w, err := s.Create(b.Context())
	clustertest.NoError(b, err)
	for i := range 64 {
		_, err := w.Write(blobtest.Bytes(uint64(i), 1<<20))
		clustertest.NoError(b, err)
	}
	h, err := w.Seal(b.Context())
	clustertest.NoError(b, err)
	return h
}

// BenchmarkRead reads 64 KiB at random: on a single node, on a node of a cluster that has a
// replica, and on one that has none.
func BenchmarkRead(b *testing.B) {
	alone, err := blobfs.Open(blobfs.Config{Folders: []string{b.TempDir()}})
	clustertest.NoError(b, err)
	b.Cleanup(func() { alone.Close() })
	c := clustertest.New(b, clustertest.Config{N: 4, Extent: 64 << 20, Dir: b.TempDir()})
	own, h := benchBlob(b, alone), benchBlob(b, c.All[0].Store)
	far := c.All[slices.IndexFunc(c.All, func(n *clustertest.Node) bool { return !slices.Contains(h.Extents[0].Replicas, n.ID) })]
	open := func(s *blobfs.Store, h blobfs.Handle) *blobfs.Reader {
		r, err := s.OpenBlob(b.Context(), h)
		clustertest.NoError(b, err)
		b.Cleanup(func() { r.Close() })
		return r
	}
	for _, from := range []struct {
		name string
		r    *blobfs.Reader
	}{{"alone", open(alone, own)}, {"local", open(c.All[0].Store, h)}, {"remote", open(far.Store, h)}} {
		for _, size := range []int{8 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/ReadAt/%dKiB", from.name, size>>10), func(b *testing.B) {
				p := make([]byte, size)
				rng := rand.New(rand.NewPCG(1, 2))
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for range b.N {
					// At chunk boundaries, as a raw read would be at page boundaries.
					off := rng.Int64N(from.r.Size()/int64(size)) * int64(size)
					_, err := from.r.ReadAt(p, off)
					clustertest.NoError(b, err)
				}
			})
		}
		b.Run(from.name+"/ReadChecked/64KiB", func(b *testing.B) {
			p := make([]byte, 64<<10)
			rng := rand.New(rand.NewPCG(1, 2))
			ok := func([]byte) error { return nil }
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for range b.N {
				clustertest.NoError(b, from.r.ReadChecked(p, rng.Int64N(from.r.Size()-int64(len(p))), ok))
			}
		})
		b.Run(from.name+"/parallel/64KiB", func(b *testing.B) {
			b.SetBytes(64 << 10)
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 64<<10)
				rng := rand.New(rand.NewPCG(rand.Uint64(), 2))
				for pb.Next() {
					if _, err := from.r.ReadAt(p, rng.Int64N(from.r.Size()>>16)<<16); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
