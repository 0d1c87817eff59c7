package pki

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// wire is the connection below TLS. What one Conn.Write comes to goes out in pieces of wireBytes, not in one for
// each record of 16 KiB.
type wire struct {
	net.Conn
	// shaking is how many bytes of the handshake are left to come, while it lasts; -1 afterwards. Of who reads.
	shaking int
	// head is what came first, while the handshake lasts. Of who reads.
	head []byte

	// mu guards the fields in it, and keeps records in order: who reads may have one to send too. It is held while they are
	// written, for the next must wait for them anyway.
	mu struct {
		sync.Mutex
		held *[]byte // records that are kept back; nil if none are
		err  error   // of a write that may have come to a part of a record; whatever follows would be no record
	}
}

const (
	recordBytes = 16 << 10 // of plain bytes that a record has at most
	wireBytes   = 128 << 10
	// wireBuffersMax bounds the memory: a peer that does not read keeps a buffer. Without one records go out one by one.
	wireBuffersMax = 32
)

var (
	wireBuffers = sync.Pool{New: func() any {
		b := make([]byte, 0, wireBytes)
		return &b
	}}
	wireBuffersLent atomic.Int32
)

// handshakeBytesMax is what a handshake may come to that is done here: ours take 4 KiB. Package tls would buffer 64 KiB of a
// hello, and 256 KiB of certificates.
const handshakeBytesMax = 16 << 10

// headBytes is how much of what a peer sends first is kept for ListenerConfig.NotTLS.
const headBytes = 32

// errLongHandshake is why a handshake ends that has not come to its end in handshakeBytesMax.
var errLongHandshake = fmt.Errorf("handshake takes more than %d bytes", handshakeBytesMax)

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	if w.shaking < 0 {
		return w.Conn.Read(p)
	}
	if w.shaking == 0 {
		return 0, errLongHandshake
	}
	n, err := w.Conn.Read(p[:min(len(p), w.shaking)])
	w.shaking -= n
	w.head = append(w.head, p[:min(n, headBytes-len(w.head))]...)
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err != nil {
		return 0, w.mu.err
	}
	if w.mu.held == nil {
		n, err := w.Conn.Write(p)
		w.mu.err = err
		return n, err
	}
	if len(*w.mu.held)+len(p) > wireBytes {
		if err := w.flushLocked(); err != nil {
			return 0, err
		}
	}
	*w.mu.held = append(*w.mu.held, p...)
	return len(p), nil
}

func (w *wire) flushLocked() error {
	if w.mu.err == nil && len(*w.mu.held) > 0 {
		_, w.mu.err = w.Conn.Write(*w.mu.held)
	}
	*w.mu.held = (*w.mu.held)[:0]
	return w.mu.err
}

// hold keeps records back until release, if there is a buffer for them.
func (w *wire) hold() {
	if wireBuffersLent.Add(1) > wireBuffersMax {
		wireBuffersLent.Add(-1)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.held = wireBuffers.Get().(*[]byte)
}

// release writes what was kept back. Its error is that of any write since hold.
func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.held == nil {
		return nil
	}
	err := w.flushLocked()
	wireBuffers.Put(w.mu.held)
	w.mu.held = nil
	wireBuffersLent.Add(-1)
	return err
}
