package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
)

const (
	// flushBytes of responses are written before more of a batch is read.
	flushBytes = 256 << 10
	// drainGrace is how long a framed connection is still read after goaway.
	drainGrace = time.Second
	// lingerTime and lingerBytes bound what is read and dropped after the last write. Closing a
	// socket with unread bytes resets it, and the client could lose the response with the reason.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 1 << 20
)

var (
	errUnknownProtocol = errors.New("unknown protocol")
	errNotReading      = errors.New("client does not read its responses")
	errReadsSlowly     = errors.New("client reads its responses too slowly while requests wait for memory")
	errSendsSlowly     = errors.New("client sends a large message too slowly while requests wait for memory")
)

// Peer is the client end of a server's connection.
type Peer struct {
	ID     uint64 // of the connection; ascending, and never reused by the same server
	Addr   net.Addr
	Framed bool // in framed mode, not plain MessagePack-RPC
	// Identity is the result of ServerConfig.Identify, or nil.
	Identity any

	ctx    context.Context
	cancel context.CancelFunc
}

// Done returns a channel that is closed when the connection ends.
func (p *Peer) Done() <-chan struct{} { return p.ctx.Done() }

// serverConn is one connection of a server.
type serverConn struct {
	srv  *Server
	nc   net.Conn
	peer Peer
	// preferred is the result of ServerConfig.Preferred, until demote.
	preferred atomic.Bool
	sampler   trace.Sampler // used by the reader
	// ahead is the number of unsent bytes that were forced as a preferred peer's.
	ahead atomic.Int64
	r     *reader // nil until the mode is known
	// progressAt is written by the reader and read by dropSlow.
	progressAt atomic.Int64
	// maxChecked is the time of the last MessageBytesOf call. Used by the reader only.
	maxChecked time.Time
	out        *writer
	// aliveTick is nil until the reader first has to wait.
	aliveTick *time.Ticker
	done      chan struct{} // closed when the flusher has ended

	inFlight atomic.Int64
	// waiting is set while the reader waits for inFlight to fall. A goroutine that lowers inFlight
	// then sends to signal.
	waiting atomic.Bool
	signal  chan struct{}

	framed  atomic.Bool               // peer.Framed, for other goroutines while the mode is not yet known
	drainBy atomic.Pointer[time.Time] // nil: not draining
	dead    atomic.Bool               // killed: nothing more is sent
}

func newServerConn(s *Server, nc net.Conn, id uint64) *serverConn {
	c := &serverConn{srv: s, nc: nc, done: make(chan struct{}), signal: make(chan struct{}, 1)}
	c.peer = Peer{ID: id, Addr: nc.RemoteAddr()}
	if s.cfg.Identify != nil {
		c.peer.Identity = s.cfg.Identify(nc)
	}
	c.preferred.Store(s.cfg.Preferred != nil && s.cfg.Preferred(&c.peer))
	if s.cfg.FirstByteTimeout > 0 { // before a drain can set another deadline
		_ = nc.SetReadDeadline(time.Now().Add(s.cfg.FirstByteTimeout))
	}
	c.peer.ctx, c.peer.cancel = context.WithCancel(s.ctx)
	c.out = newWriter(nc, s.cfg.WriteTimeout, &s.count.bytesOut, &s.count.writes)
	c.out.onWrote = func(n int) { c.releaseSent(int64(n)) }
	c.out.onFail = c.kill
	c.out.expectMore = func() bool { return c.inFlight.Load() > 0 }
	return c
}

// serve runs the connection from its first byte to its end.
func (c *serverConn) serve() {
	defer c.srv.forget(c)
	defer c.peer.cancel()
	var first [1]byte
	if _, err := io.ReadFull(c.nc, first[:]); err != nil {
		_ = c.nc.Close() // an idle connection that sent nothing
		return
	}
	if c.srv.cfg.FirstByteTimeout > 0 {
		_ = c.nc.SetReadDeadline(time.Time{}) // the reader checks for a drain
	}
	if l := c.srv.claims[first[0]]; l != nil {
		if c.srv.detach(c) && l.offer(c.nc) {
			c.srv.count.claimed.Add(1)
		} else {
			c.srv.count.refusedConns.Add(1)
			_ = c.nc.Close()
		}
		return
	}
	if err := c.choose(first[0]); err != nil {
		c.srv.count.refusedConns.Add(1)
		c.srv.warner.Warn(c.srv.log, "connection rejected", "peer", c.peer.Addr, "err", err)
		if err == errWantedTLS {
			c.refuseTLS()
		}
		_ = c.nc.Close()
		return
	}
	go func() {
		defer close(c.done)
		c.out.flusher()
	}()
	c.finish(c.loop())
}

// choose sets the connection's mode from its first byte and the preamble.
func (c *serverConn) choose(first byte) error {
	cfg := &c.srv.cfg
	switch {
	case first == 'S':
		b := [preambleBytes]byte{first}
		_ = c.nc.SetDeadline(time.Now().Add(cfg.MessageTimeout))
		if _, err := io.ReadFull(c.nc, b[1:]); err != nil {
			return fmt.Errorf("read preamble: %w", err)
		}
		if _, err := parsePreamble(b); err != nil {
			return err
		}
		b = preamble(version)
		if _, err := c.nc.Write(b[:]); err != nil {
			return fmt.Errorf("write preamble: %w", err)
		}
		_ = c.nc.SetDeadline(time.Time{})
		c.peer.Framed = true
		c.framed.Store(true)
		c.srv.count.framed.Add(1)
	case opensPlain(first):
		c.srv.count.plain.Add(1)
	case first == tlsHandshake:
		return errWantedTLS
	default:
		return fmt.Errorf("%w: first byte %#02x", errUnknownProtocol, first)
	}
	c.r = newReader(c.nc, c.peer.Framed, cfg.MessageBytesMax, cfg.MessageTimeout, &c.srv.count.bytesIn)
	if !c.peer.Framed {
		c.r.preload(first)
	}
	c.r.idle, c.r.busy = c.out.uncork, c.out.cork
	c.r.refreshMax, c.r.progressAt = c.refreshMax, &c.progressAt
	c.r.reserve = c.acquireMemory
	c.r.unreserve = func(n int) { c.srv.memory.release(int64(n)) }
	c.r.reserveBuffer = func(n int) bool {
		if n < 0 {
			c.srv.buffers.release(int64(-n))
			return true
		}
		return c.srv.buffers.tryAcquire(int64(n))
	}
	c.r.drainBy = func() time.Time {
		if t := c.drainBy.Load(); t != nil {
			return *t
		}
		return time.Time{}
	}
	return nil
}

// loop reads and dispatches requests until the connection's input ends.
func (c *serverConn) loop() error {
	for {
		if err := c.admit(); err != nil {
			return err
		}
		m, err := c.r.next()
		if err != nil {
			if !c.peer.Framed {
				c.malformed(c.r.buf[c.r.r:c.r.w], err)
			}
			return err
		}
		if err := c.handle(m); err != nil {
			return err
		}
	}
}

// maxPeriod is the minimum time between two MessageBytesOf calls while the limit is not lowered.
const maxPeriod = 100 * time.Millisecond

// refreshMax updates the size limit of the message that begins to arrive.
func (c *serverConn) refreshMax() {
	of, most := c.srv.cfg.MessageBytesOf, c.srv.cfg.MessageBytesMax
	if of == nil || c.r.max == most && c.r.now.Sub(c.maxChecked) < maxPeriod {
		return
	}
	c.r.max, c.maxChecked = min(most, of(&c.peer)), c.r.now
}

// admit enforces the connection's bounds before the next message is parsed.
func (c *serverConn) admit() error {
	cfg := &c.srv.cfg
	unsent := c.out.unsent.Load()
	if unsent < flushBytes && c.inFlight.Load() < int64(cfg.InFlightMax) {
		return nil
	}
	c.out.uncork()
	defer c.out.cork()
	if unsent >= cfg.UnsentBytesMax {
		if err := c.out.waitUnsent(cfg.UnsentBytesMax); err != nil {
			return err
		}
	}
	return c.waitInFlight(int64(cfg.InFlightMax)-1, nil)
}

// waitInFlight waits until at most max requests are in flight.
func (c *serverConn) waitInFlight(max int64, timeout <-chan time.Time) error {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	for c.inFlight.Load() > max {
		select {
		case <-c.signal:
		case <-c.aliveTicks():
			c.sendAlive()
		case <-timeout:
			return context.DeadlineExceeded
		case <-c.peer.ctx.Done():
			return ErrServerClosed
		}
	}
	return nil
}

// doneOne counts a request that has been answered.
func (c *serverConn) doneOne() {
	c.inFlight.Add(-1)
	if c.waiting.Load() {
		select {
		case c.signal <- struct{}{}:
		default:
		}
	}
}

// acquireMemory acquires n bytes from the server's memory gate and waits for up to AdmitWait.
// Responses are written meanwhile, and slow clients are disconnected.
func (c *serverConn) acquireMemory(n int) error {
	gate, preferred := c.srv.memory, c.preferred.Load()
	if preferred && gate.tryAcquirePreferred(int64(n)) || !preferred && gate.tryAcquire(int64(n)) {
		return nil
	}
	c.sendAliveIfDue()
	c.out.uncork()
	defer c.out.cork()
	defer c.srv.MemoryPressure()()
	if gate.acquire(int64(n), preferred, c.srv.cfg.AdmitWait, c.peer.ctx.Done()) {
		return nil
	}
	return errNoMemory
}

// handle starts the work for one message. An error ends the connection.
func (c *serverConn) handle(m message) error {
	if m.refused {
		c.srv.count.overloaded.Add(1)
		if id, ok := peekID(m.body); ok {
			c.answer(id, c.srv.overloaded("memory"))
		}
		return nil
	}
	q, err := c.parse(m)
	if err != nil {
		c.srv.memory.release(int64(m.charged))
		c.malformed(m.body, err)
		return err
	}
	meth := c.srv.methods[string(q.method)]
	if meth == nil {
		c.srv.memory.release(int64(m.charged))
		c.unknown(q)
		return nil
	}
	if !c.passesGuard(q, meth.name) {
		c.srv.memory.release(int64(m.charged))
		return nil
	}
	charge := int64(m.charged)
	if charge == 0 {
		charge = int64(len(q.params) + callBytes)
		if c.acquireMemory(int(charge)) != nil {
			c.srv.count.overloaded.Add(1)
			if !q.notify {
				c.answer(q.id, c.srv.overloaded("memory"))
			}
			return nil
		}
	}
	if q.notify {
		c.srv.count.notifications.Add(1)
	}
	call := newCall(c, meth, q, m.owned, charge)
	call.arrived = c.r.now
	if every := c.srv.cfg.TraceEvery; every > 0 {
		call.trace.Begin(call.arrived, c.sampler.Next(every))
	}
	if m.timeoutMS > 0 {
		call.deadline = c.r.now.Add(time.Duration(m.timeoutMS) * time.Millisecond)
	}
	c.inFlight.Add(1)
	moment.Pass("before a request is executed", meth.name)
	c.dispatch(call)
	return nil
}

// passesGuard reports whether the guard passes a request. It answers a request that the guard
// rejects.
func (c *serverConn) passesGuard(q request, method string) bool {
	if c.srv.cfg.Guard == nil {
		return true
	}
	err := c.srv.cfg.Guard(&c.peer, method)
	if err == nil {
		return true
	}
	c.srv.count.guarded.Add(1)
	if !q.notify {
		c.answer(q.id, AsError(err))
	}
	return false
}

// parse checks the whole message and decodes its envelope. In plain mode the reader has already
// checked the message to find its end.
func (c *serverConn) parse(m message) (request, error) {
	if c.peer.Framed {
		n, err := wire.Check(m.body, wire.Limits{Bytes: c.srv.cfg.MessageBytesMax})
		switch {
		case err == wire.ErrIncomplete:
			err = &wire.FormatError{Offset: len(m.body), Reason: "message truncated"}
		case err == nil && n != len(m.body):
			err = &wire.FormatError{Offset: n, Reason: "bytes after the message"}
		}
		if err != nil {
			return request{}, err
		}
	}
	return parseRequest(m.body)
}

// malformed answers bytes that are not a valid request. It does nothing if they contain no id or if
// err is not about them. In framed mode their checksum was right.
func (c *serverConn) malformed(b []byte, err error) {
	var bad *wire.FormatError
	if !errors.As(err, &bad) && err != errEnvelope {
		return
	}
	code := CodeBadRequest
	if bad != nil && bad.Limit {
		code = CodeTooLarge
	}
	if id, ok := peekID(b); ok {
		c.answer(id, Errorf(code, "%v", err))
	}
}

func (c *serverConn) unknown(q request) {
	if q.notify {
		c.srv.count.notifications.Add(1)
		return
	}
	c.srv.count.unknown.Add(1)
	c.answer(q.id, Errorf(CodeUnknownMethod, "no method %q", q.method))
}

// answer sends an error for a request that has no Call.
func (c *serverConn) answer(id uint32, e *Error) {
	c.send(encodeErrorResponse(c.peer.Framed, id, e))
}

// send queues a message and takes ownership of enc.
func (c *serverConn) send(enc *wire.Encoder) { c.sendThen(enc, nil) }

// sendThen is send, and calls sent, which may be nil, when the bytes have left memory.
func (c *serverConn) sendThen(enc *wire.Encoder, sent func()) {
	if c.peer.Framed {
		sealFrame(enc.Bytes(), 0)
	}
	n := int64(enc.Len())
	c.forceSent(n)
	if err := c.out.append(enc, nil, sent); err != nil {
		c.releaseSent(n)
		return
	}
	if unsent := c.out.unsent.Load(); unsent-n > 16*c.srv.cfg.UnsentBytesMax {
		c.kill(errNotReading)
	}
}

// forceSent acquires memory for n bytes of responses that already exist.
func (c *serverConn) forceSent(n int64) {
	preferred := c.preferred.Load()
	if preferred {
		c.ahead.Add(n)
	}
	c.srv.memory.force(n, preferred)
}

// releaseSent releases n bytes of responses. Those that were forced as a preferred peer's are released
// as such, although the connection may have been demoted meanwhile.
func (c *serverConn) releaseSent(n int64) {
	for {
		ahead := c.ahead.Load()
		first := min(ahead, n)
		if first == 0 || c.ahead.CompareAndSwap(ahead, ahead-first) {
			if first > 0 {
				c.srv.memory.releaseForced(first, true)
			}
			if n > first {
				c.srv.memory.releaseForced(n-first, false)
			}
			return
		}
	}
}

// demote makes the connection one that is not preferred, with its unsent responses. It reports false,
// and changes nothing, if that one would use a connection that is reserved for preferred peers.
func (c *serverConn) demote() bool {
	s := c.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.preferred.Load() {
		return true
	}
	if len(s.mu.conns) > s.cfg.ConnsMax-s.cfg.ReservedConns {
		return false
	}
	c.preferred.Store(false)
	s.memory.forced.Add(c.ahead.Swap(0))
	return true
}

// drain asks the client to close the connection: see Server.Shutdown.
func (c *serverConn) drain() {
	by := time.Now()
	framed := c.framed.Load()
	if framed {
		by = by.Add(drainGrace)
	}
	if !c.drainBy.CompareAndSwap(nil, &by) {
		return
	}
	if framed {
		enc := wire.GetEncoder()
		beginNotification(enc, goaway)
		enc.Array(0)
		c.send(enc)
	}
	_ = c.nc.SetReadDeadline(by)
}

// kill closes the connection at once; later responses are dropped.
func (c *serverConn) kill(err error) {
	if c.dead.Swap(true) {
		return
	}
	if isTimeout(err) {
		err = errNotReading
	}
	if err == errNotReading || err == errReadsSlowly || err == errSendsSlowly {
		c.srv.count.stalled.Add(1)
		c.srv.warner.Warn(c.srv.log, "connection closed", "peer", c.peer.Addr, "err", err)
	}
	c.out.fail(err)
	_ = c.nc.Close()
	c.peer.cancel() // last, so that the responses of cancelled handlers are dropped
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// finish ends the connection after its input has ended with err. Unless the connection is broken,
// requests in flight are answered first.
func (c *serverConn) finish(err error) {
	defer func() {
		if c.aliveTick != nil {
			c.aliveTick.Stop()
		}
		c.kill(err)
		c.out.stop()
		<-c.done
		c.srv.buffers.release(int64(len(c.r.buf) - readBytesMin))
	}()
	var bad *wire.FormatError
	var corrupt *CorruptFrameError
	var timeout <-chan time.Time
	count := &c.srv.count
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF: // the client may have closed only its sending side
		timeout = time.After(c.srv.cfg.InputEndGrace)
	case err == errDrained:
	case errors.As(err, &corrupt):
		count.corrupt.Add(1)
		c.warn(err)
		return
	case errors.As(err, &bad) || errors.Is(err, errEnvelope) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrFlags):
		count.malformed.Add(1)
		c.warn(err)
		timeout = time.After(c.srv.cfg.WriteTimeout)
	case err == errNoMemory:
		timeout = time.After(c.srv.cfg.WriteTimeout)
	case err == errStalled:
		count.stalled.Add(1)
		c.warn(err)
		return
	default:
		return
	}
	c.out.uncork()
	if c.waitInFlight(0, timeout) != nil || c.out.waitUnsent(1) != nil {
		return
	}
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		c.linger()
	}
}

func (c *serverConn) warn(err error) {
	c.srv.warner.Warn(c.srv.log, "connection closed", "peer", c.peer.Addr, "err", err)
}

// linger closes the sending side and drops what the peer still sends.
func (c *serverConn) linger() {
	hc, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || hc.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
}
