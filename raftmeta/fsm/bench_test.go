package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// filled returns a namespace of n files of 100 bytes in n/1000 directories.
func filled(n int) *Namespace {
	ns := NewNamespace()
	for i := range n {
		put(ns, uint64(i+1), fmt.Sprintf("/tables/d%d/file-%d", i/1000, i), bytes.Repeat([]byte("x"), 100), 0)
	}
	return ns
}

func BenchmarkSnapshot100k(b *testing.B) {
	ns := filled(100_000)
	for b.Loop() {
		if err := WriteSnapshot(io.Discard, ns, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRestore100k(b *testing.B) {
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, filled(100_000), 1); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		if _, _, err := ReadSnapshot(bytes.NewReader(buf.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	ns := filled(100_000)
	i := 0
	for b.Loop() {
		i++
		if r := put(ns, uint64(200_000+i), fmt.Sprintf("/tables/d%d/file-%d", i%100, i%100*1000), nil, api.AnyGeneration); r.Code != CodeDone {
			b.Fatal(r)
		}
	}
}

// BenchmarkMillionFiles has the memory of a million files, and how long a snapshot of them takes, and a restart from it.
func BenchmarkMillionFiles(b *testing.B) {
	const files = 1_000_000
	for b.Loop() {
		before := liveBytes()
		ns := filled(files)
		b.ReportMetric(float64(liveBytes()-before)/files, "B/file")
		var snapshot bytes.Buffer
		began := time.Now()
		if err := WriteSnapshot(&snapshot, ns, 1); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/snapshot")
		b.ReportMetric(float64(snapshot.Len())/1e6, "MB/snapshot")
		began = time.Now()
		if _, _, err := ReadSnapshot(&snapshot); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/restore")
		runtime.KeepAlive(ns)
	}
}

// liveBytes returns the memory that is in use.
func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
