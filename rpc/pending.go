package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// ErrRequestTooLarge means that a request exceeds the connection's message limit. It was not sent.
var ErrRequestTooLarge = errors.New("request too large")

// pending is a call that waits for its response.
type pending struct {
	ready chan struct{} // gets one token when err or body is set; not used by Go
	done  func(*wire.Decoder, error)
	body  []byte       // the result
	d     wire.Decoder // over body; a field because one on the stack would escape to decode
	err   error
	keep  bool // body belongs to the caller

	// Set under the writer's lock, before the writer fails.
	queued bool
	pos    uint64 // in the outgoing stream
}

func newPending() any { return &pending{ready: make(chan struct{}, 1)} }

// answer stores the result; it copies it unless owned is set.
func (p *pending) answer(result []byte, owned bool) {
	switch {
	case owned:
		p.body = result
	case p.keep:
		p.body = append([]byte(nil), result...)
	default:
		p.body = append(p.body[:0], result...)
	}
}

// release recycles a pending that no other goroutine refers to.
func (c *Conn) release(p *pending) {
	if p.keep || cap(p.body) > 64<<10 {
		p.body = nil
	}
	p.d = wire.Decoder{}
	p.done, p.err, p.keep, p.queued = nil, nil, false, false
	c.pendings.Put(p)
}

// Call sends a request and waits for its response. encode appends the params, which must be one
// array; nil means no params. decode reads the result on the caller's goroutine and must not retain
// anything that aliases it; nil ignores the result.
//
// ctx's deadline is sent to the server. If ctx ends first, Call returns an error that wraps ctx's,
// and a late response is dropped; the request may still be executed. Other errors: *Error from the
// server, *ConnLostError, ErrRequestTooLarge, and those of decode or its Decoder.
func (c *Conn) Call(ctx context.Context, method string, encode func(*wire.Encoder), decode func(*wire.Decoder) error) error {
	return c.call(ctx, method, encode, decode, false)
}

// CallRetain is Call for a decode that retains parts of the result. The garbage collector reclaims
// the result's bytes.
func (c *Conn) CallRetain(ctx context.Context, method string, encode func(*wire.Encoder), decode func(*wire.Decoder) error) error {
	return c.call(ctx, method, encode, decode, true)
}

func (c *Conn) call(ctx context.Context, method string, encode func(*wire.Encoder), decode func(*wire.Decoder) error, keep bool) error {
	p := c.pendings.Get().(*pending)
	p.keep = keep
	id, err := c.submit(ctx, method, encode, p)
	if err != nil {
		return err
	}
	if done := ctx.Done(); done == nil {
		<-p.ready
	} else {
		select {
		case <-p.ready:
		case <-done:
			if c.forget(id) {
				c.release(p)
				return fmt.Errorf("call %s: %w", method, ctx.Err())
			}
			<-p.ready // the response arrived meanwhile
		}
	}
	defer c.release(p)
	if p.err != nil {
		return p.err
	}
	if decode == nil {
		return nil
	}
	p.d = wire.NewDecoder(p.body)
	if err := decode(&p.d); err != nil {
		return err
	}
	return p.d.Err()
}

// Go sends a request and returns. done later gets the result or the error, as from Call. It runs on
// the connection's reader or on the goroutine that fails the connection, so it must not block. If
// Go returns an error, the request was not sent and done is not called. After Go has returned,
// cancelling ctx has no effect; ctx's deadline is sent to the server.
func (c *Conn) Go(ctx context.Context, method string, encode func(*wire.Encoder), done func(*wire.Decoder, error)) error {
	p := c.pendings.Get().(*pending)
	p.done = done
	_, err := c.submit(ctx, method, encode, p)
	return err
}

// Notify sends a notification, which has no response. A nil error does not mean that it arrives.
func (c *Conn) Notify(ctx context.Context, method string, encode func(*wire.Encoder)) error {
	if err := c.Err(); err != nil {
		return &ConnLostError{Err: err}
	}
	enc := wire.GetEncoder()
	beginNotification(enc, method)
	if err := c.seal(ctx, enc, encode); err != nil {
		return err
	}
	if err := c.acquireUnsent(ctx, int64(enc.Len())); err != nil {
		enc.Release()
		return err
	}
	return c.push(enc, nil)
}

// submit encodes and queues a request. On success p will get its response. On an error p has been
// released.
func (c *Conn) submit(ctx context.Context, method string, encode func(*wire.Encoder), p *pending) (id uint32, err error) {
	if err := ctx.Err(); err != nil {
		c.release(p)
		return 0, fmt.Errorf("call %s: %w", method, err)
	}
	id = c.id.Add(1)
	enc := wire.GetEncoder()
	beginRequest(enc, id, method)
	if err = c.seal(ctx, enc, encode); err != nil {
		c.release(p)
		return 0, err
	}
	n := int64(enc.Len())
	if err = c.acquireSlot(ctx, n); err == nil {
		if id, err = c.register(id, p, enc); err != nil {
			c.inFlight.release(1)
			c.unsent.release(n)
		}
	}
	if err != nil {
		enc.Release()
		c.release(p)
		return 0, err
	}
	// Once registered, p gets its response or the connection's error in any case.
	_ = c.push(enc, p)
	return id, nil
}

// seal appends the params and finishes the frame. On an error enc is released.
func (c *Conn) seal(ctx context.Context, enc *wire.Encoder, encode func(*wire.Encoder)) error {
	if encode == nil {
		enc.Array(0)
	} else {
		encode(enc)
	}
	if n := enc.Len() - headerBytes; n > c.cfg.MessageBytesMax {
		enc.Release()
		return fmt.Errorf("%w: %d bytes, limit %d", ErrRequestTooLarge, n, c.cfg.MessageBytesMax)
	}
	sealFrame(enc.Bytes(), timeoutMS(ctx))
	return nil
}

// timeoutMS returns the time until ctx's deadline, rounded up to milliseconds; 0 if there is none.
func timeoutMS(ctx context.Context) uint32 {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	ms := (time.Until(at) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 1), math.MaxUint32))
}

// acquireSlot waits until one more call and n more bytes are within the connection's limits.
func (c *Conn) acquireSlot(ctx context.Context, n int64) error {
	if !c.inFlight.tryAcquire(1) && !c.inFlight.acquireCtx(ctx, 1, c.stop) {
		return c.acquireError(ctx)
	}
	if err := c.acquireUnsent(ctx, n); err != nil {
		c.inFlight.release(1)
		return err
	}
	return nil
}

func (c *Conn) acquireUnsent(ctx context.Context, n int64) error {
	if !c.unsent.tryAcquire(n) && !c.unsent.acquireCtx(ctx, n, c.stop) {
		return c.acquireError(ctx)
	}
	return nil
}

func (c *Conn) acquireError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("call not sent: %w", err)
	}
	return &ConnLostError{Err: c.Err()}
}

// register adds p to the calls in flight. It changes the request's id if that is still in use after
// 2^32 calls.
func (c *Conn) register(id uint32, p *pending, enc *wire.Encoder) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errLocked(); err != nil {
		return 0, &ConnLostError{Err: err}
	}
	if c.mu.calls[id] != nil {
		for c.mu.calls[id] != nil {
			id = c.id.Add(1)
		}
		b := enc.Bytes()
		setID(b, id)
		sealFrame(b, parseHeader(b).timeoutMS)
	}
	c.mu.calls[id] = p
	return id, nil
}

// push queues a sealed frame, whose bytes have been acquired from unsent.
func (c *Conn) push(enc *wire.Encoder, p *pending) error {
	n := int64(enc.Len())
	if err := c.out.append(enc, p, nil); err != nil {
		c.unsent.release(n)
		return &ConnLostError{Err: err}
	}
	return nil
}

// forget abandons a call, and reports whether it was still in flight.
func (c *Conn) forget(id uint32) bool {
	p, last := c.removeCall(id)
	if p == nil {
		return false
	}
	c.inFlight.release(1)
	if last {
		c.fail(ErrDraining)
	}
	return true
}
