package fair

import (
	"context"
	"slices"
	"sync"
)

// Memory is an amount of memory that users share. A user who holds some gets more only if at least as much is free
// afterwards as that user then holds: alone half of it, with another who asks for all a third. One who holds none may get
// all. The user "", which stands for the cluster itself, has no such bound. Requests of one user get memory in the order in which
// they came: a large one that has to wait until the user holds little would never get it otherwise.
type Memory struct {
	mu      sync.Mutex
	free    int64
	held    map[string]int64 // by users
	waiters []*memoryWaiter  // in the order in which they came
}

// memoryWaiter is a goroutine that waits for memory.
type memoryWaiter struct {
	user  string
	n     int64
	ready chan struct{} // closed when the memory is the waiter's
}

// NewMemory returns so much memory, all of it free.
func NewMemory(n int64) *Memory { return &Memory{free: n, held: map[string]int64{}} }

// mayLocked reports whether the share of a user allows n more.
func (m *Memory) mayLocked(user string, n int64) bool {
	held := m.held[user]
	return user == "" || held == 0 || held+n <= m.free-n
}

func (m *Memory) takeLocked(user string, n int64) {
	m.free -= n
	if user != "" {
		m.held[user] += n
	}
}

// Try takes n for a user if that is possible without waiting, and without passing others that wait.
func (m *Memory) Try(user string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > m.free || !m.mayLocked(user, n) {
		return false
	}
	if slices.ContainsFunc(m.waiters, func(w *memoryWaiter) bool { return w.user == user }) || m.firstLocked() >= 0 {
		return false
	}
	m.takeLocked(user, n)
	return true
}

// Acquire takes n for a user. It waits until ctx ends, whose error it returns then.
func (m *Memory) Acquire(ctx context.Context, user string, n int64) error {
	if m.Try(user, n) {
		return nil
	}
	w := &memoryWaiter{user: user, n: n, ready: make(chan struct{})}
	m.mu.Lock()
	m.waiters = append(m.waiters, w)
	m.grantLocked()
	m.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.waiters, w); i >= 0 {
		m.waiters = slices.Delete(m.waiters, i, i+1)
	} else { // it was granted meanwhile
		m.releaseLocked(user, n)
	}
	m.grantLocked() // those behind it may be next
	return ctx.Err()
}

// Release frees n that a user holds.
func (m *Memory) Release(user string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(user, n)
	m.grantLocked()
}

func (m *Memory) releaseLocked(user string, n int64) {
	m.free += n
	if user == "" {
		return
	}
	if m.held[user] -= n; m.held[user] <= 0 {
		delete(m.held, user)
	}
}

// firstLocked returns the index of the first waiter whose share allows what it waits for and that no other of its user is
// before, or -1.
func (m *Memory) firstLocked() int {
	var waits map[string]bool // users with a waiter before the one at hand
	for i, w := range m.waiters {
		switch {
		case waits[w.user]:
		case m.mayLocked(w.user, w.n):
			return i
		case waits == nil:
			waits = map[string]bool{w.user: true}
		default:
			waits[w.user] = true
		}
	}
	return -1
}

// grantLocked gives memory to those that wait, in the order in which they came. One whose share does not allow it is
// passed over by other users; the first one whose share does, and for which too little is free, is not: it would never get a
// large amount.
func (m *Memory) grantLocked() {
	for i := m.firstLocked(); i >= 0 && m.waiters[i].n <= m.free; i = m.firstLocked() {
		w := m.waiters[i]
		m.takeLocked(w.user, w.n)
		close(w.ready)
		m.waiters = slices.Delete(m.waiters, i, i+1)
	}
}
