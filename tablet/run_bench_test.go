package tablet

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/commitlog"
)

// BenchmarkSortLog sorts a piece of 64 MiB, with values of the given number of random bytes, from
// one file on disk to another.
func BenchmarkSortLog(b *testing.B) {
	for _, size := range []int{1000, 100} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) { benchSort(b, size) })
	}
}

func benchSort(b *testing.B, size int) {
	store, err := blobfs.Open(blobfs.Config{Folders: []string{b.TempDir()}, ReserveBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	blobs, id := storage.OnStore(store), blobfs.NewID()
	bytes := writeBenchLog(b, blobs, id, size)
	b.SetBytes(bytes)
	b.ReportAllocs()
	busy := time.Duration(0)
	b.ResetTimer()
	for range b.N {
		began := processorTime(b)
		r, err := blobs.OpenLog(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		m, err := sortWhole(b.Context(), blobs, r, bytes)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		busy += processorTime(b) - began
		r.Close()
		if err := blobs.Delete(b.Context(), m.Handle.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(bytes)*float64(b.N)/1e6/busy.Seconds(), "MB/cpu-s")
}

// processorTime returns the CPU time of this process.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writeBenchLog writes a log of 64 MiB and returns the bytes of its batches.
func writeBenchLog(b *testing.B, blobs storage.Blobs, id blobfs.ID, size int) (bytes int64) {
	w, err := blobs.CreateLog(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	log := commitlog.New(w, 1, commitlog.Config{BatchBytesMax: 256 << 10})
	s := newSchema(testSchema(b, "f:"), nil)
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, size)
	for log.Stats().Bytes < 64<<20 {
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		row := fmt.Appendf(nil, "user%016x", rng.Uint64())
		rm := &table.RowMutation{Row: row, Mutations: []table.Mutation{table.Set("f", []byte("q"), 7, value)}}
		body, ops, _, err := appendBody(nil, s, rm)
		if err != nil {
			b.Fatal(err)
		}
		if err := log.Commit(&commitlog.Commit{Table: 16, Tablet: 1, Ops: ops, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			b.Fatal(err)
		}
	}
	log.Close()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return log.Stats().Bytes
}
