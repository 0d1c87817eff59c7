package rpc

import (
	"sync/atomic"
	"time"
)

// startWorkers starts the goroutines that run Pooled methods.
func (s *Server) startWorkers() {
	for range s.cfg.Workers {
		s.pool.Go(s.worker)
	}
}

// dispatch runs the call where its method says. When no worker or goroutine is
// free it waits for AdmitWait, and the connection's reader with it.
func (c *serverConn) dispatch(call *Call) {
	s := c.srv
	switch call.method.mode {
	case Inline:
		call.run()
	case Pooled:
		call.owner = c.owner()
		switch {
		case s.work.push(call):
		case c.awaitShare(&s.work.shares, call.owner):
			s.work.pushTaken(call)
		default:
			c.overload(call)
		}
	case Spawned:
		c.spawn(&s.short, call)
	case Waiting:
		c.spawn(&s.long, call)
	}
}

// spawner is the goroutines of one mode's handlers.
type spawner struct {
	shares
	calls chan *Call   // to those that are free
	count atomic.Int64 // how many there are
	most  int64
	// keep is how many stay when they have run their call. A grown stack is worth
	// keeping, and starting a goroutine for each call costs 15 to 40 % of a small one;
	// but thousands that once waited together would hold theirs for ever.
	keep int64
}

// spawn runs the call on a goroutine that is free, or on a new one.
func (c *serverConn) spawn(sp *spawner, call *Call) {
	call.owner = c.owner()
	if !sp.take(call.owner) && !c.awaitShare(&sp.shares, call.owner) {
		c.overload(call)
		return
	}
	select {
	case sp.calls <- call:
	default:
		if !c.srv.spawnFor(sp, call) && !waitSend(c, sp.calls, call) {
			sp.give(call.owner)
			c.overload(call)
		}
	}
}

// spawnFor starts a goroutine with its first call, unless there are as many as may be.
func (s *Server) spawnFor(sp *spawner, call *Call) bool {
	if sp.count.Add(1) > sp.most {
		sp.count.Add(-1)
		return false
	}
	s.active.Go(func() {
		sp.run(call)
		for sp.stays() {
			select {
			case c := <-sp.calls:
				sp.run(c)
			case <-s.ctx.Done():
				return
			}
		}
	})
	return true
}

// run runs a call and returns its share.
func (sp *spawner) run(c *Call) {
	owner := c.owner
	c.run()
	sp.give(owner)
}

// stays tells whether a goroutine whose call is done waits for another one. One that
// does not is no longer counted.
func (sp *spawner) stays() bool {
	for {
		n := sp.count.Load()
		if n <= sp.keep {
			return true
		}
		if sp.count.CompareAndSwap(n, n-1) {
			return false
		}
	}
}

// owner returns whose share the connection's calls take.
func (c *serverConn) owner() string {
	if of := c.srv.cfg.OwnerOf; of != nil {
		return of(&c.peer)
	}
	return ""
}

// awaitShare takes the share of a call within AdmitWait. Answers flow meanwhile.
func (c *serverConn) awaitShare(s *shares, owner string) bool {
	c.stayAlive()
	c.out.uncork()
	defer c.out.cork()
	t := time.NewTimer(c.srv.cfg.AdmitWait)
	defer t.Stop()
	return s.await(owner, t.C, c.peer.ctx.Done())
}

// waitSend sends v within AdmitWait. Answers flow meanwhile.
func waitSend[T any](c *serverConn, ch chan<- T, v T) bool {
	c.stayAlive()
	c.out.uncork()
	defer c.out.cork()
	t := time.NewTimer(c.srv.cfg.AdmitWait)
	defer t.Stop()
	select {
	case ch <- v:
		return true
	case <-t.C:
	case <-c.peer.ctx.Done():
	}
	return false
}

// overload refuses a call that has not run.
func (c *serverConn) overload(call *Call) {
	c.srv.count.overloaded.Add(1)
	call.Fail(c.srv.overloaded("workers"))
}

func (s *Server) overloaded(what string) *Error {
	return &Error{Code: CodeOverloaded, Message: "no " + what + " free", Retryable: true,
		Details: map[string]any{"retry_after_ms": s.cfg.RetryAfter.Milliseconds()}}
}
