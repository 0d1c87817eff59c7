package rpc

import (
	"slices"
	"sync"
)

// workQueue holds the calls of Pooled methods that wait for a worker. Owners are served
// round-robin, and the calls of one owner in FIFO order. Calls without an owner go first.
type workQueue struct {
	shares
	// runMax is the number of workers that the calls of one owner may use.
	runMax int
	ready  sync.Cond // a call was queued, or the queue was closed
	// ring holds the owners with queued calls; the first is served next.
	ring   []*ownerState
	closed bool
}

func (q *workQueue) init(max, runMax int) {
	q.shares.init(max)
	q.runMax, q.ready.L = runMax, &q.mu
}

// push queues a call. It reports false if the call's owner may not have another one now.
func (q *workQueue) push(c *Call) bool {
	q.mu.Lock()
	l := q.ownerLocked(c.owner)
	if len(l.waiters) > 0 || !q.mayAcquireLocked(l) {
		q.mu.Unlock()
		return false
	}
	q.acquireLocked(l)
	q.queueLocked(l, c)
	q.mu.Unlock()
	q.ready.Signal()
	return true
}

// pushTaken queues a call whose slot has been acquired.
func (q *workQueue) pushTaken(c *Call) {
	q.mu.Lock()
	q.queueLocked(q.owners[c.owner], c)
	q.mu.Unlock()
	q.ready.Signal()
}

func (q *workQueue) queueLocked(l *ownerState, c *Call) {
	if l.calls = append(l.calls, c); len(l.calls) == 1 {
		if l.owner == "" {
			q.ring = slices.Insert(q.ring, 0, l)
		} else {
			q.ring = append(q.ring, l)
		}
	}
}

// next waits for a call that may run. It returns nil after close.
func (q *workQueue) next() (*Call, *ownerState) {
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

// done releases the slot of a call that next returned. replaced means that releaseWorker was called
// for it.
func (q *workQueue) done(l *ownerState, replaced bool) {
	q.mu.Lock()
	if !replaced {
		l.running--
	}
	q.releaseLocked(l)
	q.mu.Unlock()
}

// releaseWorker stops counting a running call against its owner's workers; it keeps its slot.
func (q *workQueue) releaseWorker(l *ownerState) {
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

// workerSlot is the state of a worker that runs a call. replaced is set when another worker
// has replaced it.
type workerSlot struct {
	srv      *Server
	owner    *ownerState
	replaced bool
}

// worker runs calls until another worker replaces it or the server is closed.
func (s *Server) worker() {
	p := &workerSlot{srv: s}
	for !p.replaced {
		var c *Call
		if c, p.owner = s.work.next(); c == nil {
			return
		}
		c.workerSlot = p
		c.run()
		s.work.done(p.owner, p.replaced)
	}
}

// LeavePool makes another worker replace the one that runs the calling handler, because the handler
// will take long. It has an effect once per call, and only in Pooled methods.
func (c *Call) LeavePool() {
	p := c.workerSlot
	if p == nil || p.replaced {
		return
	}
	p.replaced = true
	p.srv.work.releaseWorker(p.owner)
	p.srv.pool.Go(p.srv.worker) // safe: Close cannot pass pool.Wait while this worker runs
}
