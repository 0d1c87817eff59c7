package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// A lane is a connection for one kind of traffic, so that small calls do not wait behind bulk data.
type lane int

const (
	laneCalls   lane = iota // small calls
	laneStreams             // of writers
	laneReads
	laneLogs // appends
	lanes
)

// dialTimeout bounds a dial, since other callers of the lane wait for it.
const dialTimeout = 3 * time.Second

// conns holds the connections to another node, one for each lane.
type conns struct {
	dial func(ctx context.Context) (*rpc.Conn, error)
	lane [lanes]laneConn
}

// laneConn is the connection of a lane.
type laneConn struct {
	// dialing is a lock of capacity 1, held while dialing or looking for a connection. Callers wait
	// for it no longer than their context allows.
	dialing chan struct{}
	conn    *rpc.Conn
	closed  bool
}

// init makes conns ready; dial connects to the node.
func (c *conns) init(dial func(ctx context.Context) (*rpc.Conn, error)) {
	c.dial = dial
	for i := range c.lane {
		c.lane[i].dialing = make(chan struct{}, 1)
	}
}

// close closes the connections, which fails all calls.
func (c *conns) close() error {
	var errs []error
	for i := range c.lane {
		l := &c.lane[i]
		l.dialing <- struct{}{}
		l.closed = true
		conn := l.conn
		<-l.dialing
		if conn != nil { // without the lock: calls that fail may make others
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// get returns the lane's connection, and dials if there is none.
func (c *conns) get(ctx context.Context, lane lane) (*rpc.Conn, error) {
	l := &c.lane[lane]
	select {
	case l.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
	defer func() { <-l.dialing }()
	if l.closed {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, local.ErrClosed)
	}
	if l.conn != nil && l.conn.Err() == nil {
		return l.conn, nil
	}
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	l.conn = conn
	return conn, nil
}

// call calls a method with the parameters that params encodes.
func (c *conns) call(ctx context.Context, lane lane, method string, params func(*wire.Encoder), decode func(*wire.Decoder)) error {
	conn, err := c.get(ctx, lane)
	if err != nil {
		return err
	}
	err = conn.Call(ctx, method, params, func(d *wire.Decoder) error {
		if decode != nil {
			decode(d)
		}
		return d.Err()
	})
	return callError(err)
}

// start calls a method without waiting for the answer. It calls done with the answer or the error,
// perhaps before it returns.
func (c *conns) start(ctx context.Context, lane lane, method string, params func(*wire.Encoder), done func(*wire.Decoder, error)) {
	conn, err := c.get(ctx, lane)
	if err != nil {
		done(nil, err)
		return
	}
	err = conn.Go(ctx, method, params, func(d *wire.Decoder, err error) { done(d, callError(err)) })
	if err != nil {
		done(nil, callError(err))
	}
}

// callError converts the error of a call. A failure that is not an answer of the node is
// ErrUnreachable.
func callError(err error) error {
	var answer *rpc.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return FromRPC(err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
