package bench

import (
	"runtime/metrics"
	"syscall"
	"time"
)

// Usage is the resource usage of processes since their start, or during a workload.
type Usage struct {
	CPU        time.Duration
	Allocs     int64 // objects on the heap
	AllocBytes int64

	// Activity of a node's commit log.
	LogCommits, LogAppends int64
	LogAppendTime          time.Duration
}

func (u Usage) minus(v Usage) Usage {
	return Usage{
		CPU: u.CPU - v.CPU, Allocs: u.Allocs - v.Allocs, AllocBytes: u.AllocBytes - v.AllocBytes,
		LogCommits: u.LogCommits - v.LogCommits, LogAppends: u.LogAppends - v.LogAppends, LogAppendTime: u.LogAppendTime - v.LogAppendTime,
	}
}

// Plus returns the sum of u and v.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		CPU: u.CPU + v.CPU, Allocs: u.Allocs + v.Allocs, AllocBytes: u.AllocBytes + v.AllocBytes,
		LogCommits: u.LogCommits + v.LogCommits, LogAppends: u.LogAppends + v.LogAppends, LogAppendTime: u.LogAppendTime + v.LogAppendTime,
	}
}

// ownUsage returns the usage of this process.
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
