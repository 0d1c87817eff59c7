package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// node holds the connections to one address.
type node struct {
	addr       string
	slots      []*slot
	next       atomic.Uint32
	lookupSlot *slot // for lookups while slots have large requests queued
}

// address returns the address; empty for nil.
func (n *node) address() string {
	if n == nil {
		return ""
	}
	return n.addr
}

func newNode(addr string, cfg *Config, life *lifetime) *node {
	n := &node{addr: addr, slots: make([]*slot, cfg.Conns), lookupSlot: newSlot(addr, cfg, life)}
	for i := range n.slots {
		n.slots[i] = newSlot(addr, cfg, life)
	}
	return n
}

// slot returns the slots round-robin.
func (n *node) slot() *slot {
	if len(n.slots) == 1 {
		return n.slots[0]
	}
	return n.slots[n.next.Add(1)%uint32(len(n.slots))]
}

// open returns a slot and its connection, and connects if there is none. If that connection has
// large requests queued, a lookup gets a separate one, unless the node rejects it: it would
// otherwise wait for all of them. Errors: those of get.
func (n *node) open(ctx context.Context, lookup bool) (*slot, *rpc.Conn, error) {
	s := n.slot()
	conn, err := s.get(ctx)
	if lookup && err == nil && conn.Behind() {
		if other, err := n.lookupSlot.get(ctx); err == nil {
			return n.lookupSlot, other, nil
		}
	}
	return s, conn, err
}

// notify sends a notification if a connection is open.
func (n *node) notify(ctx context.Context, method string, encode func(*wire.Encoder)) {
	if conn := n.slot().conn.Load(); conn != nil {
		_ = conn.Notify(ctx, method, encode)
	}
}

// connected reports whether a connection is open.
func (n *node) connected() (open bool) {
	n.each(func(s *slot) { open = open || s.conn.Load() != nil })
	return open
}

// each calls do for every slot.
func (n *node) each(do func(*slot)) {
	for _, s := range n.slots {
		do(s)
	}
	do(n.lookupSlot)
}

// newBackOff returns the pauses between attempts of one operation: 25 ms at first, so that a
// restarted node is found soon, doubling to 2 s. Each is ±50%, so that clients that failed together
// do not retry together.
func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 25*time.Millisecond, 2*time.Second
	b.Multiplier, b.RandomizationFactor = 2, 0.5
	return b
}

// slot holds one connection and reconnects on demand.
type slot struct {
	addr string
	cfg  *Config
	life *lifetime
	conn atomic.Pointer[rpc.Conn] // nil: not connected

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		dialing chan struct{} // closed when the current dial has ended; nil: none
		err     error         // error of the last dial
		next    time.Time     // no dial before this time while err is set
		pause   *backoff.ExponentialBackOff
	}
}

func newSlot(addr string, cfg *Config, life *lifetime) *slot {
	s := &slot{addr: addr, cfg: cfg, life: life}
	s.mu.pause = newBackOff()
	return s
}

// get returns the slot's connection and connects first if there is none. Concurrent callers share
// one dial; for a while after a failed dial they share its error. Errors: *UnreachableError,
// ErrClosed, ctx's.
func (s *slot) get(ctx context.Context) (*rpc.Conn, error) {
	if conn := s.conn.Load(); conn != nil {
		return conn, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wait, err := s.dial()
	if err != nil {
		return nil, err
	}
	select {
	case <-wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if conn := s.conn.Load(); conn != nil {
		return conn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return nil, s.mu.err
	}
	// Connected and lost again before this check.
	return nil, &UnreachableError{s.addr, rpc.ErrConnLost}
}

// dial starts a dial unless one is in progress. The returned channel is closed when it has ended.
func (s *slot) dial() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.dialing != nil {
		return s.mu.dialing, nil
	}
	done := make(chan struct{})
	if s.conn.Load() != nil {
		close(done)
		return done, nil
	}
	if s.mu.err != nil && time.Now().Before(s.mu.next) {
		return nil, s.mu.err
	}
	if !s.life.spawn(func() { s.connect(done) }) {
		return nil, ErrClosed
	}
	s.mu.dialing = done
	return done, nil
}

// connect dials once.
func (s *slot) connect(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(s.life.ctx, s.cfg.DialTimeout)
	defer cancel()
	conn, err := s.cfg.connect(ctx, s.addr)
	s.dialed(conn, err)
	if conn != nil && s.life.closed() { // Close may have run before conn was stored
		s.drop(conn, ErrClosed)
	}
}

// dialed records the outcome of a dial.
func (s *slot) dialed(conn *rpc.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dialing = nil
	if err != nil {
		if s.mu.err == nil {
			s.cfg.Logger.Warn("node unreachable", "addr", s.addr, "err", err)
		}
		s.mu.err = &UnreachableError{s.addr, rootCause(err)}
		s.mu.next = time.Now().Add(s.mu.pause.NextBackOff())
		return
	}
	if s.mu.err != nil {
		s.cfg.Logger.Info("node reachable again", "addr", s.addr)
	}
	s.mu.err = nil
	s.mu.pause.Reset()
	s.conn.Store(conn)
}

// rootCause returns the cause of a failed dial without its context; the UnreachableError contains
// the address.
func rootCause(err error) error {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &dns):
		return dns
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// drop removes a connection that has ended or accepts no more calls.
func (s *slot) drop(conn *rpc.Conn, why error) {
	if !s.conn.CompareAndSwap(conn, nil) {
		return
	}
	if !errors.Is(why, rpc.ErrDraining) {
		_ = conn.Close()
		return
	}
	// The node answers the calls in flight and then closes the connection.
	started := s.life.spawn(func() {
		select {
		case <-conn.Done():
		case <-s.life.ctx.Done():
		}
		_ = conn.Close()
	})
	if !started {
		_ = conn.Close()
	}
}
