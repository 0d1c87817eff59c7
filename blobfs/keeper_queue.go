package blobfs

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"
)

// task is an extent here that needs something. What that is is found out when its turn comes.
type task struct {
	id      ExtentID
	rank    int // live replicas; taskSurplus if it is not in danger
	created time.Time
	bytes   int64
	// behind means that another node should do it, which may not know or not be able to.
	behind bool
	also   string // a node that is not on the list and has a replica
	// doubted is a node on the list that said that it has no good replica.
	doubted string
}

// The ranks of tasks that no extent's life depends on.
const (
	taskBehind  = 100 // plus live replicas
	taskSurplus = 200
)

func (t *task) before(u *task) bool {
	if c := cmp.Compare(t.rank, u.rank); c != 0 {
		return c < 0
	}
	return t.created.Before(u.created)
}

const (
	// tasksMax is how many tasks wait at most. The least urgent are left for the next scan.
	tasksMax = 16 << 10
	// failuresMax is how many extents are remembered that could not be helped.
	failuresMax = 16 << 10
	// hurriesMax is how often what failed is tried again ahead of its time because a node answers again: it may do
	// that and still fail.
	hurriesMax = 3
	retryMin   = time.Second
	retryMax   = 5 * time.Minute
)

// failure is why an extent could not be helped, and when to try again.
type failure struct {
	task  task
	err   error
	until time.Duration
	tries int
	// hurries counts the times that it was tried ahead of its time.
	hurries int
}

// taskQueue has the most urgent task first.
type taskQueue struct {
	clock Clock

	// mu guards what follows. Never held across I/O.
	mu       sync.Mutex
	heap     taskHeap
	queued   map[ExtentID]*queuedTask
	busy     map[ExtentID]bool
	again    map[ExtentID]task // what was to be done for one that is busy: what it is busy with may be older
	failures map[ExtentID]failure
	left     bool          // some were left out
	did      bool          // some were done since rested was asked
	wake     chan struct{} // closed when something changes
}

type queuedTask struct {
	task
	index int
}

// taskHeap has the most urgent one at 0.
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

func newTaskQueue(clock Clock) *taskQueue {
	return &taskQueue{clock: clock, queued: map[ExtentID]*queuedTask{}, busy: map[ExtentID]bool{}, again: map[ExtentID]task{}, failures: map[ExtentID]failure{}, wake: make(chan struct{})}
}

func (q *taskQueue) signalLocked() {
	close(q.wake)
	q.wake = make(chan struct{})
}

// push adds a task, unless it is known, or failed lately. What is to be done for an extent that somebody is busy with
// waits until that has ended.
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
		q.again[t.id] = t
		return
	}
	if len(q.heap) >= tasksMax {
		q.left = true
		worst := len(q.heap) - 1 // a leaf, and so among the less urgent
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

// pop waits for a task.
func (q *taskQueue) pop(ctx context.Context) (task, error) {
	for {
		q.mu.Lock()
		for len(q.heap) > 0 && ctx.Err() == nil {
			e := heap.Pop(&q.heap).(*queuedTask)
			delete(q.queued, e.id)
			if q.busy[e.id] { // claimed since
				q.again[e.id] = e.task
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

// done ends a task. With an error it is not tried again for a while.
func (q *taskQueue) done(t task, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.did = true
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

// freeLocked has nobody busy with an extent any more.
func (q *taskQueue) freeLocked(x ExtentID) {
	delete(q.busy, x)
	if t, ok := q.again[x]; ok {
		delete(q.again, x)
		q.pushLocked(t)
	}
	q.signalLocked()
}

// claim takes an extent that nobody is busy with, outside of the queue; false if somebody is.
func (q *taskQueue) claim(x ExtentID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[x] {
		return false
	}
	q.busy[x] = true
	return true
}

func (q *taskQueue) unclaim(x ExtentID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeLocked(x)
}

// failed returns why an extent could not be helped lately.
func (q *taskQueue) failed(x ExtentID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failures[x].err
}

// drained tells whether nothing waits, and some tasks were left out before; it forgets
// that there were.
func (q *taskQueue) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.left || len(q.heap) > 0 {
		return false
	}
	q.left = false
	return true
}

// rested tells whether all that waited was done, and something was since it last told so.
func (q *taskQueue) rested() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.did || len(q.heap)+len(q.busy) > 0 {
		return false
	}
	q.did = false
	return true
}

// forgive has all failures tried again: the fleet has changed.
func (q *taskQueue) forgive() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for x, f := range q.failures {
		f.until, f.tries, f.hurries = 0, 0, 0
		q.failures[x] = f
	}
}

// hurry has failures tried again at once: a node answers again.
func (q *taskQueue) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for x, f := range q.failures {
		if f.until > now && f.hurries < hurriesMax {
			f.until = 0
			f.hurries++
			q.failures[x] = f
		}
	}
}

// retry queues what failed and is due again: no scan finds what only an audit knew. It returns how many extents
// could not be helped lately, and why one of them could not.
func (q *taskQueue) retry() (n int, example error) {
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

// load returns how many tasks wait or are under way, and how many of them are for extents in danger.
func (q *taskQueue) load() (all, endangered int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.heap {
		if t.rank < taskBehind {
			endangered++
		}
	}
	return len(q.heap) + len(q.busy), endangered + len(q.busy)
}
