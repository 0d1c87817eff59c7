package rpc

import (
	"sync"
	"time"
)

// pressurePeriod is the interval at which connections are checked during memory pressure.
const pressurePeriod = 100 * time.Millisecond

// memoryPressure counts the requests and handlers that wait for memory.
type memoryPressure struct {
	sync.Mutex
	waiting int
	over    chan struct{} // closed when the last waiter is gone
}

// MemoryPressure reports that a caller waits for memory that responses may hold, such as memory released
// by OnSent. The pressure lasts until over is called; calling over again does nothing.
//
// During the pressure, a connection is closed if its client takes longer than PressureTimeout for
// one write call, of at most 1 MiB. Otherwise a few slow readers could hold all the memory. While
// requests wait for memory, a connection is also closed if its client sends less than 1/32 of the
// memory charged for a large message in that time.
func (s *Server) MemoryPressure() (over func()) {
	s.pressure.Lock()
	defer s.pressure.Unlock()
	if s.pressure.waiting++; s.pressure.waiting == 1 {
		s.pressure.over = make(chan struct{})
		over := s.pressure.over
		s.pool.Go(func() { s.dropSlow(over) }) // not a worker: all workers may be waiting
	}
	return sync.OnceFunc(s.endPressure)
}

func (s *Server) endPressure() {
	s.pressure.Lock()
	defer s.pressure.Unlock()
	if s.pressure.waiting--; s.pressure.waiting == 0 {
		close(s.pressure.over)
	}
}

func (s *Server) dropSlow(over <-chan struct{}) {
	tick := time.NewTicker(pressurePeriod)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		for _, c := range s.snapshot() {
			err := error(nil)
			switch {
			case c.out.slow(s.cfg.PressureTimeout):
				err = errReadsSlowly
			case s.memory.waiting.Load() > 0 && c.sendsSlowly(s.cfg.PressureTimeout):
				err = errSendsSlowly
			}
			if err != nil && (s.cfg.Patient == nil || !s.cfg.Patient(&c.peer)) {
				c.kill(err)
			}
		}
	}
}

// sendsSlowly reports whether a large message has not made the required progress within the given
// time.
func (c *serverConn) sendsSlowly(in time.Duration) bool {
	since := c.progressAt.Load()
	return since != 0 && time.Since(clock)-time.Duration(since) > in
}
