package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// ErrConnLost matches every *ConnLostError in errors.Is.
var ErrConnLost = errors.New("connection lost")

// ErrDraining means that a Conn accepts no more calls because its server is shutting down.
var ErrDraining = errors.New("server is shutting down")

// ErrWantsTLS means that the server requires TLS and the connection is plain.
var ErrWantsTLS = errors.New("server requires TLS")

// tlsAlert is the first byte of a TLS server's response to bytes that are not TLS.
const tlsAlert = 0x15

// errClosed is the cause of calls that Close ends.
var errClosed = errors.New("closed by the client")

// ConnLostError means that a connection ended before a call's response arrived.
type ConnLostError struct {
	// Sent reports whether the request may have reached the server and been executed. If it is
	// false, the request was not executed and a retry is safe.
	Sent bool
	// Err is why the connection ended, for example ErrDraining, ErrSilent, a *CorruptFrameError or
	// a network error.
	Err error
}

func (e *ConnLostError) Error() string {
	if e.Sent {
		return fmt.Sprintf("connection lost, request may have been executed: %v", e.Err)
	}
	return fmt.Sprintf("connection lost, request not sent: %v", e.Err)
}

// Unwrap returns the cause.
func (e *ConnLostError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrConnLost) true.
func (e *ConnLostError) Is(target error) bool { return target == ErrConnLost }

// ConnConfig bounds a client connection. The zero value of a field means the default given in its
// comment.
type ConnConfig struct {
	// MessageBytesMax is the largest request or response, in bytes: 320 MiB.
	MessageBytesMax int
	// InFlightMax is the number of calls that may wait for responses: 4096. Further calls wait
	// until one ends.
	InFlightMax int
	// UnsentBytesMax is the number of request bytes that may wait to be written: 64 MiB. A call
	// that would exceed it waits, unless no other bytes are waiting.
	UnsentBytesMax int64
	// MessageTimeout closes a connection whose server stops in the middle of a response: 30 s.
	// WriteTimeout closes one whose server does not read requests: 30 s for each write of up to 1
	// MiB.
	MessageTimeout, WriteTimeout time.Duration
	// SilenceMax closes a connection with calls in flight whose server has sent nothing for this
	// long: 10 s. At half of it the client sends a ping, so calls may take as long as they need.
	// Each MiB that may still be in transit before the ping adds 1 s.
	SilenceMax time.Duration
	// Dialer opens the connection: TCP by default.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

func (c ConnConfig) withDefaults() ConnConfig {
	orDefault(&c.MessageBytesMax, 320<<20)
	orDefault(&c.InFlightMax, 4096)
	orDefault(&c.UnsentBytesMax, 64<<20)
	orDefault(&c.MessageTimeout, 30*time.Second)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.SilenceMax, 10*time.Second)
	if c.Dialer == nil {
		c.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return c
}

// Validate checks the configuration, whose defaults must have been filled in.
func (c ConnConfig) Validate() error {
	switch {
	case c.MessageBytesMax < 64<<10 || c.MessageBytesMax > 1<<30:
		return fmt.Errorf("message bytes max is %d, want 64 KiB to 1 GiB", c.MessageBytesMax)
	case c.InFlightMax < 1 || c.UnsentBytesMax < 1:
		return errors.New("a limit is below 1")
	case c.MessageTimeout < 0 || c.WriteTimeout < 0 || c.SilenceMax < 0:
		return errors.New("a duration is negative")
	}
	return nil
}

// Conn is a client's connection in framed mode. Any number of goroutines may call it concurrently:
// their requests share writes, and responses arrive in any order. A Conn does not reconnect; after
// it is lost, its owner dials a new one.
type Conn struct {
	cfg  ConnConfig
	nc   net.Conn
	r    *reader
	out  *writer
	stop chan struct{}  // closed when the connection has ended
	wg   sync.WaitGroup // reader, flusher and watch
	// inFlight counts calls; unsent counts the bytes that wait to be written.
	inFlight, unsent  *gate
	id                atomic.Uint32
	bytesIn, bytesOut atomic.Uint64
	writes            atomic.Uint64
	// pendings is not part of the Conn: package sync refers to a pool until the second collection after its last use, and would keep the Conn and
	// its buffers so long.
	pendings *sync.Pool

	// mu guards the fields in it. Never held across I/O. Order: mu, then out.mu.
	mu struct {
		sync.Mutex
		calls    map[uint32]*pending
		err      error // why the connection has ended
		draining bool
	}
}

// Dial connects to a server and negotiates the framed mode. It returns the dialer's error,
// ErrPreamble if the peer does not support the mode, ErrWantsTLS, or ctx's error.
func Dial(ctx context.Context, addr string, cfg ConnConfig) (*Conn, error) {
	cfg = cfg.withDefaults()
	nc, err := cfg.Dialer(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	c, err := NewConn(ctx, nc, cfg)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return c, nil
}

// NewConn is Dial over an open connection, which the Conn then owns.
func NewConn(ctx context.Context, nc net.Conn, cfg ConnConfig) (*Conn, error) {
	cfg = cfg.withDefaults()
	err := cfg.Validate()
	if err == nil {
		err = handshake(ctx, nc)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	c := &Conn{cfg: cfg, nc: nc, stop: make(chan struct{}), pendings: &sync.Pool{New: newPending}, inFlight: newGate(int64(cfg.InFlightMax), 0), unsent: newGate(cfg.UnsentBytesMax, 0)}
	c.mu.calls = make(map[uint32]*pending)
	c.r = newReader(nc, true, cfg.MessageBytesMax, cfg.MessageTimeout, &c.bytesIn)
	c.out = newWriter(nc, cfg.WriteTimeout, &c.bytesOut, &c.writes)
	c.out.onWrote = func(n int) { c.unsent.release(int64(n)) }
	c.out.onFail = c.fail
	c.out.expectMore = func() bool { return c.inFlight.used.Load() > 1 }
	c.wg.Go(c.out.flusher)
	c.wg.Go(c.read)
	c.wg.Go(c.watch)
	return c, nil
}

// handshake exchanges preambles.
func handshake(ctx context.Context, nc net.Conn) error {
	undo := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer undo()
	b := preamble(version)
	if _, err := nc.Write(b[:]); err != nil {
		return handshakeError(ctx, err)
	}
	if n, err := io.ReadFull(nc, b[:]); n > 0 && b[0] == tlsAlert {
		return ErrWantsTLS
	} else if err != nil {
		return handshakeError(ctx, err)
	}
	if _, err := parsePreamble(b); err != nil {
		return err
	}
	if !undo() {
		return handshakeError(ctx, ctx.Err())
	}
	return nil
}

func handshakeError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: peer closed", ErrPreamble)
	}
	return fmt.Errorf("exchange preambles: %w", err)
}

// read delivers responses until the connection ends.
func (c *Conn) read() {
	for {
		m, err := c.r.next()
		if err == nil {
			err = c.deliver(m)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// deliver passes one message to the call that waits for it. It drops responses of cancelled calls.
func (c *Conn) deliver(m message) error {
	d := wire.NewDecoder(m.body)
	n, typ := d.Array(), d.Uint()
	if n == 3 && typ == typeNotification {
		if string(d.Bytes()) == goaway && c.drain() {
			return ErrDraining
		}
		return d.Err()
	}
	id := d.Uint()
	if d.Err() != nil || n != 4 || typ != typeResponse || id > math.MaxUint32 {
		return errEnvelope
	}
	p, last := c.removeCall(uint32(id))
	if p != nil {
		if d.IsNil() {
			p.answer(d.Rest(), m.owned)
		} else {
			p.err = DecodeError(&d)
			if d.Err() != nil {
				p.err = d.Err()
			}
		}
		c.complete(p)
	}
	if last {
		return ErrDraining
	}
	return nil
}

// removeCall removes the call from those in flight; p is nil if the id is not in flight. last
// reports whether the server is draining and no call is left.
func (c *Conn) removeCall(id uint32) (p *pending, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = c.mu.calls[id]
	delete(c.mu.calls, id)
	return p, c.mu.draining && len(c.mu.calls) == 0
}

// complete wakes the caller of a pending call that has its result.
func (c *Conn) complete(p *pending) {
	c.inFlight.release(1)
	if p.done == nil {
		p.ready <- struct{}{}
		return
	}
	p.d = wire.NewDecoder(p.body)
	p.done(&p.d, p.err)
	c.release(p)
}

// drain stops new calls; the connection ends when the last call in flight has. It reports whether
// there is none.
func (c *Conn) drain() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.draining = true
	return len(c.mu.calls) == 0
}

// fail ends the connection and all calls in flight.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	c.mu.err = err
	c.mu.Unlock()
	// The writer fails first: after that, no stream position is assigned or passed to a write call.
	c.out.fail(err)
	_ = c.nc.Close()
	close(c.stop)
	c.out.stop()
	c.mu.Lock()
	lost := c.mu.calls
	c.mu.calls = nil
	c.mu.Unlock()
	for _, p := range lost {
		p.err = &ConnLostError{Sent: p.queued && c.out.sent(p.pos), Err: err}
		c.complete(p)
	}
}

// Close ends the connection; calls in flight get a *ConnLostError. It must not be called from a
// callback of Go.
func (c *Conn) Close() error {
	c.fail(errClosed)
	c.wg.Wait()
	return nil
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.stop }

// Err returns why the connection accepts no more calls, or nil while it does: ErrDraining,
// ErrSilent, a *CorruptFrameError, a network error, or the error that Close sets.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errLocked()
}

func (c *Conn) errLocked() error {
	if c.mu.err == nil && c.mu.draining {
		return ErrDraining
	}
	return c.mu.err
}

// InFlight returns the number of calls that wait for their responses.
func (c *Conn) InFlight() int { return int(c.inFlight.used.Load()) }

// behindBytes is written well within a millisecond on most networks.
const behindBytes = 1 << 20

// Behind reports whether a call would now wait before its request is sent: because a limit is
// reached or because 1 MiB or more waits to be written.
func (c *Conn) Behind() bool {
	return c.unsent.used.Load() >= behindBytes || c.unsent.waiting.Load() > 0 || c.inFlight.waiting.Load() > 0
}

// RemoteAddr returns the server's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }
