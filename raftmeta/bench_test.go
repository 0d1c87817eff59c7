package raftmeta

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// parallel runs f from n goroutines until b.N calls were made. It reports calls per second, and the
// 50th and 99th percentile of the latency.
func parallel(b *testing.B, n int, f func(worker, i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	start := time.Now()
	for w := range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				if err := f(w, int(i)); err != nil {
					b.Error(err)
					return
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "calls/s")
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-us")
}

// BenchmarkSet writes files of 64 bytes, as etcd's published figures do, and of 1000.
func BenchmarkSet(b *testing.B) {
	for _, size := range []int{64, 1000} {
		for _, workers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("bytes=%d/inflight=%d", size, workers), func(b *testing.B) {
				g := openGroup(b, Config{Dir: b.TempDir()})
				data := bytes.Repeat([]byte("x"), size)
				parallel(b, workers, func(w, i int) error {
					_, err := g.Set(context.Background(), fmt.Sprintf("/bench/%d/f%d", w, i%1000), data, api.AnyGeneration)
					return err
				})
				s := g.Stats()
				b.ReportMetric(float64(s.LogEntries)/float64(s.LogWrites), "sets/fsync")
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	for _, workers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", workers), func(b *testing.B) {
			g := openGroup(b, Config{Dir: b.TempDir()})
			for i := range 1000 {
				mustSet(b, g, fmt.Sprintf("/bench/f%d", i), "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0)
			}
			parallel(b, workers, func(_, i int) error {
				_, err := g.Get(context.Background(), fmt.Sprintf("/bench/f%d", i%1000))
				return err
			})
		})
	}
}

// BenchmarkGetBesideSets reads while 16 writers keep the disk busy.
func BenchmarkGetBesideSets(b *testing.B) {
	g := openGroup(b, Config{Dir: b.TempDir()})
	mustSet(b, g, "/f", "x", 0)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = g.Set(ctx, fmt.Sprintf("/w/%d", w), []byte("x"), api.AnyGeneration)
			}
		})
	}
	parallel(b, 64, func(_, _ int) error {
		_, err := g.Get(context.Background(), "/f")
		return err
	})
	cancel()
	wg.Wait()
}
