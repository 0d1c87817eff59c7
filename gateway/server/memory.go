package server

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/bigtable"
)

// overloadWait is how long a call waits for memory before it is rejected, and how long all
// connections may be stalled before one is closed.
const overloadWait = 2 * time.Second

const (
	// callBytes is the memory of a call without its messages: goroutines, and the state of its stream.
	callBytes = 32 << 10
	// anonymousShare is the share of the limit, as a divisor, for the requests of callers that are not
	// authenticated, and anonymousCalls the number of such calls of a connection.
	anonymousShare, anonymousCalls = 8, 16
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
		// ownerConns is the number of connections of each owner, unless it is 0.
		ownerConns map[string]int
		// sessions is the number of sessions of each owner; they are calls, too.
		sessions map[string]int
		freed    chan struct{} // closed at the next release; nil if nothing waits for it
	}
}

func newMemory(limit int64) *memory {
	m := &memory{limit: limit}
	m.mu.conns, m.mu.owners, m.mu.ownerConns, m.mu.sessions = map[*conn]bool{}, map[string]int64{}, map[string]int{}, map[string]int{}
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
	return free >= 0 && (owner == "" || owner == Anonymous || m.mu.owners[owner]+n <= min(free, m.mostOf(owner)))
}

// mostOf returns what an owner may have at most: half of the memory, so that the largest request fits,
// and little before it is known.
func (m *memory) mostOf(owner string) int64 {
	switch owner {
	case "":
		return m.limit
	case Anonymous:
		return m.limit / anonymousShare
	}
	return m.limit / 2
}

// own makes a connection one of an owner's, with what is charged to it. It reports whether the owner may
// have it.
func (m *memory) own(c *conn, owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &c.account
	if a.owner == owner || !m.mu.conns[c] {
		return true
	}
	if !m.mayConnectLocked(owner, len(m.mu.conns)) {
		return false
	}
	m.chargeLocked(a.owner, -a.charged)
	m.countLocked(a.owner, -1)
	a.owner = owner
	m.chargeLocked(owner, a.charged)
	m.countLocked(owner, 1)
	return true
}

// mayConnectLocked reports whether an owner may have another connection, of so many of all owners with
// it: as many as are free then.
func (m *memory) mayConnectLocked(owner string, all int) bool {
	free := connsMax(m.limit) - all
	return free >= 0 && (owner == "" || m.mu.ownerConns[owner] <= free)
}

// countLocked counts a connection of an owner, or one less.
func (m *memory) countLocked(owner string, n int) {
	if m.mu.ownerConns[owner] += n; m.mu.ownerConns[owner] == 0 {
		delete(m.mu.ownerConns, owner)
	}
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
	if !m.fitsLocked(c.account.owner, n) {
		return "", m.awaitLocked()
	}
	m.chargeLocked(c.account.owner, n)
	return c.account.owner, nil
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

// in charges the payload of a frame that a connection has received to its stream, and ends a stream
// that the client resets. It returns a channel if the connection must wait.
func (m *memory) in(c *conn, f frame) (over <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &c.account
	if f.kind == frameHeaders && f.stream > a.last {
		a.last, c.newest = f.stream, &stream{ended: !m.mu.conns[c]}
		if !c.newest.ended {
			a.streams[f.stream] = c.newest
		}
	}
	s := a.streams[f.stream]
	switch {
	case s == nil: // grpc-go discards what is for no stream
		return nil
	case f.kind == frameReset:
		m.endStreamLocked(c, f.stream)
		return nil
	case f.kind == frameHeaders || f.bytes == 0:
		return nil
	}
	s.bytes += int64(f.bytes)
	n := m.chargeOf(s) - s.charged
	s.charged += n
	a.charged += n
	m.chargeLocked(a.owner, n)
	return m.overLocked(c)
}

// out ends the stream that a sent frame ends.
func (m *memory) out(c *conn, f frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endStreamLocked(c, f.stream)
}

// endStreamLocked ends a stream, if there is one with that number. What it has is released now, or when its handler ends.
func (m *memory) endStreamLocked(c *conn, id uint32) {
	s := c.account.streams[id]
	if s == nil {
		return
	}
	delete(c.account.streams, id)
	if s.ended = true; !s.running {
		m.settleLocked(c, s, s.charged)
	}
}

// settleLocked releases n bytes of what a stream has.
func (m *memory) settleLocked(c *conn, s *stream, n int64) {
	s.charged -= n
	c.account.charged -= n
	m.releaseLocked(c.account.owner, n)
}

// consumed releases what was charged for n bytes of a stream's frames: its handler needs them no longer.
func (m *memory) consumed(c *conn, s *stream, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.bytes -= n
	m.settleLocked(c, s, s.charged-m.chargeOf(s))
}

// chargeOf returns the charge for the bytes of a stream: as they were received, in one piece, and decoded. A request that is too long will not be
// put in one piece.
func (m *memory) chargeOf(s *stream) int64 {
	if s.grouped {
		return bigtable.GroupedCharge(s.bytes, m.groupBytes())
	}
	return min(copies*s.bytes, max(s.bytes, copies*m.mostReceived()))
}

// spareBytes is what a user has besides its longest request: for a few calls.
const spareBytes = 4 * callBytes

// groupBytes returns how much memory the entries of a MutateRows take that are decoded at a time.
func (m *memory) groupBytes() int64 { return min(4<<20, m.limit/8) }

// mostReceived returns the number of bytes that a request may have: it is charged several times. mostGrouped returns that for a MutateRows.
func (m *memory) mostReceived() int64 {
	return min(requestBytesMax, (m.mostDecoded()-spareBytes)/copies)
}

func (m *memory) mostGrouped() int64 {
	return min(requestBytesMax, m.mostDecoded()-spareBytes-m.groupBytes())
}

// overLocked returns a channel if the limit is exceeded, or that of a connection's owner.
func (m *memory) overLocked(c *conn) <-chan struct{} {
	owner := c.account.owner
	if m.mu.used <= m.limit && (owner == "" || m.mu.owners[owner] <= m.mostOf(owner)) {
		return nil
	}
	return m.awaitLocked()
}

// reserve takes memory of a read. Errors: those of take.
func (m *memory) reserve(ctx context.Context, bytes int64) (release func(), err error) {
	return m.take(ctx, connOf(ctx), bytes)
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
		if other.account.charged > 0 && (all || other.account.owner == c.account.owner) && (most == nil || other.account.charged > most.account.charged) {
			most = other
		}
	}
	return most
}

// add adds a connection of an owner. It returns false if there are too many.
func (m *memory) add(c *conn, owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayConnectLocked(owner, len(m.mu.conns)+1) {
		return false
	}
	c.account = account{owner: owner, streams: map[uint32]*stream{}}
	m.mu.conns[c] = true
	m.chargeLocked("", connBytes) // their number is bounded by owner, too
	m.countLocked(owner, 1)
	return true
}

// remove removes a connection. Its bytes are released, except those of calls whose handlers have not ended.
func (m *memory) remove(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.conns[c] {
		return
	}
	delete(m.mu.conns, c)
	for id := range c.account.streams {
		m.endStreamLocked(c, id)
	}
	m.releaseLocked("", connBytes)
	m.countLocked(c.account.owner, -1)
}

// begin charges a call of a connection, whose handler begins. It returns false if there is no memory for it, or if its stream has ended.
func (m *memory) begin(c *conn, s *stream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &c.account
	if s.ended || !m.fitsLocked(a.owner, callBytes) || a.owner == Anonymous && a.calls >= anonymousCalls {
		return false
	}
	s.running = true
	a.calls++
	a.charged += callBytes
	m.chargeLocked(a.owner, callBytes)
	return true
}

// end ends a call of a connection, whose handler has ended.
func (m *memory) end(c *conn, s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.account.calls--
	n := int64(callBytes)
	if s.running = false; s.ended {
		n += s.charged
		s.charged = 0
	}
	c.account.charged -= n
	m.releaseLocked(c.account.owner, n)
}

// mostDecoded returns how much memory a request may take with what was charged when it was received: what a user has at most. More would never be free.
func (m *memory) mostDecoded() int64 { return m.limit / 2 }

// admitSession counts a session, whose call is charged. Sessions may take a quarter of the limit, so
// that idle ones leave memory for other calls, and an owner as many as it leaves to others.
func (m *memory) admitSession(ctx context.Context) (release func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 1
	for _, n := range m.mu.sessions {
		all += n
	}
	owner := connOf(ctx).account.owner
	free := max(1, int(m.limit/4/callBytes)) - all
	if free < 0 || owner != "" && m.mu.sessions[owner] > free {
		return nil, false
	}
	m.mu.sessions[owner]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.mu.sessions[owner]--; m.mu.sessions[owner] == 0 {
			delete(m.mu.sessions, owner)
		}
	}), true
}
