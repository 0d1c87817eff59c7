package bigtable

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// held is memory that is reserved for a call and its messages: grpc-go queues a message, although the
// client does not receive it. A nil held is nothing that is reserved.
type held struct {
	release func()
	users   atomic.Int64  // the call, and messages that are not written
	idle    chan struct{} // closed when there are none
}

// hold returns what is reserved for a call.
func hold(release func()) *held {
	h := &held{release: release, idle: make(chan struct{})}
	h.users.Store(1)
	return h
}

func (h *held) done() {
	if h.users.Add(-1) == 0 {
		close(h.idle)
	}
}

// end releases the memory when the messages are written, and waits for that. If ctx, that of the stream,
// ends before, grpc-go drops them.
func (h *held) end(ctx context.Context) {
	if h == nil {
		return
	}
	h.done()
	select {
	case <-h.idle:
	case <-ctx.Done():
	}
	h.release()
}

// message returns the message in a buffer of a pool. Unless it is small, it uses the memory until
// grpc-go has written it.
func (h *held) message(b *[]byte, pool mem.BufferPool) *encoded {
	if h == nil || cap(*b) <= firstBytes {
		return &encoded{mem.NewBuffer(b, pool)}
	}
	h.users.Add(1)
	return &encoded{mem.NewBuffer(b, queued{pool, h})}
}

// queued is the pool to which grpc-go returns the buffer of a message that uses memory.
type queued struct {
	mem.BufferPool
	held *held
}

// Put implements mem.BufferPool: the message is written, or dropped.
func (q queued) Put(b *[]byte) {
	q.BufferPool.Put(b)
	q.held.done()
}
