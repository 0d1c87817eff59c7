package replog

import (
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
)

// window is what a writer has submitted and not acknowledged. Guarded by Writer.mu.
type window struct {
	frames  []*frame
	waiters []*waitingAppend // by position
	bytes   int              // of frames
	space   chan struct{}    // closed and replaced when bytes shrinks; nil if no append waits
}

// frame is an unacknowledged frame.
type frame struct {
	pos, end int64
	b        []byte
	salt     uint64
	shared   bool // a link may be sending it: b must not change
	sent     time.Duration
}

// waitingAppend is a waiting Append.
type waitingAppend struct {
	end  int64
	done chan error // capacity 1
}

// resalt re-encodes a frame for another extent. A frame that a link may be sending is copied first.
func (f *frame) resalt(salt uint64, acked int64) {
	if f.shared {
		f.b = append([]byte(nil), f.b...)
		f.shared = false
	}
	local.ResaltLogFrame(f.b, salt, f.pos, f.pos-acked)
	f.salt = salt
}

func (x *window) add(f *frame) {
	x.frames = append(x.frames, f)
	x.bytes += len(f.b)
}

// awaitSpace returns a channel that is closed when there may be space for size more bytes; nil if
// there is.
func (x *window) awaitSpace(size, limit int) <-chan struct{} {
	if x.bytes == 0 || x.bytes+size <= limit {
		return nil
	}
	if x.space == nil {
		x.space = make(chan struct{})
	}
	return x.space
}

func (x *window) signalSpace() {
	if x.space != nil {
		close(x.space)
		x.space = nil
	}
}

// acknowledge completes the appends up to a position.
func (x *window) acknowledge(to int64, now time.Duration, timer *appendTimer, pool *frameBuffers) {
	n := 0
	for n < len(x.frames) && x.frames[n].end <= to {
		f := x.frames[n]
		x.bytes -= len(f.b)
		timer.observe(now - f.sent)
		if !f.shared {
			pool.put(f.b)
		}
		x.frames[n] = nil
		n++
	}
	x.frames = x.frames[n:]
	n = 0
	for n < len(x.waiters) && x.waiters[n].end <= to {
		x.waiters[n].done <- nil
		n++
	}
	x.waiters = x.waiters[n:]
	x.signalSpace()
}

// withdraw removes the frames after a position and fails their appends. It reports whether there
// were any frames.
func (x *window) withdraw(end int64, err error) bool {
	before := len(x.frames)
	for n := before; n > 0 && x.frames[n-1].end > end; n-- {
		x.bytes -= len(x.frames[n-1].b)
		x.frames = x.frames[:n-1]
	}
	for n := len(x.waiters); n > 0 && x.waiters[n-1].end > end; n-- {
		x.waiters[n-1].done <- err
		x.waiters = x.waiters[:n-1]
	}
	x.signalSpace()
	return len(x.frames) < before
}

// fail fails all appends.
func (x *window) fail(err error) {
	for _, a := range x.waiters {
		a.done <- err
	}
	x.waiters, x.frames = nil, nil
}

// frameBuffers is a pool of frame buffers.
type frameBuffers struct{ pool sync.Pool }

// framePooledMax is the capacity of the largest buffer that is pooled, in bytes.
const framePooledMax = 128 << 10

func (f *frameBuffers) get(size int) []byte {
	if b, ok := f.pool.Get().(*[]byte); ok {
		if cap(*b) >= size {
			return (*b)[:size]
		}
	}
	return make([]byte, size)
}

func (f *frameBuffers) put(b []byte) {
	if cap(b) <= framePooledMax {
		f.pool.Put(&b)
	}
}
