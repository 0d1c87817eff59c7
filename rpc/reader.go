package rpc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
)

const (
	// A connection's read buffer starts small, for a node may hold thousands of
	// idle connections, and doubles while reads fill it.
	readBytesMin = 8 << 10
	readBytesMax = 128 << 10
	// A message larger than the read buffer may become grows in a buffer of its own
	// from this size, doubling as bytes arrive.
	bodyBytesMin = 256 << 10
	// progressBytes of a message must come in each message timeout.
	progressBytes = 64 << 10
	// paceShare is which part of the memory that a large message has must come in each
	// CrowdedTimeout while others wait for memory, and progressBytes at least.
	paceShare = 32
)

var (
	// errStalled means that a message was begun and not finished in time.
	errStalled = errors.New("message stalled")
	// errDrained ends the reader of a connection that is being shut down.
	errDrained = errors.New("connection drained")
	// errNoRoom is what grow returns when memory for a message is refused.
	errNoRoom = errors.New("no memory for the message")
)

// message is one message off a connection.
type message struct {
	body  []byte // the MessagePack value; aliases the read buffer unless owned
	owned bool   // body is the receiver's to keep
	// refused: memory ran short while the message came in, body holds its start only.
	refused   bool
	charged   int // what grow was asked for, for the receiver to give back
	timeoutMS uint32
}

// reader cuts a connection's bytes into messages. One goroutine uses it.
type reader struct {
	conn    net.Conn
	framed  bool
	max     int           // bytes of a message
	timeout time.Duration // for a message that has begun; see progressBytes
	bytes   *atomic.Uint64

	// idle is called before each read that may block, and busy after it.
	idle, busy func()
	// bound is called when some of a message is there, and may change max.
	bound func()
	// grow is called before n more bytes are taken for a large message; an error
	// from it refuses the message. ungrow gives them back when none comes of it.
	grow   func(n int) error
	ungrow func(n int)
	// spare is asked before the read buffer grows by n bytes, and told, with n below
	// zero, when it has shrunk. A connection that may not grow its buffer works on:
	// it reads less at a time, and messages over its size as large ones.
	spare func(n int) bool
	// drainBy is when a connection that is being shut down stops reading; the zero
	// time means that it is not.
	drainBy func() time.Time

	// pace is when the large message that comes in has last made the progress that it has
	// to make while others wait for memory, since clock; 0 without one, or while we wait
	// ourselves.
	pace *atomic.Int64

	buf   []byte
	r, w  int       // unread bytes
	calm  int       // reads in a row that a small buffer would have held
	now   time.Time // when the last read returned
	since time.Time // when the message at r began, or last made progress; zero: none has
	armed time.Time // read deadline that is set; zero: none
	walk  wire.Walker
	fresh bool // walk is at the message's start
	grace bool // the message has had its extra time
	err   error
}

func newReader(conn net.Conn, framed bool, max int, timeout time.Duration, bytes *atomic.Uint64) *reader {
	return &reader{
		conn: conn, framed: framed, max: max, timeout: timeout, bytes: bytes, fresh: true,
		idle: func() {}, busy: func() {}, bound: func() {}, grow: func(int) error { return nil }, ungrow: func(int) {}, spare: func(int) bool { return true },
		drainBy: func() time.Time { return time.Time{} }, pace: new(atomic.Int64),
		buf: make([]byte, readBytesMin), now: time.Now(),
	}
}

// next returns the next message. Its body, unless owned, is valid until the call
// after. Errors: io.EOF between messages, io.ErrUnexpectedEOF within one,
// ErrTooLarge, ErrFlags, *CorruptFrameError, *wire.FormatError, errStalled,
// errDrained, and those of the connection. All are final.
func (r *reader) next() (message, error) {
	if r.err != nil {
		return message{}, r.err
	}
	for {
		m, need, err := r.parse()
		if err != nil || m.body != nil {
			return m, err
		}
		if need > readBytesMax || !r.fit(need) {
			return r.large(need)
		}
		if err := r.fill(); err != nil {
			return message{}, err
		}
	}
}

// parse cuts a message off the buffer. Without one it returns how many bytes, from
// the message's start, it is known to have at least.
func (r *reader) parse() (m message, need int, err error) {
	b := r.buf[r.r:r.w]
	if !r.framed {
		return r.parsePlain(b)
	}
	if len(b) < headerBytes {
		return m, headerBytes, nil
	}
	h := parseHeader(b)
	r.bound()
	switch {
	case int64(h.length) > int64(r.max):
		return m, 0, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, h.length, r.max)
	case h.length == 0:
		return m, 0, &wire.FormatError{Reason: "empty message"}
	}
	n := headerBytes + int(h.length)
	if len(b) < n {
		return m, n, nil
	}
	if m, err = finishFrame(h, b[:headerBytes], b[headerBytes:n]); err == nil {
		r.consume(n)
	}
	return m, 0, err
}

// finishFrame checks a whole frame.
func finishFrame(h frameHeader, head, body []byte) (message, error) {
	if got := crc.Sum(head[:12], body); got != h.crc {
		return message{}, &CorruptFrameError{Length: len(body), Got: got, Want: h.crc}
	}
	if h.flags&flagsRequired&^flagsKnown != 0 {
		return message{}, fmt.Errorf("%w: %08x", ErrFlags, h.flags)
	}
	return message{body: body, timeoutMS: h.timeoutMS}, nil
}

func (r *reader) parsePlain(b []byte) (m message, need int, err error) {
	if r.fresh {
		if len(b) == 0 {
			return m, 1, nil
		}
		r.bound()
		r.walk.Reset(wire.Limits{Bytes: r.max})
		r.fresh = false
	}
	n, err := r.walk.Walk(b)
	if err == wire.ErrIncomplete {
		return m, r.walk.Need(), nil
	}
	if err != nil {
		return m, 0, err
	}
	m.body = b[:n:n]
	r.consume(n)
	return m, 0, nil
}

// consume ends the message of n bytes at r.
func (r *reader) consume(n int) {
	r.r += n
	r.fresh, r.grace = true, false
	r.since = time.Time{}
	if r.r < r.w {
		r.since = r.now
	}
}

// fill reads more.
func (r *reader) fill() error {
	n, err := r.read(r.buf[r.w:])
	if n > 0 && r.w == r.r {
		r.since = r.now
	}
	full := n == len(r.buf)-r.w
	r.w += n
	switch {
	case full && len(r.buf) < readBytesMax:
		r.resize(2 * len(r.buf))
	case n <= readBytesMin/2:
		r.calm++
	default:
		r.calm = 0
	}
	return err
}

// fit makes room for a message of need bytes: it moves the unread bytes to the front
// when that helps, and grows or shrinks the buffer. It tells whether there is room.
func (r *reader) fit(need int) bool {
	have := r.w - r.r
	switch {
	case need > len(r.buf):
		size := len(r.buf)
		for size < need {
			size *= 2
		}
		return r.resize(size)
	case r.calm > 64 && len(r.buf) > readBytesMin && max(have, need) <= readBytesMin/2:
		r.resize(readBytesMin)
		r.calm = 0
	case have == 0:
		r.r, r.w = 0, 0
	case r.r+need > len(r.buf) || len(r.buf)-r.w < len(r.buf)/2:
		copy(r.buf, r.buf[r.r:r.w])
		r.r, r.w = 0, have
	}
	return true
}

// resize makes the buffer n bytes large, unless it would grow and may not.
func (r *reader) resize(n int) bool {
	if !r.spare(n - len(r.buf)) {
		return false
	}
	b := make([]byte, n)
	r.w = copy(b, r.buf[r.r:r.w])
	r.r, r.buf = 0, b
	return true
}

// read reads at least one byte. It holds the message timeout: idle connections
// wait for ever, those in the middle of a message do not.
func (r *reader) read(p []byte) (int, error) {
	r.idle()
	defer r.busy()
	for {
		if err := r.arm(); err != nil {
			return 0, err
		}
		n, err := r.conn.Read(p)
		if n > 0 {
			r.now = time.Now()
			r.bytes.Add(uint64(n))
			return n, nil
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if by := r.drainBy(); !by.IsZero() && !time.Now().Before(by) {
				return 0, errDrained
			}
			if r.stalled() {
				return 0, errStalled
			}
			r.armed = time.Time{} // it was armed for an earlier message
			if r.since.IsZero() {
				if err := r.conn.SetReadDeadline(time.Time{}); err != nil {
					return 0, err
				}
			}
		case err == io.EOF && !r.since.IsZero():
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		}
	}
}

// stalled tells whether the message that has begun is overdue. The time may have
// passed while we were busy and its bytes lie in the kernel, so a message first
// gets a quarter of the timeout more.
func (r *reader) stalled() bool {
	now := time.Now()
	if r.since.IsZero() || now.Sub(r.since) < r.timeout {
		return false
	}
	if r.grace {
		return true
	}
	r.grace = true
	r.since = now.Add(-r.timeout * 3 / 4)
	return false
}

// arm sets the read deadline when a message has begun and none is set. One that is
// set for an earlier message is left alone: when it fires, read looks again. That
// makes one call in each timeout instead of one in each read.
func (r *reader) arm() error {
	if !r.since.IsZero() && r.armed.IsZero() {
		r.armed = r.since.Add(r.timeout)
		if err := r.conn.SetReadDeadline(r.armed); err != nil {
			return err
		}
	}
	// Whoever starts a drain sets the flag first and then a deadline, which we may
	// just have overwritten.
	if by := r.drainBy(); !by.IsZero() {
		return r.conn.SetReadDeadline(by)
	}
	return nil
}

// preload puts a byte that has been read already at the front.
func (r *reader) preload(b byte) {
	r.buf[0] = b
	r.w = 1
	r.since = r.now
}
