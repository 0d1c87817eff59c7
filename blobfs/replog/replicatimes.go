package replog

import (
	"math/bits"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ReplicaTimeBuckets is the number of buckets of ReplicaTimes.Latency. Bucket 0 counts times up to 1 µs, each further one twice as long times, and
// the last all longer ones.
const ReplicaTimeBuckets = 26

// ReplicaTimes are the times that a node's log replicas took, as the logs of this node saw them: from the dispatch of a frame until the replica
// was durable. They count from the start of this node.
type ReplicaTimes struct {
	Node    string
	Appends int64 // answers of the node, each for one or several frames; the time is that of the oldest
	Total   time.Duration
	Latency [ReplicaTimeBuckets]int64
	// Oldest is how long the oldest frame that the node has not made durable waits for it; 0 if there is none.
	Oldest time.Duration
	// Dropped counts the replicas on the node that logs of this node left because they were slow.
	Dropped int64
}

// replicaTime counts the times of one node's replicas. It is safe for concurrent use.
type replicaTime struct {
	node    string
	appends atomic.Int64
	total   atomic.Int64 // ns
	dropped atomic.Int64
	latency [ReplicaTimeBuckets]atomic.Int64
}

// observe counts a time.
func (x *replicaTime) observe(d time.Duration) {
	d = max(d, 0)
	x.appends.Add(1)
	x.total.Add(int64(d))
	x.latency[min(bits.Len64(uint64(max(d-1, 0)/time.Microsecond)), ReplicaTimeBuckets-1)].Add(1)
}

// replicaTimes has an entry for each node that has had a replica: as many as the cluster has had nodes since this one started.
type replicaTimes struct {
	mu  sync.Mutex
	all map[string]*replicaTime
}

// of returns the entry of a node.
func (x *replicaTimes) of(node string) *replicaTime {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.all[node]
	if t == nil {
		if x.all == nil {
			x.all = map[string]*replicaTime{}
		}
		t = &replicaTime{node: node}
		x.all[node] = t
	}
	return t
}

// ReplicaTimes returns the times of the log replicas of each node, this one included, sorted by node.
func (logs *Logs) ReplicaTimes() []ReplicaTimes {
	oldest := map[string]time.Duration{}
	logs.writers.mu.Lock()
	open := slices.Clone(logs.writers.all)
	logs.writers.mu.Unlock()
	for _, w := range open {
		w.oldest(oldest)
	}
	logs.times.mu.Lock()
	defer logs.times.mu.Unlock()
	all := make([]ReplicaTimes, 0, len(logs.times.all))
	for node, x := range logs.times.all {
		t := ReplicaTimes{Node: node, Appends: x.appends.Load(), Total: time.Duration(x.total.Load()), Oldest: oldest[node], Dropped: x.dropped.Load()}
		for i := range x.latency {
			t.Latency[i] = x.latency[i].Load()
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b ReplicaTimes) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// slowness finds the replica that appends wait for. Guarded by Writer.mu.
type slowness struct {
	writer *Writer
	// last is the node that answered last; blamed one that the writer left while appends waited for it. slowest is that of the last append.
	last, blamed, slowest *string
}

// oldest adds how long the oldest frame of the writer waits for each node.
func (x *slowness) oldest(to map[string]time.Duration) {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	now := x.writer.now()
	for k, l := range x.writer.links {
		if f := x.pending(l); f != nil {
			to[k.node] = max(to[k.node], now-f.sent)
		}
	}
}

// pending returns the first frame that was sent to a replica and is not durable there; nil if there is none.
func (x *slowness) pending(l *link) *frame {
	frames := x.writer.window.frames
	i := sort.Search(len(frames), func(i int) bool { return frames[i].end > l.durable })
	if i == len(frames) || frames[i].salt != l.salt || frames[i].sent == 0 || frames[i].end > l.sent {
		return nil
	}
	return frames[i]
}

// answered records that a replica is durable up to a position. If the answer makes appends durable everywhere, the replica was their slowest.
func (x *slowness) answered(l *link, durable int64) {
	if f := x.pending(l); f != nil && f.end <= durable {
		l.times.observe(x.writer.now() - f.sent)
	}
	l.durable = max(l.durable, durable)
	x.last = &l.times.node
}

// blame records that appends wait for a replica that the writer is about to leave.
func (x *slowness) blame(l *link, waited time.Duration) {
	l.times.observe(waited)
	x.blamed = &l.times.node
}

// acknowledged records the slowest replica of appends that are durable everywhere.
func (x *slowness) acknowledged() {
	x.slowest = x.last
	if x.blamed != nil {
		x.slowest, x.blamed = x.blamed, nil
	}
}

// Slowest returns the node whose replica was the last to make the last append durable, or was left for being too slow; nil before the first.
func (x *slowness) Slowest() *string {
	x.writer.mu.Lock()
	defer x.writer.mu.Unlock()
	return x.slowest
}
