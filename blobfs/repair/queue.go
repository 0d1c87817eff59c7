package repair

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

// task is an extent here that needs work. What it needs is determined when the task runs.
type task struct {
	id      local.ExtentID
	rank    int // live replicas; taskSurplus if the extent is not under-replicated
	created time.Time
	bytes   int64
	// fallback means that another node is responsible, but may not know it or may be unable to act.
	fallback bool
	extra    string // a node that has a replica but is not on the list
	// suspectNode is a node on the list that reported that it has no good replica.
	suspectNode string
}

// Ranks of tasks that are less urgent than those for which this node is responsible.
const (
	taskFallback = 100 // plus live replicas
	taskSurplus  = 200
)

func (t *task) before(u *task) bool {
	if c := cmp.Compare(t.rank, u.rank); c != 0 {
		return c < 0
	}
	return t.created.Before(u.created)
}

const (
	// tasksMax bounds the queued tasks. The least urgent ones are left to the next scan.
	tasksMax = 16 << 10
	// failuresMax bounds the extents whose failures are remembered.
	failuresMax = 16 << 10
	// earlyRetriesMax is how often a failed task is retried early because a node answers again: the
	// node may answer and the task still fail.
	earlyRetriesMax = 3
	retryMin        = time.Second
	retryMax        = 5 * time.Minute
)

// failure is why a task failed, and when to retry it.
type failure struct {
	task  task
	err   error
	until time.Duration
	tries int
	// earlyRetries counts the early retries.
	earlyRetries int
}

// taskQueue is a priority queue; the most urgent task is first.
type taskQueue struct {
	clock timing.Clock

	// mu guards what follows. Never held across I/O.
	mu         sync.Mutex
	heap       taskHeap
	queued     map[local.ExtentID]*queuedTask
	busy       map[local.ExtentID]bool
	next       map[local.ExtentID]task // the next task of an extent whose current task may be based on older data
	failures   map[local.ExtentID]failure
	overflowed bool          // tasks were left out because the queue was full
	worked     bool          // a task ended since rested last returned true
	wake       chan struct{} // closed when something changes
}

type queuedTask struct {
	task
	index int
}

// taskHeap is a heap with the most urgent task at index 0.
type taskHeap []*queuedTask

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].before(&h[j].task) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *taskHeap) Push(x any) {
	t := x.(*queuedTask)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *taskHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

func newTaskQueue(clock timing.Clock) *taskQueue {
	return &taskQueue{clock: clock, queued: map[local.ExtentID]*queuedTask{}, busy: map[local.ExtentID]bool{}, next: map[local.ExtentID]task{}, failures: map[local.ExtentID]failure{}, wake: make(chan struct{})}
}

func (q *taskQueue) signalLocked() {
	close(q.wake)
	q.wake = make(chan struct{})
}

// push queues a task, unless the extent failed and its retry is not due. It replaces a queued task
// of the same extent. If the extent is busy the task is queued when the current one ends.
func (q *taskQueue) push(t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pushLocked(t)
}

func (q *taskQueue) pushLocked(t task) {
	if f, ok := q.failures[t.id]; ok && q.clock.Now() < f.until {
		return
	}
	if old := q.queued[t.id]; old != nil {
		old.task = t
		heap.Fix(&q.heap, old.index)
		return
	}
	if q.busy[t.id] {
		q.next[t.id] = t
		return
	}
	if len(q.heap) >= tasksMax {
		q.overflowed = true
		worst := len(q.heap) - 1 // a leaf, and so among the least urgent
		if !t.before(&q.heap[worst].task) {
			return
		}
		delete(q.queued, q.heap[worst].id)
		heap.Remove(&q.heap, worst)
	}
	e := &queuedTask{task: t}
	heap.Push(&q.heap, e)
	q.queued[t.id] = e
	q.signalLocked()
}

// pop waits for the most urgent task.
func (q *taskQueue) pop(ctx context.Context) (task, error) {
	for {
		q.mu.Lock()
		for len(q.heap) > 0 && ctx.Err() == nil {
			e := heap.Pop(&q.heap).(*queuedTask)
			delete(q.queued, e.id)
			if q.busy[e.id] { // claimed meanwhile
				q.next[e.id] = e.task
				continue
			}
			q.busy[e.id] = true
			q.mu.Unlock()
			return e.task, nil
		}
		wake := q.wake
		q.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return task{}, ctx.Err()
		}
	}
}

// done ends a task. After an error the extent is retried with exponential backoff.
func (q *taskQueue) done(t task, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.worked = true
	if err == nil {
		delete(q.failures, t.id)
	} else {
		if len(q.failures) >= failuresMax {
			for x := range q.failures {
				delete(q.failures, x)
				break
			}
		}
		f := q.failures[t.id]
		f.task, f.err, f.tries = t, err, f.tries+1
		f.until = q.clock.Now() + min(retryMin<<min(f.tries-1, 10), retryMax)
		q.failures[t.id] = f
	}
	q.freeLocked(t.id)
}

// freeLocked marks an extent as not busy and queues its next task.
func (q *taskQueue) freeLocked(x local.ExtentID) {
	delete(q.busy, x)
	if t, ok := q.next[x]; ok {
		delete(q.next, x)
		q.pushLocked(t)
	}
	q.signalLocked()
}

// claim marks an extent as busy without a task. It returns false if the extent is busy already.
func (q *taskQueue) claim(x local.ExtentID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[x] {
		return false
	}
	q.busy[x] = true
	return true
}

func (q *taskQueue) unclaim(x local.ExtentID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeLocked(x)
}

// failed returns the error of an extent's last failed task, nil if it succeeded since.
func (q *taskQueue) failed(x local.ExtentID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failures[x].err
}

// overflowDrained reports whether the queue is empty and tasks were left out before, and resets the
// latter.
func (q *taskQueue) overflowDrained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.overflowed || len(q.heap) > 0 {
		return false
	}
	q.overflowed = false
	return true
}

// idleAfterWork reports whether no task is queued or running, and any has ended since it last
// returned true.
func (q *taskQueue) idleAfterWork() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.worked || len(q.heap)+len(q.busy) > 0 {
		return false
	}
	q.worked = false
	return true
}

// resetFailures makes all failed tasks due and resets their backoff, since the membership has
// changed.
func (q *taskQueue) resetFailures() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for x, f := range q.failures {
		f.until, f.tries, f.earlyRetries = 0, 0, 0
		q.failures[x] = f
	}
}

// retryNow makes failed tasks due at once, since a node answers again.
func (q *taskQueue) retryNow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for x, f := range q.failures {
		if f.until > now && f.earlyRetries < earlyRetriesMax {
			f.until = 0
			f.earlyRetries++
			q.failures[x] = f
		}
	}
}

// requeueFailed queues the failed tasks that are due, since no scan finds what only an audit knew.
// It returns how many extents have failed and one of the errors.
func (q *taskQueue) requeueFailed() (n int, example error) {
	q.mu.Lock()
	now := q.clock.Now()
	var due []task
	for _, f := range q.failures {
		n++
		example = f.err
		if now >= f.until {
			due = append(due, f.task)
		}
	}
	q.mu.Unlock()
	for _, t := range due {
		q.push(t)
	}
	return n, example
}

// load returns the number of queued and running tasks, and how many of them are for
// under-replicated extents, among which it counts all running ones.
func (q *taskQueue) load() (all, endangered int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.heap {
		if t.rank < taskFallback {
			endangered++
		}
	}
	return len(q.heap) + len(q.busy), endangered + len(q.busy)
}
