package simnet

import "math/bits"

// ringMin is the smallest buffer, in bytes.
const ringMin = 4 << 10

// ring is a queue of bytes.
type ring struct {
	buf   []byte // its length is a power of two, or zero
	start int
	len   int
}

// write appends p.
func (r *ring) write(p []byte, pool *bufferPool) {
	if need := r.len + len(p); need > len(r.buf) {
		r.grow(need, pool)
	}
	at := (r.start + r.len) & (len(r.buf) - 1)
	n := copy(r.buf[at:], p)
	copy(r.buf, p[n:])
	r.len += len(p)
}

func (r *ring) grow(need int, pool *bufferPool) {
	larger := ring{buf: pool.get(max(need, ringMin))}
	n := r.len
	first := copy(larger.buf, r.buf[r.start:min(r.start+n, len(r.buf))])
	copy(larger.buf[first:], r.buf[:n-first])
	larger.len = n
	pool.put(r.buf)
	*r = larger
}

// read moves bytes to p. The caller ensures that there are enough.
func (r *ring) read(p []byte, pool *bufferPool) {
	n := copy(p, r.buf[r.start:])
	copy(p[n:], r.buf)
	r.start = (r.start + len(p)) & (len(r.buf) - 1)
	if r.len -= len(p); r.len == 0 {
		r.start = 0
		if len(r.buf) > 4*ringMin {
			r.release(pool)
		}
	}
}

func (r *ring) release(pool *bufferPool) {
	pool.put(r.buf)
	*r = ring{}
}

// bufferPool keeps unused buffers by the logarithm of their length.
type bufferPool [32][][]byte

// bufferPoolBytes bounds the unused buffers of one length.
const bufferPoolBytes = 16 << 20

func (b *bufferPool) get(size int) []byte {
	class := bits.Len(uint(size - 1))
	free := b[class]
	if len(free) == 0 {
		return make([]byte, 1<<class)
	}
	last := len(free) - 1
	buf := free[last]
	free[last] = nil
	b[class] = free[:last]
	return buf
}

func (b *bufferPool) put(buf []byte) {
	if len(buf) == 0 {
		return
	}
	class := bits.Len(uint(len(buf) - 1))
	if len(b[class])<<class < bufferPoolBytes {
		b[class] = append(b[class], buf)
	}
}
