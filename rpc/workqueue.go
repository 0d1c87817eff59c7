package rpc

import (
	"slices"
	"sync"
)

// workQueue has the calls of Pooled methods that wait for a worker: owners in turn, the calls of
// one in their order. Calls without an owner go first.
type workQueue struct {
	shares
	// runMax is how many workers the calls of one owner may have.
	runMax int
	ready  sync.Cond // a call was queued, or the queue was closed
	// ring are the lanes with queued calls, the next first.
	ring   []*lane
	closed bool
}

func (q *workQueue) init(max, runMax int) {
	q.shares.init(max)
	q.runMax, q.ready.L = runMax, &q.mu
}

// push queues a call if its owner may have one more.
func (q *workQueue) push(c *Call) bool {
	q.mu.Lock()
	l := q.laneLocked(c.owner)
	if len(l.waiters) > 0 || !q.mayLocked(l) {
		q.mu.Unlock()
		return false
	}
	q.takeLocked(l)
	q.queueLocked(l, c)
	q.mu.Unlock()
	q.ready.Signal()
	return true
}

// pushTaken queues a call for which a share was taken.
func (q *workQueue) pushTaken(c *Call) {
	q.mu.Lock()
	q.queueLocked(q.lanes[c.owner], c)
	q.mu.Unlock()
	q.ready.Signal()
}

func (q *workQueue) queueLocked(l *lane, c *Call) {
	if l.calls = append(l.calls, c); len(l.calls) == 1 {
		if l.owner == "" {
			q.ring = slices.Insert(q.ring, 0, l)
		} else {
			q.ring = append(q.ring, l)
		}
	}
}

// next waits for a call that may run. It returns nil once the queue is closed.
func (q *workQueue) next() (*Call, *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		for i, l := range q.ring {
			if l.owner != "" && l.running >= q.runMax {
				continue
			}
			l.running++
			c := l.calls[0]
			l.calls[0] = nil
			if l.calls = l.calls[1:]; len(l.calls) == 0 {
				q.ring = slices.Delete(q.ring, i, i+1)
			} else if l.owner != "" {
				q.ring = append(slices.Delete(q.ring, i, i+1), l)
			}
			return c, l
		}
		q.ready.Wait()
	}
	return nil, nil
}

// done ends a call that next has returned. left tells that its worker was replaced before.
func (q *workQueue) done(l *lane, left bool) {
	q.mu.Lock()
	if !left {
		l.running--
	}
	q.giveLocked(l)
	q.mu.Unlock()
}

// leave counts a running call as one that has no worker.
func (q *workQueue) leave(l *lane) {
	q.mu.Lock()
	l.running--
	q.mu.Unlock()
}

func (q *workQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}

// seat is a worker's place, of which a call that takes long leaves it.
type seat struct {
	srv  *Server
	lane *lane
	left bool
}

// worker runs calls until one leaves its place, or the server is closed.
func (s *Server) worker() {
	p := &seat{srv: s}
	for !p.left {
		var c *Call
		if c, p.lane = s.work.next(); c == nil {
			return
		}
		c.seat = p
		c.run()
		s.work.done(p.lane, p.left)
	}
}

// LeavePool says that the handler of a Pooled method, which calls it, will take long: another
// worker takes its place. It does nothing for other methods, and when called again.
func (c *Call) LeavePool() {
	p := c.seat
	if p == nil || p.left {
		return
	}
	p.left = true
	p.srv.work.leave(p.lane)
	p.srv.pool.Go(p.srv.worker) // the pool is not waited for while this one runs
}
