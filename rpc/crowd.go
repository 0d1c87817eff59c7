package rpc

import (
	"sync"
	"time"
)

// crowdedPeriod is how often connections are looked at while the server is crowded.
const crowdedPeriod = 100 * time.Millisecond

// crowd counts those who wait for memory that answers may hold.
type crowd struct {
	sync.Mutex
	waiting int
	over    chan struct{} // closed when the last has gone
}

// Crowded says that somebody waits for memory which answers may hold, such as OnSent's, until over is called, which may be
// more than once. Meanwhile a connection ends whose client takes longer than CrowdedTimeout for the 1 MiB that one
// write call hands it at most: else a few who hardly read would keep all others out. While requests wait for memory, so does one
// whose client does not send in that time a 32nd of what is taken for its large message.
func (s *Server) Crowded() (over func()) {
	s.crowd.Lock()
	defer s.crowd.Unlock()
	if s.crowd.waiting++; s.crowd.waiting == 1 {
		s.crowd.over = make(chan struct{})
		over := s.crowd.over
		s.pool.Go(func() { s.dropSlow(over) }) // a pooled handler may be who waits
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

// sendsSlowly tells whether a large message has not come on as fast as it has to.
func (c *serverConn) sendsSlowly(in time.Duration) bool {
	since := c.pace.Load()
	return since != 0 && time.Since(clock)-time.Duration(since) > in
}
