package rpc

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// pieces is a connection whose reads return one piece each.
type pieces struct {
	net.Conn
	rest [][]byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[0])
	if p.rest[0] = p.rest[0][n:]; len(p.rest[0]) == 0 {
		p.rest = p.rest[1:]
	}
	return n, nil
}

func (*pieces) SetReadDeadline(time.Time) error { return nil }

// TestFit: the read buffer grows only for a larger message. It shrinks after 65 small reads for a
// message that fits into half of the smallest buffer. Its bytes move to the front only if the
// message does not fit behind them or half of the buffer is used up.
func TestFit(t *testing.T) {
	const size = 2 * readBytesMin
	for _, c := range []struct {
		name             string
		size, r, w       int
		smallReads, need int
		want, resizings  int
		at               int // expected position of the unread bytes
	}{
		{"as large as the buffer", size, 0, 0, 0, size, size, 0, 0},
		{"a byte more", size, 0, 0, 0, size + 1, 2 * size, 1, 0},
		{"twice as large", size, 0, 0, 0, 2 * size, 2 * size, 1, 0},
		{"more than twice as large", size, 10, 20, 0, 2*size + 1, 4 * size, 1, 0},
		{"small reads", size, 0, 0, 65, readBytesMin / 2, readBytesMin, 1, 0},
		{"small reads, with unread bytes", size, 10, 10 + readBytesMin/2, 65, 1, readBytesMin, 1, 0},
		{"small reads, with more of them", size, 10, 11 + readBytesMin/2, 65, 1, size, 0, 10},
		{"too few small reads", size, 0, 0, 64, readBytesMin / 2, size, 0, 0},
		{"small reads before a larger one", size, 0, 0, 65, readBytesMin/2 + 1, size, 0, 0},
		{"small reads, smallest buffer", readBytesMin, 0, 0, 65, 1, readBytesMin, 0, 0},
		{"fits behind", size, 100, 200, 0, size - 100, size, 0, 100},
		{"does not fit behind", size, 100, 200, 0, size - 99, size, 0, 0},
		{"half is used", size, 100, size / 2, 0, 500, size, 0, 100},
		{"more than half is used", size, 100, size/2 + 1, 0, 500, size, 0, 0},
		{"nothing unread", size, 500, 500, 0, size, size, 0, 0},
	} {
		resizings := 0
		r := newReader(nil, true, 1<<20, time.Minute, new(atomic.Uint64))
		r.reserveBuffer = func(int) bool { resizings++; return true }
		r.buf = make([]byte, c.size)
		for i := c.r; i < c.w; i++ {
			r.buf[i] = byte(i)
		}
		unread := bytes.Clone(r.buf[c.r:c.w])
		r.r, r.w, r.smallReads = c.r, c.w, c.smallReads
		if !r.fit(c.need) || len(r.buf) != c.want || resizings != c.resizings {
			t.Errorf("%s: a buffer of %d bytes after %d resizings, want %d after %d", c.name, len(r.buf), resizings, c.want, c.resizings)
		}
		if r.r != c.at || !bytes.Equal(r.buf[r.r:r.w], unread) {
			t.Errorf("%s: the unread bytes are at %d, want %d", c.name, r.r, c.at)
		}
	}
}

// TestSmallReads: a read of up to 4 KiB counts as small, a larger one does not, and one that fills
// the buffer doubles it.
func TestSmallReads(t *testing.T) {
	for n, want := range map[int]int{1: 8, readBytesMin / 2: 8, readBytesMin/2 + 1: 0, readBytesMin - 1: 0} {
		r := newReader(&pieces{rest: [][]byte{make([]byte, n)}}, true, 1<<20, time.Minute, new(atomic.Uint64))
		r.smallReads = 7
		if err := r.fill(); err != nil || r.smallReads != want || len(r.buf) != readBytesMin {
			t.Errorf("after a read of %d bytes %d are small, and the buffer has %d bytes: %v", n, r.smallReads, len(r.buf), err)
		}
	}
	for size, want := range map[int]int{readBytesMin: 2 * readBytesMin, readBytesMax / 2: readBytesMax, readBytesMax: readBytesMax} {
		r := newReader(&pieces{rest: [][]byte{make([]byte, size)}}, true, 1<<20, time.Minute, new(atomic.Uint64))
		r.buf = make([]byte, size)
		if err := r.fill(); err != nil || len(r.buf) != want || r.w != size {
			t.Errorf("after a read that fills %d bytes the buffer has %d, of them %d unread: %v", size, len(r.buf), r.w, err)
		}
	}
}

// TestLargestInBuffer: a frame of 128 KiB is read into the buffer, a larger one into its own
// memory.
func TestLargestInBuffer(t *testing.T) {
	for n, owned := range map[int]bool{readBytesMax: false, readBytesMax + 1: true} {
		f := append(make([]byte, headerBytes), make([]byte, n-headerBytes)...)
		sealFrame(f, 0)
		r := newReader(&pieces{rest: [][]byte{f}}, true, 1<<20, time.Minute, new(atomic.Uint64))
		m, err := r.next()
		if err != nil || len(m.body) != n-headerBytes || m.owned != owned {
			t.Errorf("a frame of %d bytes: %d bytes, owned %v, %v", n, len(m.body), m.owned, err)
		}
	}
}
