package bigtable

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// held is memory that is reserved for a call, and for its messages until they are written: grpc-go
// queues a message, and lets the call end, although the client does not receive it. A nil held is
// nothing that is reserved.
type held struct {
	users   atomic.Int64
	release func()
}

// hold returns what is reserved for a call, until it calls done.
func hold(release func()) *held {
	h := &held{release: release}
	h.users.Store(1)
	return h
}

// done ends the use by the call, or by a message.
func (h *held) done() {
	if h != nil && h.users.Add(-1) == 0 {
		h.release()
	}
}

// message returns the message in a buffer of a pool. Unless it is small, it uses the memory until
// grpc-go has written it.
func (h *held) message(b *[]byte, pool mem.BufferPool) *encoded {
	if h == nil || cap(*b) <= firstBytes {
		return &encoded{mem.NewBuffer(b, pool)}
	}
	h.users.Add(1)
	m := &queued{BufferPool: pool, held: h}
	// grpc-go does not free what is queued for a stream whose connection breaks.
	m.cleanup = runtime.AddCleanup(b, (*queued).gone, m)
	return &encoded{mem.NewBuffer(b, m)}
}

// queued is a message that uses memory. It is the pool that gets its buffer.
type queued struct {
	mem.BufferPool
	held    *held
	cleanup runtime.Cleanup
	ended   atomic.Bool
}

// Put implements mem.BufferPool: the message is written or dropped.
func (m *queued) Put(b *[]byte) {
	m.cleanup.Stop()
	m.BufferPool.Put(b)
	m.gone()
}

func (m *queued) gone() {
	if m.ended.CompareAndSwap(false, true) {
		m.held.done()
	}
}
