package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
)

const (
	// ping is the method that a client calls to hear of a silent server. Any answer will
	// do, also that there is no such method.
	ping = "ping"
	// alive is the notification by which a server lets a framed client hear of it while it
	// does not read its requests, and so cannot answer a ping.
	alive = "rpc.alive"

	// silenceSteps is how often a connection is looked at in SilenceMax.
	silenceSteps = 8
	// wayBytesMax and wayBytesPerSecond are for what has been handed to the kernel and may
	// be on its way yet, before a ping: kernels keep some 6 MiB for a connection.
	wayBytesMax       = 8 << 20
	wayBytesPerSecond = 1 << 20
)

// ErrSilent is why a Conn ended on which calls were in flight and no byte came for
// ConnConfig.SilenceMax, though the server was asked for a sign of life: it is frozen, or
// its machine or the network is gone.
var ErrSilent = errors.New("server is silent")

// silence is the time in which calls wait and nothing is received. It is counted in
// steps that were awake, so that a client that was itself stopped for a while does not
// blame its server.
type silence struct {
	received uint64 // bytes, when it began
	base     uint64 // bytes written then
	written  uint64 // bytes, by now
	steps    int    // of it so far
	still    int    // steps since more was written
	pinged   bool
	ping     uint64 // the ping's end in the outgoing stream
	answer   int    // steps since the ping was written
}

// watch ends the connection when its server is silent. It looks at counters that others
// keep anyway, a few times in SilenceMax, so calls cost no more for it.
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
			c.fail(fmt.Errorf("%w: it sent nothing for %v and does not answer a ping", ErrSilent, time.Duration(s.steps)*step))
			return
		}
	}
}

// silent counts one step, and tells whether it is one too many.
func (c *Conn) silent(s *silence, step time.Duration) bool {
	received, written := c.bytesIn.Load(), c.bytesOut.Load()
	if received != s.received || c.places.used.Load() == 0 {
		*s = silence{received: received, base: written, written: written}
		return false
	}
	s.steps++
	s.still++
	if written != s.written {
		s.written, s.still = written, 0
	}
	switch {
	case !s.pinged:
		if s.steps > silenceSteps/2 { // the first one was not whole
			s.pinged, s.ping = true, c.ping()
		}
		return false
	case written < s.ping:
		// It waits behind a large request. A slow network gets its time for that, as long
		// as it takes anything at all.
		return s.still > silenceSteps
	}
	s.answer++
	way := time.Duration(min(s.ping-s.base, wayBytesMax)) * time.Second / wayBytesPerSecond
	return s.answer >= silenceSteps/2+int(way/step)
}

// ping sends a request whose answer nobody waits for, since any byte will do, and returns
// where it ends in the outgoing stream. It has no place in flight and waits for no room.
func (c *Conn) ping() (end uint64) {
	enc := wire.GetEncoder()
	beginRequest(enc, c.freeID(), ping)
	enc.Array(0)
	sealFrame(enc.Bytes(), 0)
	n := enc.Len()
	c.room.force(int64(n), true)
	var p pending
	_ = c.push(enc, &p) // a connection that has failed ends the watch
	return p.pos + uint64(n)
}

// freeID returns an id that no call in flight has.
func (c *Conn) freeID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if id := c.id.Add(1); c.mu.calls[id] == nil {
			return id
		}
	}
}

// unread returns a channel that tells, every AlivePeriod from its first use, that the
// client may want to hear of us while its requests are not read. Only for the reader.
func (c *serverConn) unread() <-chan time.Time {
	if c.aliveTick == nil {
		c.aliveTick = time.NewTicker(c.srv.cfg.AlivePeriod)
	}
	return c.aliveTick.C
}

// stayAlive is for waits that are shorter than AlivePeriod, but may be many.
func (c *serverConn) stayAlive() {
	select {
	case <-c.unread():
		c.sayAlive()
	default:
	}
}

// sayAlive tells a framed client that we live. In plain mode a server sends answers only.
func (c *serverConn) sayAlive() {
	if !c.peer.Framed {
		return
	}
	enc := wire.GetEncoder()
	beginNotification(enc, alive)
	enc.Array(0)
	c.send(enc)
}
