package tablet

import "sync"

// queue holds the tablets that wait for some work, each at most once, so their number bounds it.
type queue struct {
	mu struct {
		sync.Mutex
		list   []*Tablet
		member map[*Tablet]bool
		closed bool
	}
	wake chan struct{} // capacity 1: something was added, or wakeUp was called
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.mu.member = map[*Tablet]bool{}
	return q
}

// add appends t, if it is not in the queue.
func (q *queue) add(t *Tablet) {
	q.mu.Lock()
	if !q.mu.member[t] && !q.mu.closed {
		q.mu.member[t] = true
		q.mu.list = append(q.mu.list, t)
	}
	q.mu.Unlock()
	q.wakeUp()
}

// take removes and returns the first tablet, or returns nil.
func (q *queue) take() *Tablet {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.list) == 0 {
		return nil
	}
	t := q.mu.list[0]
	q.mu.list[0] = nil
	q.mu.list = q.mu.list[1:]
	delete(q.mu.member, t)
	return t
}

func (q *queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close empties the queue. Later calls of add do nothing.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.list = nil
	clear(q.mu.member)
	q.mu.Unlock()
	q.wakeUp()
}
