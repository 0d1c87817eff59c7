package bench

import (
	"runtime/metrics"
	"syscall"
	"time"
)

// Usage is what processes have used since they began, or during a workload.
type Usage struct {
	CPU        time.Duration
	Allocs     int64 // objects on the heap
	AllocBytes int64

	// What a node's commit log did.
	LogCommits, LogAppends int64
	LogAppendTime          time.Duration
}

func (u Usage) minus(v Usage) Usage {
	return Usage{
		CPU: u.CPU - v.CPU, Allocs: u.Allocs - v.Allocs, AllocBytes: u.AllocBytes - v.AllocBytes,
		LogCommits: u.LogCommits - v.LogCommits, LogAppends: u.LogAppends - v.LogAppends, LogAppendTime: u.LogAppendTime - v.LogAppendTime,
	}
}

// Plus returns what u and v come to together.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		CPU: u.CPU + v.CPU, Allocs: u.Allocs + v.Allocs, AllocBytes: u.AllocBytes + v.AllocBytes,
		LogCommits: u.LogCommits + v.LogCommits, LogAppends: u.LogAppends + v.LogAppends, LogAppendTime: u.LogAppendTime + v.LogAppendTime,
	}
}

// ownUsage returns that of this process.
func ownUsage() (u Usage) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	heap := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(heap)
	u.Allocs, u.AllocBytes = int64(heap[0].Value.Uint64()), int64(heap[1].Value.Uint64())
	return u
}
