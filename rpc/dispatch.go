package rpc

import "time"

// startWorkers starts the goroutines that run Pooled methods.
func (s *Server) startWorkers() {
	for range s.cfg.Workers {
		s.pool.Go(s.worker)
	}
}

func (s *Server) worker() {
	for {
		select {
		case c := <-s.work:
			c.run()
		case <-s.ctx.Done():
			return
		}
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
		select {
		case s.work <- call:
		default:
			if !waitSend(c, s.work, call) {
				c.overload(call)
			}
		}
	case Spawned:
		select {
		case s.spawn <- call: // one that has run a call before is free
		default:
			if !s.spawnFor(call) && !waitSend(c, s.spawn, call) {
				c.overload(call)
			}
		}
	}
}

// spawnFor starts a goroutine for Spawned methods with its first call, unless there
// are SpawnedMax. It stays for later calls: a grown stack is worth keeping, and
// starting one for each call costs 15 to 40 % of a small call.
func (s *Server) spawnFor(call *Call) bool {
	if s.spawned.Add(1) > int64(s.cfg.SpawnedMax) {
		s.spawned.Add(-1)
		return false
	}
	s.active.Go(func() {
		call.run()
		for {
			select {
			case c := <-s.spawn:
				c.run()
			case <-s.ctx.Done():
				return
			}
		}
	})
	return true
}

// waitSend sends v within AdmitWait. Answers flow meanwhile.
func waitSend[T any](c *serverConn, ch chan<- T, v T) bool {
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
