package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
)

const (
	// ping is the method that a client calls to check a silent server. Any response will do, even
	// that the method is unknown.
	ping = "ping"
	// alive is the notification that a server sends to a framed client while it does not read
	// requests and so cannot answer a ping.
	alive = "rpc.alive"

	// silenceSteps is the number of checks of a connection in SilenceMax.
	silenceSteps = 8
	// transitBytesMax and transitBytesPerSecond bound the time for bytes that precede a ping and
	// are still in kernel buffers. Kernels buffer about 6 MiB per connection.
	transitBytesMax       = 8 << 20
	transitBytesPerSecond = 1 << 20
)

// ErrSilent means that a Conn with calls in flight received no byte for ConnConfig.SilenceMax, not
// even in response to a ping: the server is frozen, or its machine or the network has failed.
var ErrSilent = errors.New("server is silent")

// silence measures how long calls have waited while nothing was received. It counts steps instead
// of time, so that a client that was itself stopped does not find its server silent when it
// resumes.
type silence struct {
	received  uint64 // bytes received when the silence began
	base      uint64 // bytes written when the silence began
	written   uint64 // bytes written at the last step
	steps     int    // length of the silence, in steps
	blocked   int    // steps since more bytes were written
	pinged    bool
	ping      uint64 // end of the ping in the outgoing stream
	sincePing int    // steps since the ping was written
}

// watch ends the connection if its server is silent. It checks byte counters that are kept anyway,
// a few times in SilenceMax, so calls bear no cost for it.
func (c *Conn) watch() {
	step := max(c.cfg.SilenceMax/silenceSteps, time.Millisecond)
	tick := time.NewTicker(step)
	defer tick.Stop()
	var s silence
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		if c.silent(&s, step) {
			c.fail(fmt.Errorf("%w: nothing received for %v, no response to a ping", ErrSilent, time.Duration(s.steps)*step))
			return
		}
	}
}

// silent counts one step and reports whether the server has been silent for too long.
func (c *Conn) silent(s *silence, step time.Duration) bool {
	received, written := c.bytesIn.Load(), c.bytesOut.Load()
	if received != s.received || c.inFlight.used.Load() == 0 {
		*s = silence{received: received, base: written, written: written}
		return false
	}
	s.steps++
	s.blocked++
	if written != s.written {
		s.written, s.blocked = written, 0
	}
	switch {
	case !s.pinged:
		if s.steps > silenceSteps/2 { // the first step was not a whole one
			s.pinged, s.ping = true, c.ping()
		}
		return false
	case written < s.ping:
		// The ping is queued behind a large request. A slow network gets time for that as long as
		// it accepts bytes.
		return s.blocked > silenceSteps
	}
	s.sincePing++
	transit := time.Duration(min(s.ping-s.base, transitBytesMax)) * time.Second / transitBytesPerSecond
	return s.sincePing >= silenceSteps/2+int(transit/step)
}

// ping sends a ping and returns its end in the outgoing stream. No caller waits for the response,
// since any byte will do. The ping does not count as in flight and does not wait for the unsent
// limit.
func (c *Conn) ping() (end uint64) {
	enc := wire.GetEncoder()
	beginRequest(enc, c.freeID(), ping)
	enc.Array(0)
	sealFrame(enc.Bytes(), 0)
	n := enc.Len()
	c.unsent.force(int64(n), true)
	var p pending
	_ = c.push(enc, &p) // if the connection has failed, watch ends
	return p.pos + uint64(n)
}

// freeID returns an id that no call in flight uses.
func (c *Conn) freeID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if id := c.id.Add(1); c.mu.calls[id] == nil {
			return id
		}
	}
}

// aliveTicks returns a channel that ticks every AlivePeriod from its first use. The reader, which
// alone may use it, sends alive at each tick while it does not read requests.
func (c *serverConn) aliveTicks() <-chan time.Time {
	if c.aliveTick == nil {
		c.aliveTick = time.NewTicker(c.srv.cfg.AlivePeriod)
	}
	return c.aliveTick.C
}

// sendAliveIfDue sends alive if it is due. It is called before waits that are each shorter than
// AlivePeriod.
func (c *serverConn) sendAliveIfDue() {
	select {
	case <-c.aliveTicks():
		c.sendAlive()
	default:
	}
}

// sendAlive sends alive to a framed client. In plain mode a server sends responses only.
func (c *serverConn) sendAlive() {
	if !c.peer.Framed {
		return
	}
	enc := wire.GetEncoder()
	beginNotification(enc, alive)
	enc.Array(0)
	c.send(enc)
}
