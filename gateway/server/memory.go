package server

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
)

// overloadWait is how long a call waits for memory before it is rejected, and how long all
// connections may be stalled before one is closed.
const overloadWait = 2 * time.Second

const (
	// callBytes is the memory of a call without its messages: goroutines, and the state of its stream.
	callBytes = 32 << 10
	// connBytes is the memory of a connection without calls, for its buffers.
	connBytes = 128 << 10
)

// memory bounds the memory of calls: requests that are being received, received requests until their
// calls end, and the answers of streams.
type memory struct {
	limit int64

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		used   int64
		owners map[string]int64 // the part of used that each owner has, unless it is 0
		conns  map[*conn]bool
		// sessions is the number of sessions, which are calls, too.
		sessions int
		freed    chan struct{} // closed at the next release; nil if nothing waits for it
	}
}

func newMemory(limit int64) *memory {
	m := &memory{limit: limit}
	m.mu.conns, m.mu.owners = map[*conn]bool{}, map[string]int64{}
	return m
}

// chargeLocked charges n bytes to an owner, or releases -n.
func (m *memory) chargeLocked(owner string, n int64) {
	m.mu.used += n
	if owner == "" {
		return
	}
	if m.mu.owners[owner] += n; m.mu.owners[owner] == 0 {
		delete(m.mu.owners, owner)
	}
}

// fitsLocked reports whether an owner may have n bytes more. It may have as many as are free then, so
// that some are left for others: a single owner gets half of the memory, two owners a third each. The
// owner "" may have all.
func (m *memory) fitsLocked(owner string, n int64) bool {
	free := m.limit - m.mu.used - n
	return free >= 0 && (owner == "" || m.mu.owners[owner]+n <= free)
}

// own makes a connection one of an owner's, with the bytes that are charged to it. It reports whether
// the owner may have it: it may have half of all connections.
func (m *memory) own(c *conn, owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.owner == owner || !m.mu.conns[c] {
		return true
	}
	have := 1
	for other := range m.mu.conns {
		if other.owner == owner {
			have++
		}
	}
	if have > 1 && have > connsMax(m.limit)/2 {
		return false
	}
	bytes := c.charged + connBytes
	m.chargeLocked(c.owner, -bytes)
	c.owner = owner
	m.chargeLocked(owner, bytes)
	return true
}

// connsMax returns the number of connections for a limit: they may take a quarter of it.
func connsMax(limit int64) int { return max(1, int(limit/4/connBytes)) }

// take charges n bytes to the owner of a connection, and waits for them until ctx ends or for
// overloadWait. The result releases them. Errors: *api.OverloadedError, ctx's.
func (m *memory) take(ctx context.Context, c *conn, n int64) (release func(), err error) {
	timer := time.NewTimer(overloadWait)
	defer timer.Stop()
	for {
		owner, freed := m.tryTake(c, n)
		if freed == nil {
			return func() { m.release(owner, n) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, &api.OverloadedError{Reason: "memory of calls", RetryAfter: time.Second}
		}
	}
}

// tryTake charges n bytes to the owner of a connection if it may have them. Otherwise freed is closed
// at the next release.
func (m *memory) tryTake(c *conn, n int64) (owner string, freed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.fitsLocked(c.owner, n) {
		return "", m.awaitLocked()
	}
	m.chargeLocked(c.owner, n)
	return c.owner, nil
}

func (m *memory) awaitLocked() <-chan struct{} {
	if m.mu.freed == nil {
		m.mu.freed = make(chan struct{})
	}
	return m.mu.freed
}

// release releases n bytes of an owner.
func (m *memory) release(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(owner, n)
}

func (m *memory) releaseLocked(owner string, n int64) {
	if n == 0 {
		return
	}
	m.chargeLocked(owner, -n)
	if m.mu.freed != nil {
		close(m.mu.freed)
		m.mu.freed = nil
	}
}

// received charges n bytes that a connection has received. It returns a channel if the connection must
// wait.
func (m *memory) received(c *conn, n int64) (over <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.conns[c] { // closed
		return nil
	}
	c.charged += n
	m.chargeLocked(c.owner, n)
	return m.overLocked(c)
}

// overLocked returns a channel if the limit is exceeded, or half of it by the owner of a connection:
// the largest request still fits.
func (m *memory) overLocked(c *conn) <-chan struct{} {
	if m.mu.used <= m.limit && (c.owner == "" || m.mu.owners[c.owner] <= m.limit/2) {
		return nil
	}
	return m.awaitLocked()
}

// reserve takes memory of a read. Errors: those of take.
func (m *memory) reserve(ctx context.Context, bytes int64) (release func(), err error) {
	return m.take(ctx, ctx.Value(connKey{}).(*conn), bytes)
}

// stall waits until a connection may be read on, so that the peer stops sending. If that takes longer
// than overloadWait, it closes the connection with the most bytes, of the same owner if that one has
// too many, and returns.
func (m *memory) stall(c *conn, over <-chan struct{}) {
	timer := time.NewTimer(overloadWait)
	defer timer.Stop()
	for over != nil {
		select {
		case <-over:
			m.mu.Lock()
			over = m.overLocked(c)
			m.mu.Unlock()
		case <-timer.C:
			if most := m.largest(c); most != nil {
				_ = most.Close()
			}
			return
		}
	}
}

// largest returns the connection with the most bytes that must be closed so that c can be read on; nil
// if it can.
func (m *memory) largest(c *conn) (most *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.overLocked(c) == nil {
		return nil
	}
	all := m.mu.used > m.limit
	for other := range m.mu.conns {
		if other.charged > 0 && (all || other.owner == c.owner) && (most == nil || other.charged > most.charged) {
			most = other
		}
	}
	return most
}

// add adds a connection. It returns false if there are too many.
func (m *memory) add(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.conns) >= connsMax(m.limit) {
		return false
	}
	m.mu.conns[c] = true
	m.chargeLocked(c.owner, connBytes)
	return true
}

// remove removes a connection, whose bytes are released.
func (m *memory) remove(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.conns[c] {
		return
	}
	delete(m.mu.conns, c)
	m.releaseLocked(c.owner, c.charged+connBytes)
	c.charged = 0
}

// crowded reports whether there is no memory for another call of a connection.
func (m *memory) crowded(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.fitsLocked(c.owner, callBytes)
}

// began counts and charges a call of a connection.
func (m *memory) began(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.calls++
	if m.mu.conns[c] {
		c.charged += callBytes
		m.chargeLocked(c.owner, callBytes)
	}
}

// ended ends a call whose request had n bytes, as they were charged. A connection without calls holds no bytes: what calls
// left that ended within a request is released then.
func (m *memory) ended(c *conn, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.calls--
	if n = min(n+callBytes, c.charged); c.calls == 0 {
		n = c.charged
	}
	c.charged -= n
	m.releaseLocked(c.owner, n)
}
