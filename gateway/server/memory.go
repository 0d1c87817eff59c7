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
	// readBytes is the memory of a read of many rows: a message, and two batches of the client.
	readBytes = 3 << 19
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
		used  int64
		conns map[*conn]bool
		// sessions is the number of sessions, which are calls, too.
		sessions int
		freed    chan struct{} // closed at the next release; nil if nothing waits for it
	}
}

func newMemory(limit int64) *memory {
	m := &memory{limit: limit}
	m.mu.conns = map[*conn]bool{}
	return m
}

// take charges n bytes, and waits for them until ctx ends or for overloadWait. Errors:
// *api.OverloadedError, ctx's.
func (m *memory) take(ctx context.Context, n int64) error {
	timer := time.NewTimer(overloadWait)
	defer timer.Stop()
	for {
		freed, ok := m.tryTake(n)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return &api.OverloadedError{Reason: "memory of calls", RetryAfter: time.Second}
		}
	}
}

// tryTake charges n bytes if they are free. Otherwise freed is closed at the next release.
func (m *memory) tryTake(n int64) (freed <-chan struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.used+n <= m.limit {
		m.mu.used += n
		return nil, true
	}
	return m.awaitLocked(), false
}

func (m *memory) awaitLocked() <-chan struct{} {
	if m.mu.freed == nil {
		m.mu.freed = make(chan struct{})
	}
	return m.mu.freed
}

// release releases n bytes.
func (m *memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(n)
}

func (m *memory) releaseLocked(n int64) {
	if n == 0 {
		return
	}
	m.mu.used -= n
	if m.mu.freed != nil {
		close(m.mu.freed)
		m.mu.freed = nil
	}
}

// received charges n bytes that a connection has received. It returns a channel if the limit is
// exceeded.
func (m *memory) received(c *conn, n int64) (over <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.conns[c] { // closed
		return nil
	}
	c.charged += n
	m.mu.used += n
	return m.overLocked()
}

func (m *memory) overLocked() <-chan struct{} {
	if m.mu.used <= m.limit {
		return nil
	}
	return m.awaitLocked()
}

// reserve takes the memory of a read of many rows. Errors: those of take.
func (m *memory) reserve(ctx context.Context) (release func(), err error) {
	if err := m.take(ctx, readBytes); err != nil {
		return nil, err
	}
	return func() { m.release(readBytes) }, nil
}

// stall waits until the memory in use is below the limit, so that the peer stops sending. If that
// takes longer than overloadWait, it closes the connection with the most bytes and returns.
func (m *memory) stall(over <-chan struct{}) {
	timer := time.NewTimer(overloadWait)
	defer timer.Stop()
	for over != nil {
		select {
		case <-over:
			m.mu.Lock()
			over = m.overLocked()
			m.mu.Unlock()
		case <-timer.C:
			if c := m.largest(); c != nil {
				_ = c.Close()
			}
			return
		}
	}
}

// largest returns the connection with the most bytes, if the limit is still exceeded.
func (m *memory) largest() (most *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.used <= m.limit {
		return nil
	}
	for c := range m.mu.conns {
		if c.charged > 0 && (most == nil || c.charged > most.charged) {
			most = c
		}
	}
	return most
}

// add adds a connection. It returns false if there are too many: they may take a quarter of the
// limit.
func (m *memory) add(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if int64(len(m.mu.conns)+1)*connBytes > max(m.limit/4, connBytes) {
		return false
	}
	m.mu.conns[c] = true
	m.mu.used += connBytes
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
	m.releaseLocked(c.charged + connBytes)
	c.charged = 0
}

// crowded reports whether there is no memory for another call.
func (m *memory) crowded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.used+callBytes > m.limit
}

// began counts and charges a call of a connection.
func (m *memory) began(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.calls++
	if m.mu.conns[c] {
		c.charged += callBytes
		m.mu.used += callBytes
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
	m.releaseLocked(n)
}
