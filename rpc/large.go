package rpc

import (
	"time"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
)

// large reads a message of at least need bytes that does not fit the read buffer. Its buffer
// doubles as bytes arrive, so a false length costs no memory.
func (r *reader) large(need int) (message, error) {
	body, charged := []byte(nil), 0
	mark, progressed := r.w-r.r, r.w-r.r
	defer r.progressAt.Store(0)
	for {
		if len(body) == cap(body) {
			size := largeSize(cap(body), need, r.framed, r.max)
			r.progressAt.Store(0)
			if err := r.reserve(size - charged); err != nil {
				r.unreserve(charged)
				if body == nil {
					body = r.buf[r.r:r.w]
				}
				return r.refuse(body, need)
			}
			charged = size
			bigger := make([]byte, len(body), size)
			copy(bigger, body)
			if body == nil {
				bigger = append(bigger, r.buf[r.r:r.w]...)
				r.r, r.w = 0, 0
			}
			body = bigger
			r.progressAt.Store(int64(time.Since(clock)))
		}
		// In plain mode need is a lower bound: the bytes read beyond the message must fit the read
		// buffer, which they are copied back to.
		end := len(body) + max(need-len(body), len(r.buf))
		n, err := r.read(body[len(body):min(end, cap(body))])
		if err != nil {
			r.unreserve(charged)
			return message{}, err
		}
		body = body[:len(body)+n]
		if len(body)-mark >= progressBytes {
			mark, r.since, r.grace = len(body), r.now, false
		}
		if len(body)-progressed >= max(charged/progressShare, progressBytes) {
			progressed = len(body)
			r.progressAt.Store(int64(r.now.Sub(clock)))
		}
		m, more, err := r.finishLarge(body)
		if err != nil {
			r.unreserve(charged)
			return m, err
		}
		if m.body != nil {
			m.charged = charged
			return m, nil
		}
		need = more
	}
}

// largeSize returns the size of the next buffer after one of size now is full. A framed message
// that is at most an eighth larger gets its full size, so that its last bytes do not cost another
// buffer.
func largeSize(now, need int, framed bool, limit int) int {
	switch {
	case framed:
		if size := max(2*now, bodyBytesMin); size < need-need/8 {
			return size
		}
		return need
	case now == 0:
		return min(2*need, bodyBytesMin)
	}
	return min(2*now, max(limit, now)+readBytesMin)
}

// finishLarge returns the message if body holds all of it, and otherwise its minimum length in
// bytes.
func (r *reader) finishLarge(body []byte) (m message, need int, err error) {
	if r.framed {
		h := parseHeader(body)
		n := headerBytes + int(h.length)
		if len(body) < n {
			return m, n, nil
		}
		if m, err = finishFrame(h, body[:headerBytes], body[headerBytes:n]); err != nil {
			return message{}, 0, err
		}
	} else {
		n, err := r.walk.Walk(body)
		if err == wire.ErrIncomplete {
			return m, r.walk.Need(), nil
		}
		if err != nil {
			return m, 0, err
		}
		m.body = body[:n:n]
		r.w = copy(r.buf, body[n:])
	}
	m.owned = true
	r.consume(0)
	return m, 0, nil
}

// refuse discards a message for which memory ran short. In framed mode it reads the message to its
// end, so that the connection continues. In plain mode the end is not known, and the connection
// ends after the response.
func (r *reader) refuse(start []byte, need int) (message, error) {
	m := message{body: append(make([]byte, 0, headerBytes+envelopeBytesMax), start[:min(len(start), headerBytes+envelopeBytesMax)]...), owned: true, refused: true}
	if !r.framed {
		r.err = errNoMemory
		return m, nil
	}
	h := parseHeader(start)
	m.body, m.timeoutMS = m.body[headerBytes:], h.timeoutMS
	sum := crc.Sum(start[:12], start[headerBytes:])
	r.r, r.w = 0, 0
	mark := 0
	for left := need - len(start); left > 0; {
		n, err := r.read(r.buf[:min(left, len(r.buf))])
		if err != nil {
			return message{}, err
		}
		sum = crc.Update(sum, r.buf[:n])
		m.body = append(m.body, r.buf[:min(n, envelopeBytesMax-min(len(m.body), envelopeBytesMax))]...)
		left -= n
		if mark += n; mark >= progressBytes {
			mark, r.since, r.grace = 0, r.now, false
		}
	}
	r.consume(0)
	if sum != h.crc {
		return message{}, &CorruptFrameError{Length: int(h.length), Got: sum, Want: h.crc}
	}
	return m, nil
}
