package trace

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Stage is a part of a request's work, or of its waits.
type Stage uint8

// The stages. Their numbers are not persisted.
const (
	Rights      Stage = iota // waits for the caller's rights or quotas to be read
	Turns                    // waits for a turn to evaluate a costly filter
	Filter                   // evaluates a costly filter: the time with a turn, in parts of about a millisecond
	AnswerSpace              // waits for memory for the answer
	ReadSpace                // waits for memory for large cells
	Fence                    // waits for a split, merge or unload of the tablet
	WriteSpace               // waits for memory for the mutation, or for compactions
	Latch                    // waits for the row's latch
	Disk                     // reads of blocks that no cache has, from the disk or another node
	Read                     // the work in the tablets, waits and reads of blocks included; only of sampled requests
	LogQueue                 // waits for the commit log's append before its own
	Replicas                 // the append to the commit log, until all replicas have it
	Apply                    // from then until the mutation is visible; only of sampled requests
	stageCount
)

// sums is the number of stages whose times add up: those before LogQueue. The others are Extended.
const sums = LogQueue

var stageNames = [stageCount]string{"rights", "filter turn", "filter", "answer memory", "read memory", "tablet fence", "write memory", "latch", "disk", "tablet read", "log queue", "log replicas", "apply"}

// String returns the name of the stage.
func (s Stage) String() string { return stageNames[s] }

// Counter is a number of things that a request looked at.
type Counter uint8

// The counters. Their numbers are not persisted.
const (
	Tablets      Counter = iota // tablets that were read or written
	Files                       // SSTables that were read
	FilesSkipped                // SSTables that Bloom filters ruled out
	FilesCached                 // SSTables whose entries of the row the scan cache had
	Blocks                      // data blocks that were read
	BlocksMissed                // those of them that no cache had
	Rows                        // mutated rows
	counterCount
)

var counterNames = [counterCount]string{"tablets", "sstables", "sstables_skipped", "sstables_cached", "blocks", "blocks_read", "rows"}

// String returns the name of the counter.
func (c Counter) String() string { return counterNames[c] }

// Record records one request. A nil Record ignores everything. Extend may be called by a commit log's goroutine while the request's own goroutine
// calls other methods. All have happened before Stages and Counters are called.
type Record struct {
	// Parent is the caller's place in a trace; zero if it sent none. Set before other goroutines use the Record.
	Parent Context
	// Sampled means that the request was chosen at random.
	Sampled bool

	began    time.Time
	mark     time.Duration // see Last; since began
	tablet   uint64
	table    string
	counters [counterCount]int32
	summed   [sums]summed
	extended [stageCount - sums]extended
	replica  replica
}

// summed is the sum of a request's times in one stage. first is in µs after the arrival; 32 bits suffice for half an hour, and for the counts.
type summed struct {
	took         time.Duration
	first, count int32
}

// extended is the time from the first beginning of a stage to its last end, in ns after the arrival. It is used by several goroutines.
type extended struct {
	first, last atomic.Int64
	count       atomic.Int32
}

// Begin resets r for a request that arrived at a time.
func (r *Record) Begin(arrived time.Time, sampled bool) {
	*r = Record{began: arrived, Sampled: sampled}
}

// Sampler chooses requests at random. It is not safe for concurrent use.
type Sampler struct{ left int }

// Next reports whether a request is sampled: one in every. The intervals between sampled requests are random, so that no pattern of requests
// evades it, and cost less than a random number for each request.
func (s *Sampler) Next(every int) bool {
	if s.left == 0 {
		s.left = 1 + rand.IntN(every) // the first request is as likely as any other
	}
	if s.left--; s.left > 0 {
		return false
	}
	s.left = 1 + rand.IntN(2*every-1)
	return true
}

// Kept reports whether the request is kept however long it takes.
func (r *Record) Kept() bool { return r != nil && (r.Sampled || r.Parent.Sampled) }

// Now returns the time, if r is not nil. It is for the beginning of a wait.
func (r *Record) Now() time.Time {
	if r == nil {
		return time.Time{}
	}
	return time.Now()
}

// Detail returns the time if the request is sampled, and otherwise the zero time, which Since ignores.
func (r *Record) Detail() time.Time {
	if !r.Kept() {
		return time.Time{}
	}
	return time.Now()
}

// Mark remembers the present time, which the caller has read, as when the request's last wait ended.
func (r *Record) Mark(now time.Time) {
	if r != nil {
		r.mark = now.Sub(r.began)
	}
}

// Last returns the time, if the request is sampled, and otherwise when its last wait ended. It is for the beginning of waits that most
// requests have.
func (r *Record) Last() time.Time {
	switch {
	case r == nil:
		return time.Time{}
	case r.Kept():
		return time.Now()
	}
	return r.began.Add(r.mark)
}

// Since adds the time since the beginning of a stage.
func (r *Record) Since(s Stage, began time.Time) {
	if r != nil && !began.IsZero() {
		now := time.Now()
		r.Mark(now)
		r.Add(s, began, now.Sub(began), 1)
	}
}

// Add adds a time in a stage before LogQueue, which was entered that many times, first at a time.
func (r *Record) Add(s Stage, began time.Time, took time.Duration, times int) {
	if r == nil || times == 0 {
		return
	}
	x := &r.summed[s]
	if x.count == 0 {
		x.first = int32(min(max(0, began.Sub(r.began).Microseconds()), math.MaxInt32))
	}
	x.count += int32(times)
	x.took += took
}

// Extend adds a time in a stage from LogQueue on, in which a request may be several times at once: the stage lasts from the first beginning to
// the last end.
func (r *Record) Extend(s Stage, began, ended time.Time) {
	if r == nil || began.IsZero() {
		return
	}
	x := &r.extended[s-sums]
	first, last := int64(began.Sub(r.began)), int64(ended.Sub(r.began))
	if x.count.Add(1) == 1 {
		x.first.Store(first)
	}
	for old := x.first.Load(); first < old && !x.first.CompareAndSwap(old, first); old = x.first.Load() {
	}
	for old := x.last.Load(); last > old && !x.last.CompareAndSwap(old, last); old = x.last.Load() {
	}
}

// replica is the log replica for which a request waited longest. It is used by several goroutines.
type replica struct {
	took atomic.Int64 // ns
	node atomic.Pointer[string]
}

// Replica records the log replica for which an append to the commit log waited, and how long. The one of the longest wait is kept. A nil node is
// unknown; it must not change otherwise.
func (r *Record) Replica(node *string, took time.Duration) {
	if r == nil || node == nil {
		return
	}
	if x := &r.replica; x.node.Load() == nil || int64(took) > x.took.Load() {
		x.took.Store(int64(took))
		x.node.Store(node)
	}
}

// SlowestReplica returns the node of the log replica for which the request waited longest; empty if there is none.
func (r *Record) SlowestReplica() string {
	if node := r.replica.node.Load(); node != nil {
		return *node
	}
	return ""
}

// Count adds to a counter.
func (r *Record) Count(c Counter, n int) {
	if r != nil {
		r.counters[c] += int32(n)
	}
}

// In counts a tablet. The first one is kept by its id.
func (r *Record) In(tablet uint64) {
	if r != nil {
		if r.tablet == 0 {
			r.tablet = tablet
		}
		r.counters[Tablets]++
	}
}

// About records the table of a request that does not name it, such as the next batch of a scan.
func (r *Record) About(table string) {
	if r != nil {
		r.table = table
	}
}

// Table returns the table of About; empty if there is none.
func (r *Record) Table() string {
	if r == nil {
		return ""
	}
	return r.table
}

// Began returns when the request arrived, and the zero time if r is nil.
func (r *Record) Began() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.began
}

// FirstTablet returns the id of the first tablet that the request used; 0: it used none.
func (r *Record) FirstTablet() uint64 { return r.tablet }

// Stages calls f for each stage that the request was in, with when it was first, after its arrival.
func (r *Record) Stages(f func(s Stage, first, took time.Duration, times int64)) {
	for i := range r.summed {
		if x := &r.summed[i]; x.count > 0 {
			f(Stage(i), time.Duration(x.first)*time.Microsecond, x.took, int64(x.count))
		}
	}
	for i := range r.extended {
		if x := &r.extended[i]; x.count.Load() > 0 {
			first := x.first.Load()
			f(sums+Stage(i), time.Duration(first), time.Duration(max(0, x.last.Load()-first)), int64(x.count.Load()))
		}
	}
}

// Counters calls f for each counter that is not zero.
func (r *Record) Counters(f func(c Counter, n int64)) {
	for i, n := range r.counters {
		if n != 0 {
			f(Counter(i), int64(n))
		}
	}
}
