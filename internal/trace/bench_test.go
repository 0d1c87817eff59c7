package trace

import (
	"testing"
	"time"
)

// BenchmarkRecord is the cost of recording one request: of a read from cached blocks, and of a mutation. One of 1000 is sampled.
func BenchmarkRecord(b *testing.B) {
	arrived := time.Now()
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		var r Record
		var sampler Sampler
		for b.Loop() {
			r.Begin(arrived, sampler.Next(1000))
			r.Mark(arrived)
			r.In(7)
			began := r.Detail()
			r.Since(Read, began)
			r.Count(Files, 2)
			r.Count(FilesSkipped, 1)
			r.Count(FilesCached, 0)
			r.Count(Blocks, 2)
			r.Count(BlocksMissed, 0)
			r.Add(Disk, time.Time{}, 0, 0)
			r.Kept()
		}
	})
	b.Run("mutate", func(b *testing.B) {
		b.ReportAllocs()
		var r Record
		var sampler Sampler
		for b.Loop() {
			r.Begin(arrived, sampler.Next(1000))
			r.Mark(arrived)
			r.In(7)
			r.Count(Rows, 1)
			r.Extend(LogQueue, r.Last(), arrived)
			r.Extend(Replicas, arrived, arrived)
			r.Detail()
			r.Kept()
		}
	})
}
