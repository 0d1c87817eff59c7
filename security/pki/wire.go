package pki

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// wire is the connection below TLS. It sends the records of one Conn.Write in pieces of wireBytes
// instead of one by one.
type wire struct {
	net.Conn
	// handshakeLeft is the number of bytes that the handshake may still receive, or -1 after it.
	// Used by the reader only.
	handshakeLeft int
	// head is the first bytes received, during the handshake. Used by the reader only.
	head []byte

	// mu guards the fields in it and keeps records in order, because a reader may also send one.
	// It is held during writes: the next record must wait for them anyway.
	mu struct {
		sync.Mutex
		held *[]byte // buffered records; nil while not buffering
		err  error   // of a write that may have sent part of a record; later writes would corrupt the stream
	}
}

const (
	recordBytes = 16 << 10 // maximum plaintext of a record
	wireBytes   = 128 << 10
	// wireBuffersMax bounds the memory: a peer that does not read occupies a buffer. Without a
	// buffer, records are sent one by one.
	wireBuffersMax = 32
)

var (
	wireBuffers = sync.Pool{New: func() any {
		b := make([]byte, 0, wireBytes)
		return &b
	}}
	wireBuffersInUse atomic.Int32
)

// handshakeBytesMax bounds the bytes received in a handshake. Ours take 4 KiB. Package tls alone
// would buffer 64 KiB of a hello and 256 KiB of certificates.
const handshakeBytesMax = 16 << 10

// headBytes is how much of a peer's first bytes is kept for ListenerConfig.NotTLS.
const headBytes = 32

// errLongHandshake ends a handshake that exceeds handshakeBytesMax.
var errLongHandshake = fmt.Errorf("handshake takes more than %d bytes", handshakeBytesMax)

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	if w.handshakeLeft < 0 {
		return w.Conn.Read(p)
	}
	if w.handshakeLeft == 0 {
		return 0, errLongHandshake
	}
	n, err := w.Conn.Read(p[:min(len(p), w.handshakeLeft)])
	w.handshakeLeft -= n
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

// hold starts buffering records, if a buffer is free.
func (w *wire) hold() {
	if wireBuffersInUse.Add(1) > wireBuffersMax {
		wireBuffersInUse.Add(-1)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.held = wireBuffers.Get().(*[]byte)
}

// release sends the buffered records and stops buffering. It returns the error of any write since
// hold.
func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.held == nil {
		return nil
	}
	err := w.flushLocked()
	wireBuffers.Put(w.mu.held)
	w.mu.held = nil
	wireBuffersInUse.Add(-1)
	return err
}
