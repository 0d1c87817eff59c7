package rpc

import (
	"slices"
	"sync"
	"time"
)

// shares bounds the calls that are queued or run, over all owners, and leaves some of the slots to
// others: one owner may use as many as are free. A single owner gets half of them; two owners that
// use all they can get a third each. Calls without an owner may use all: they come from nodes, or
// the server has no owners.
type shares struct {
	mu    sync.Mutex
	max   int
	total int
	lanes map[string]*lane
	// waiting holds the lanes with waiters; the first is served next.
	waiting []*lane
}

// lane is the state of one owner. It is guarded by shares.mu.
type lane struct {
	owner   string
	used    int     // calls that are queued or run
	running int     // calls that a workQueue's workers run
	calls   []*Call // calls that are queued in a workQueue
	waiters []*shareWaiter
}

type shareWaiter struct {
	ready chan struct{} // closed when the slot has been taken for the waiter
}

// lanesMax is the number of lanes above which those without calls are removed.
const lanesMax = 1024

func (s *shares) init(max int) { s.max, s.lanes = max, map[string]*lane{} }

func (s *shares) laneLocked(owner string) *lane {
	l := s.lanes[owner]
	if l == nil {
		if len(s.lanes) >= lanesMax {
			for name, l := range s.lanes {
				if l.used == 0 && len(l.waiters) == 0 {
					delete(s.lanes, name)
				}
			}
		}
		l = &lane{owner: owner}
		s.lanes[owner] = l
	}
	return l
}

func (s *shares) mayLocked(l *lane) bool {
	free := s.max - s.total
	return free > 0 && (l.owner == "" || l.used < max(1, free))
}

func (s *shares) takeLocked(l *lane) {
	l.used++
	s.total++
}

// take takes a slot for one call. It reports false if the owner may not have one now.
func (s *shares) take(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.laneLocked(owner)
	if len(l.waiters) > 0 || !s.mayLocked(l) {
		return false
	}
	s.takeLocked(l)
	return true
}

// await is take, but waits until timeout or done for a slot.
func (s *shares) await(owner string, timeout <-chan time.Time, done <-chan struct{}) bool {
	w := &shareWaiter{ready: make(chan struct{})}
	s.mu.Lock()
	l := s.laneLocked(owner)
	if l.waiters = append(l.waiters, w); len(l.waiters) == 1 {
		s.waiting = append(s.waiting, l)
	}
	s.grantLocked()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-timeout:
	case <-done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(l.waiters, w)
	if i < 0 {
		return true // the slot was granted meanwhile
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if len(l.waiters) == 0 {
		s.waiting = slices.DeleteFunc(s.waiting, func(x *lane) bool { return x == l })
	}
	return false
}

// give releases the slot of one call.
func (s *shares) give(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(s.lanes[owner])
}

func (s *shares) giveLocked(l *lane) {
	l.used--
	s.total--
	if len(s.waiting) > 0 {
		s.grantLocked()
	}
}

// grantLocked grants free slots to waiters, one per owner, round-robin.
func (s *shares) grantLocked() {
	for i := 0; i < len(s.waiting); {
		l := s.waiting[i]
		if !s.mayLocked(l) {
			i++
			continue
		}
		s.takeLocked(l)
		close(l.waiters[0].ready)
		s.waiting = slices.Delete(s.waiting, i, i+1)
		if l.waiters = l.waiters[1:]; len(l.waiters) > 0 {
			s.waiting = append(s.waiting, l)
		}
		i = 0
	}
}
