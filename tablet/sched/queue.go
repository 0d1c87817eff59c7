package sched

import "sync"

// Queue holds what waits for some work, each item at most once, so their number bounds it.
type Queue[T comparable] struct {
	mu struct {
		sync.Mutex
		list   []T
		member map[T]bool
		closed bool
	}
	// Wake has capacity 1. It receives after something was added, and after WakeUp.
	Wake chan struct{}
}

// NewQueue returns an empty queue.
func NewQueue[T comparable]() *Queue[T] {
	q := &Queue[T]{Wake: make(chan struct{}, 1)}
	q.mu.member = map[T]bool{}
	return q
}

// Add appends t, if it is not in the queue.
func (q *Queue[T]) Add(t T) {
	q.mu.Lock()
	if !q.mu.member[t] && !q.mu.closed {
		q.mu.member[t] = true
		q.mu.list = append(q.mu.list, t)
	}
	q.mu.Unlock()
	q.WakeUp()
}

// Take removes and returns the first item. It returns the zero value if the queue is empty.
func (q *Queue[T]) Take() (first T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.list) == 0 {
		return first
	}
	var none T
	first = q.mu.list[0]
	q.mu.list[0] = none
	q.mu.list = q.mu.list[1:]
	delete(q.mu.member, first)
	return first
}

// WakeUp wakes the goroutine that works on the queue.
func (q *Queue[T]) WakeUp() {
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Close empties the queue. Later calls of Add do nothing.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.list = nil
	clear(q.mu.member)
	q.mu.Unlock()
	q.WakeUp()
}
