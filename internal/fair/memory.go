package fair

import (
	"context"
	"slices"
	"sync"
)

// Memory is an amount of memory shared by users. A user that already holds some gets more only if
// at least as much remains free as the user then holds: up to half if it is alone, a third with one
// other. A user that holds none may get all. The user "", which stands for the cluster itself, has
// no such limit. Requests of one user are served in order of arrival; otherwise a large one that
// waits until the user holds little might never be served.
type Memory struct {
	mu      sync.Mutex
	free    int64
	held    map[string]int64 // by user
	waiters []*memoryWaiter  // in order of arrival
}

// memoryWaiter is a goroutine that waits for memory.
type memoryWaiter struct {
	user  string
	n     int64
	ready chan struct{} // closed when the memory is granted
}

// NewMemory returns n units of memory, all free.
func NewMemory(n int64) *Memory { return &Memory{free: n, held: map[string]int64{}} }

// mayLocked reports whether the user's share allows n more.
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

// Try acquires n for a user without waiting, unless it would have to wait or would overtake an
// earlier waiter. It reports whether it did.
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

// Acquire waits for n for a user, or until ctx ends. Errors: ctx.Err().
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
	} else { // granted meanwhile
		m.releaseLocked(user, n)
	}
	m.grantLocked() // later waiters may be next
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

// firstLocked returns the index of the first waiter whose share allows its request and that has no
// earlier waiter of its user, or -1.
func (m *Memory) firstLocked() int {
	var waits map[string]bool // users with an earlier waiter
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

// grantLocked grants memory to waiters in order of arrival. Users overtake a waiter that is over
// its own share. They do not overtake the first waiter within its share, even if too little is free
// for it; otherwise a large request might never be served.
func (m *Memory) grantLocked() {
	for i := m.firstLocked(); i >= 0 && m.waiters[i].n <= m.free; i = m.firstLocked() {
		w := m.waiters[i]
		m.takeLocked(w.user, w.n)
		close(w.ready)
		m.waiters = slices.Delete(m.waiters, i, i+1)
	}
}
