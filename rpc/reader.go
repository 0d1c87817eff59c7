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
	// A connection's read buffer starts small, because a node may have thousands of idle
	// connections. It doubles while reads fill it.
	readBytesMin = 8 << 10
	readBytesMax = 128 << 10
	// A message larger than readBytesMax gets a buffer of its own, which starts at this size and
	// doubles as bytes arrive.
	bodyBytesMin = 256 << 10
	// progressBytes of a message must arrive in each message timeout.
	progressBytes = 64 << 10
	// 1/progressShare of the memory charged for a large message must arrive in each PressureTimeout
	// during memory pressure, but at least progressBytes.
	progressShare = 32
)

var (
	// errStalled means that a message did not arrive completely in time.
	errStalled = errors.New("message stalled")
	// errDrained ends the reader of a connection that is being shut down.
	errDrained = errors.New("connection drained")
	// errNoMemory means that reserve rejected a message for lack of memory.
	errNoMemory = errors.New("no memory for the message")
)

// message is one message received on a connection.
type message struct {
	body  []byte // the MessagePack value; aliases the read buffer unless owned
	owned bool   // body belongs to the receiver
	// refused means that memory ran short during receipt; body holds only the message's start.
	refused   bool
	charged   int // bytes that reserve has charged, which the receiver must release
	timeoutMS uint32
}

// reader splits a connection's bytes into messages. It must be used by one goroutine.
type reader struct {
	conn    net.Conn
	framed  bool
	max     int           // bytes of a message
	timeout time.Duration // for a message that has begun; see progressBytes
	bytes   *atomic.Uint64

	// idle is called before each read that may block, and busy after it.
	idle, busy func()
	// refreshMax is called when a message begins to arrive, and may change max.
	refreshMax func()
	// reserve is called before n more bytes are allocated for a large message; an error from it
	// rejects the message. unreserve releases them if the message is discarded.
	reserve   func(n int) error
	unreserve func(n int)
	// reserveBuffer is called before the read buffer grows by n bytes, and with a negative n after
	// it has shrunk. If it returns false, the buffer does not grow: the connection reads less at a
	// time and treats messages over the buffer's size as large.
	reserveBuffer func(n int) bool
	// drainBy returns the time at which a connection that is being shut down stops reading; the
	// zero time means that it is not being shut down.
	drainBy func() time.Time

	// progressAt is the time, since clock, of the last progress of the large message being
	// received. It is 0 if there is none or while this side waits for memory.
	progressAt *atomic.Int64

	buf        []byte
	r, w       int       // unread bytes
	smallReads int       // consecutive reads that a small buffer would have held
	now        time.Time // when the last read returned
	since      time.Time // start or last progress of the message at r; zero: none has begun
	armed      time.Time // read deadline that is set; zero: none
	walk       wire.Walker
	fresh      bool // walk is at the message's start
	grace      bool // the message has used its extra time
	err        error
}

func newReader(conn net.Conn, framed bool, max int, timeout time.Duration, bytes *atomic.Uint64) *reader {
	return &reader{
		conn: conn, framed: framed, max: max, timeout: timeout, bytes: bytes, fresh: true,
		idle: func() {}, busy: func() {}, refreshMax: func() {}, reserve: func(int) error { return nil }, unreserve: func(int) {}, reserveBuffer: func(int) bool { return true },
		drainBy: func() time.Time { return time.Time{} }, progressAt: new(atomic.Int64),
		buf: make([]byte, readBytesMin), now: time.Now(),
	}
}

// next returns the next message. Unless owned, its body is valid until the next call. Errors:
// io.EOF between messages, io.ErrUnexpectedEOF within one, ErrTooLarge, ErrFlags,
// *CorruptFrameError, *wire.FormatError, errStalled, errDrained, and those of the connection. All
// are final.
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

// parse takes a message from the buffer. If it is not complete, parse returns the number of bytes,
// from the message's start, that it needs at least.
func (r *reader) parse() (m message, need int, err error) {
	b := r.buf[r.r:r.w]
	if !r.framed {
		return r.parsePlain(b)
	}
	if len(b) < headerBytes {
		return m, headerBytes, nil
	}
	h := parseHeader(b)
	r.refreshMax()
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

// finishFrame checks a complete frame.
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
		r.refreshMax()
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

// fill reads more bytes into the buffer.
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
		r.smallReads++
	default:
		r.smallReads = 0
	}
	return err
}

// fit makes the buffer hold a message of need bytes, and reports whether it can. It moves the
// unread bytes to the front if that helps, and grows or shrinks the buffer.
func (r *reader) fit(need int) bool {
	have := r.w - r.r
	switch {
	case need > len(r.buf):
		size := len(r.buf)
		for size < need {
			size *= 2
		}
		return r.resize(size)
	case r.smallReads > 64 && len(r.buf) > readBytesMin && max(have, need) <= readBytesMin/2:
		r.resize(readBytesMin)
		r.smallReads = 0
	case have == 0:
		r.r, r.w = 0, 0
	case r.r+need > len(r.buf) || len(r.buf)-r.w < len(r.buf)/2:
		copy(r.buf, r.buf[r.r:r.w])
		r.r, r.w = 0, have
	}
	return true
}

// resize changes the buffer's size to n bytes. It reports false if the buffer may not grow.
func (r *reader) resize(n int) bool {
	if !r.reserveBuffer(n - len(r.buf)) {
		return false
	}
	b := make([]byte, n)
	r.w = copy(b, r.buf[r.r:r.w])
	r.r, r.buf = 0, b
	return true
}

// read reads at least one byte. It applies the message timeout: idle connections wait forever,
// those in the middle of a message do not.
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
			r.armed = time.Time{} // the deadline was set for an earlier message
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

// stalled reports whether the message that has begun is overdue. The time may have passed while
// this side was busy and the bytes were in the kernel, so a message first gets a quarter of the
// timeout more.
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

// arm sets the read deadline if a message has begun and none is set. A deadline set for an earlier
// message stays: when it expires, read checks again. That takes one call per timeout instead of one
// per read.
func (r *reader) arm() error {
	if !r.since.IsZero() && r.armed.IsZero() {
		r.armed = r.since.Add(r.timeout)
		if err := r.conn.SetReadDeadline(r.armed); err != nil {
			return err
		}
	}
	// drain sets drainBy first and then a deadline, which this function may just have overwritten.
	if by := r.drainBy(); !by.IsZero() {
		return r.conn.SetReadDeadline(by)
	}
	return nil
}

// preload puts a byte that has already been read at the front.
func (r *reader) preload(b byte) {
	r.buf[0] = b
	r.w = 1
	r.since = r.now
}
