// Package activity keeps what the node has done in the last hour: requests, their times, errors and bytes, by intervals of 15 s. So a chart has a
// past when it is opened, without a system of metrics beside the cluster. The paper's §9 asks for system-level monitoring.
//
// The counters of the RPC server are read at the end of each interval, and cost requests nothing. An hour takes 21 KiB. After a restart it begins
// anew.
//
//	goroutine    started by  ends with
//	Run          the node    its context
//	WatchPauses  the node    its context
//
//	AC1. The sum of a series equals the growth of its counter, for the intervals that are kept.
package activity

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// interval is the time between two readings of the counters.
const interval = 15 * time.Second

// Config has what the service needs of the node.
type Config struct {
	Name string // the node's
	// RPC returns the counters of the node's port, and Commits the number of changes made durable; both only grow.
	RPC     func() rpc.Stats
	Commits func() int64
	// Replicas returns the times of log replicas; nil: there are none.
	Replicas func() []replog.ReplicaTimes
	// Refusals returns the numbers of requests rejected because of rate quotas, by the quota; nil: there are none.
	Refusals func() map[string]int64
}

// Service keeps the node's activity.
type Service struct {
	Config
	last counters // of Run
	// replicas are the times at the end of the last interval, by node. Of Run.
	replicas map[string]replog.ReplicaTimes
	dropped  []map[string]int64 // the last readings of dropped replicas by node, the oldest first. Of Run.
	refusals []map[string]int64 // the last readings, the oldest first. Of Run.
	pauses   pauses

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		kept api.Activity
	}
}

// New returns the service.
func New(cfg Config) *Service {
	s := &Service{Config: cfg}
	s.mu.kept = api.Activity{Node: cfg.Name, IntervalMS: interval.Milliseconds()}
	return s
}

// Register registers the method of the service.
func (s *Service) Register(r method.Registrar) {
	r.HandleNames(api.MethodActivity, 0, authz.Guard{To: authz.Right, Right: acl.Monitor}, func(context.Context, *api.NamesRequest) (reply.Result, error) {
		return s.kept().Append, nil
	})
}

// kept returns a copy of what is kept.
func (s *Service) kept() *api.Activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.mu.kept
	for _, series := range a.Series() {
		*series = slices.Clone(*series)
	}
	a.LogReplicas, a.QuotaRefusals = slices.Clone(a.LogReplicas), slices.Clone(a.QuotaRefusals)
	return &a
}

// Run reads the counters at the end of each interval until ctx ends.
func (s *Service) Run(ctx context.Context) {
	s.last = s.read()
	s.addReplicas()
	s.addRefusals()
	for timing.Sleep(ctx, interval) == nil {
		s.add(s.read(), time.Now())
		s.addReplicas()
		s.addRefusals()
	}
}

// calls counts the calls of some methods.
type calls struct {
	requests uint64
	errors   uint64
	time     time.Duration
	latency  [rpc.LatencyBuckets]uint64
}

// counters are the counters of the node at one time.
type counters struct {
	reads, scans, writes calls
	in, out, errors      uint64
	commits              int64
}

// read reads the counters.
func (s *Service) read() counters {
	stats := s.RPC()
	c := counters{in: stats.BytesIn, out: stats.BytesOut, commits: s.Commits()}
	for i := range stats.Methods {
		m := &stats.Methods[i]
		switch m.Method {
		case api.MethodRead, api.MethodReadRows:
			c.reads.add(m)
		case api.MethodScanOpen, api.MethodScanNext:
			c.scans.add(m)
		case api.MethodMutate, api.MethodMutateRows, api.MethodBulkWrite, api.MethodCheckAndMutate, api.MethodReadModifyWrite:
			c.writes.add(m)
		}
	}
	c.errors = c.reads.errors + c.scans.errors + c.writes.errors
	return c
}

func (c *calls) add(m *rpc.MethodStats) {
	c.requests += m.Requests
	c.time += m.Time
	for i, n := range m.Latency {
		c.latency[i] += n
	}
	for _, n := range m.Errors {
		c.errors += n
	}
}

// add adds an interval that ends at end.
func (s *Service) add(now counters, end time.Time) {
	last := s.last
	s.last = now
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.mu.kept
	a.EndMS = end.UnixMilli()
	readMean, readP99 := now.reads.since(&last.reads)
	writeMean, writeP99 := now.writes.since(&last.writes)
	values := []int64{ // as in api.Activity.Series
		int64(now.reads.requests - last.reads.requests), int64(now.scans.requests - last.scans.requests), int64(now.writes.requests - last.writes.requests), max(now.commits-last.commits, 0),
		readMean, readP99, writeMean, writeP99, int64(now.in - last.in), int64(now.out - last.out), int64(now.errors - last.errors),
	}
	for i, series := range a.Series() {
		if len(*series) == api.ActivityIntervalsMax {
			*series = slices.Delete(*series, 0, 1)
		}
		*series = append(*series, values[i])
	}
}

// since returns the mean and the 99th percentile of the calls after last, in µs; -1 if there are none.
func (c *calls) since(last *calls) (mean, p99 int64) {
	n := c.requests - last.requests
	if n == 0 {
		return -1, -1
	}
	rank, seen := n-n/100, uint64(0)
	bound := rpc.LatencyBound(rpc.LatencyBuckets - 2)
	for i := range c.latency {
		if seen += c.latency[i] - last.latency[i]; seen >= rank {
			if b := rpc.LatencyBound(i); b > 0 {
				bound = b
			}
			break
		}
	}
	return ((c.time - last.time) / time.Duration(n)).Microseconds(), bound.Microseconds()
}
