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
	mu     sync.Mutex
	max    int
	total  int
	owners map[string]*ownerState
	// waiting holds the owners with waiters; the first is served next.
	waiting []*ownerState
}

// ownerState is the state of one owner. It is guarded by shares.mu.
type ownerState struct {
	owner   string
	used    int     // calls that are queued or run
	running int     // calls that a workQueue's workers run
	calls   []*Call // calls that are queued in a workQueue
	waiters []*slotWaiter
}

type slotWaiter struct {
	ready chan struct{} // closed when the slot has been acquired for the waiter
}

// ownersMax is the number of owners above which those without calls are removed.
const ownersMax = 1024

func (s *shares) init(max int) { s.max, s.owners = max, map[string]*ownerState{} }

func (s *shares) ownerLocked(owner string) *ownerState {
	l := s.owners[owner]
	if l == nil {
		if len(s.owners) >= ownersMax {
			for name, l := range s.owners {
				if l.used == 0 && len(l.waiters) == 0 {
					delete(s.owners, name)
				}
			}
		}
		l = &ownerState{owner: owner}
		s.owners[owner] = l
	}
	return l
}

func (s *shares) mayAcquireLocked(l *ownerState) bool {
	free := s.max - s.total
	return free > 0 && (l.owner == "" || l.used < max(1, free))
}

func (s *shares) acquireLocked(l *ownerState) {
	l.used++
	s.total++
}

// acquire acquires a slot for one call. It reports false if the owner may not have one now.
func (s *shares) acquire(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ownerLocked(owner)
	if len(l.waiters) > 0 || !s.mayAcquireLocked(l) {
		return false
	}
	s.acquireLocked(l)
	return true
}

// await is acquire, but waits until timeout or done for a slot.
func (s *shares) await(owner string, timeout <-chan time.Time, done <-chan struct{}) bool {
	w := &slotWaiter{ready: make(chan struct{})}
	s.mu.Lock()
	l := s.ownerLocked(owner)
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
		s.waiting = slices.DeleteFunc(s.waiting, func(x *ownerState) bool { return x == l })
	}
	return false
}

// release frees the slot of one call.
func (s *shares) release(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(s.owners[owner])
}

func (s *shares) releaseLocked(l *ownerState) {
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
		if !s.mayAcquireLocked(l) {
			i++
			continue
		}
		s.acquireLocked(l)
		close(l.waiters[0].ready)
		s.waiting = slices.Delete(s.waiting, i, i+1)
		if l.waiters = l.waiters[1:]; len(l.waiters) > 0 {
			s.waiting = append(s.waiting, l)
		}
		i = 0
	}
}
