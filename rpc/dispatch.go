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

// dispatch runs the call on the goroutine of its method's mode. If no worker or goroutine is free, it
// waits for AdmitWait and blocks the connection's reader.
func (c *serverConn) dispatch(call *Call) {
	s := c.srv
	switch call.method.mode {
	case Inline:
		call.run()
	case Pooled:
		call.owner = c.owner()
		switch {
		case s.work.push(call):
		case c.awaitSlot(&s.work.shares, call.owner):
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

// spawner runs the handlers of one mode, each on its own goroutine.
type spawner struct {
	shares
	calls         chan *Call   // received by idle goroutines
	count         atomic.Int64 // goroutines that run or are idle
	goroutinesMax int64
	// idleMax is the number of goroutines that stay idle after their call. Reuse keeps their grown
	// stacks, and starting a goroutine per call adds 15 to 40 % to a small call. Beyond idleMax
	// they end, or thousands that once waited together would hold their stacks forever.
	idleMax int64
}

// spawn runs the call on an idle goroutine or on a new one.
func (c *serverConn) spawn(sp *spawner, call *Call) {
	call.owner = c.owner()
	if !sp.acquire(call.owner) && !c.awaitSlot(&sp.shares, call.owner) {
		c.overload(call)
		return
	}
	select {
	case sp.calls <- call:
	default:
		if !c.srv.spawnFor(sp, call) && !waitSend(c, sp.calls, call) {
			sp.release(call.owner)
			c.overload(call)
		}
	}
}

// spawnFor starts a goroutine that runs the call first. It reports false if the maximum is reached.
func (s *Server) spawnFor(sp *spawner, call *Call) bool {
	if sp.count.Add(1) > sp.goroutinesMax {
		sp.count.Add(-1)
		return false
	}
	s.active.Go(func() {
		sp.run(call)
		for sp.keepsIdle() {
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

// run runs a call and releases its slot.
func (sp *spawner) run(c *Call) {
	owner := c.owner
	c.run()
	sp.release(owner)
}

// keepsIdle reports whether a goroutine whose call has ended waits for another one. If not, the
// goroutine is no longer counted.
func (sp *spawner) keepsIdle() bool {
	for {
		n := sp.count.Load()
		if n <= sp.idleMax {
			return true
		}
		if sp.count.CompareAndSwap(n, n-1) {
			return false
		}
	}
}

// owner returns the owner that the connection's calls are counted against.
func (c *serverConn) owner() string {
	if of := c.srv.cfg.OwnerOf; of != nil {
		return of(&c.peer)
	}
	return ""
}

// awaitSlot takes a slot within AdmitWait and reports whether it did. Responses are written
// meanwhile.
func (c *serverConn) awaitSlot(s *shares, owner string) bool {
	c.sendAliveIfDue()
	c.out.uncork()
	defer c.out.cork()
	t := time.NewTimer(c.srv.cfg.AdmitWait)
	defer t.Stop()
	return s.await(owner, t.C, c.peer.ctx.Done())
}

// waitSend sends v within AdmitWait and reports whether it did. Responses are written meanwhile.
func waitSend[T any](c *serverConn, ch chan<- T, v T) bool {
	c.sendAliveIfDue()
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

// overload rejects a call that has not run.
func (c *serverConn) overload(call *Call) {
	c.srv.count.overloaded.Add(1)
	call.Fail(c.srv.overloaded("workers"))
}

func (s *Server) overloaded(what string) *Error {
	return &Error{Code: CodeOverloaded, Message: "no " + what + " free", Retryable: true,
		Details: map[string]any{"retry_after_ms": s.cfg.RetryAfter.Milliseconds()}}
}
