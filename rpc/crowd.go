package rpc

import (
	"sync"
	"time"
)

// crowdedPeriod is the interval at which connections are checked during memory pressure.
const crowdedPeriod = 100 * time.Millisecond

// crowd counts the requests and handlers that wait for memory.
type crowd struct {
	sync.Mutex
	waiting int
	over    chan struct{} // closed when the last waiter is gone
}

// Crowded reports that a caller waits for memory that responses may hold, such as memory released
// by OnSent. The pressure lasts until over is called; calling over again does nothing.
//
// During the pressure, a connection is closed if its client takes longer than CrowdedTimeout for
// one write call, of at most 1 MiB. Otherwise a few slow readers could hold all the memory. While
// requests wait for memory, a connection is also closed if its client sends less than 1/32 of the
// memory charged for a large message in that time.
func (s *Server) Crowded() (over func()) {
	s.crowd.Lock()
	defer s.crowd.Unlock()
	if s.crowd.waiting++; s.crowd.waiting == 1 {
		s.crowd.over = make(chan struct{})
		over := s.crowd.over
		s.pool.Go(func() { s.dropSlow(over) }) // not a worker: all workers may be waiting
	}
	return sync.OnceFunc(s.lessCrowded)
}

func (s *Server) lessCrowded() {
	s.crowd.Lock()
	defer s.crowd.Unlock()
	if s.crowd.waiting--; s.crowd.waiting == 0 {
		close(s.crowd.over)
	}
}

func (s *Server) dropSlow(over <-chan struct{}) {
	tick := time.NewTicker(crowdedPeriod)
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
			case c.out.slow(s.cfg.CrowdedTimeout):
				err = errReadsSlowly
			case s.memory.waiting.Load() > 0 && c.sendsSlowly(s.cfg.CrowdedTimeout):
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
	since := c.pace.Load()
	return since != 0 && time.Since(clock)-time.Duration(since) > in
}
