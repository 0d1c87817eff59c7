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

// Remote is the client of another node's Peer. It dials on first use, and again after a connection
// is lost. It is safe for concurrent use.
type Remote struct {
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

// NewRemote returns the client of the Peer that dial connects to. It owns the connections.
func NewRemote(dial func(ctx context.Context) (*rpc.Conn, error)) *Remote {
	m := &Remote{dial: dial}
	for i := range m.lane {
		m.lane[i].dialing = make(chan struct{}, 1)
	}
	return m
}

// Close closes the connections, which fails all calls.
func (m *Remote) Close() error {
	var errs []error
	for i := range m.lane {
		l := &m.lane[i]
		l.dialing <- struct{}{}
		l.closed = true
		if l.conn != nil {
			errs = append(errs, l.conn.Close())
		}
		<-l.dialing
	}
	return errors.Join(errs...)
}

// conn returns the lane's connection, and dials if there is none.
func (m *Remote) conn(ctx context.Context, lane lane) (*rpc.Conn, error) {
	l := &m.lane[lane]
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
	c, err := m.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	l.conn = c
	return c, nil
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

// call calls a method of extents with the parameters r.
func (m *Remote) call(ctx context.Context, lane lane, method string, r request, decode func(*wire.Decoder)) error {
	r.shape = shapeOf[method]
	return m.callWith(ctx, lane, method, r.append, decode)
}

// callWith calls a method with the parameters that params encodes.
func (m *Remote) callWith(ctx context.Context, lane lane, method string, params func(*wire.Encoder), decode func(*wire.Decoder)) error {
	conn, err := m.conn(ctx, lane)
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

// send calls a method of a stream.
func (m *Remote) send(ctx context.Context, method string, r request, done func(*wire.Decoder, error)) {
	r.shape = shapeOf[method]
	conn, err := m.conn(ctx, laneStreams)
	if err != nil {
		done(nil, err)
		return
	}
	err = conn.Go(ctx, method, r.append, func(d *wire.Decoder, err error) { done(d, callError(err)) })
	if err != nil {
		done(nil, callError(err))
	}
}

// Begin implements Extents. Like Piece and Seal it may dial, and blocks while too many bytes of the
// connection are unsent. ctx bounds both.
func (m *Remote) Begin(ctx context.Context, b Begin, done func(error)) {
	r := request{stream: b.Stream, extent: b.Extent, offset: b.Offset, nodes: b.Chain, priorityBytes: b.HighPriority}
	m.send(ctx, MethodBegin, r, func(_ *wire.Decoder, err error) { done(err) })
}

// Piece implements Extents. It does not use p after it returns.
func (m *Remote) Piece(ctx context.Context, s StreamID, off int64, p []byte, done func(error)) {
	if len(p) > PieceBytesMax {
		done(badBytes(len(p)))
		return
	}
	m.send(ctx, MethodPiece, request{stream: s, offset: off, data: p}, func(_ *wire.Decoder, err error) { done(err) })
}

// Seal implements Extents.
func (m *Remote) Seal(ctx context.Context, s Seal, done func([]string, error)) {
	r := request{stream: s.Stream, length: s.Length, crc: s.CRC, last: s.Last, holders: s.Holders}
	m.send(ctx, MethodSeal, r, func(d *wire.Decoder, err error) {
		var res sealed
		if err == nil {
			res.decode(d)
			err = callError(d.Err())
		}
		if err == nil && res.failed != nil {
			err = res.failed
		}
		done(res.nodes, err)
	})
}

// Resume implements Extents.
func (m *Remote) Resume(ctx context.Context, s StreamID) (n int64, err error) {
	err = m.call(ctx, laneCalls, MethodResume, request{stream: s}, func(d *wire.Decoder) { n = decodeInt(d, 0, blobBytesMax) })
	return n, err
}

// Reread implements Extents.
func (m *Remote) Reread(ctx context.Context, s StreamID, p []byte, off int64) error {
	if len(p) > PieceBytesMax {
		return badBytes(len(p))
	}
	return m.call(ctx, laneReads, MethodReread, request{stream: s, offset: off, count: len(p)}, func(d *wire.Decoder) { decodeBytes(d, p) })
}

// Abort implements Extents.
func (m *Remote) Abort(ctx context.Context, s StreamID, done func(error)) {
	m.send(ctx, MethodAbort, request{stream: s}, func(_ *wire.Decoder, err error) { done(err) })
}

// Read implements Extents.
func (m *Remote) Read(ctx context.Context, ref Ref, p []byte, off int64) error {
	if len(p) > PieceBytesMax {
		return badBytes(len(p))
	}
	r := request{extent: ref.Extent, crc: ref.CRC, offset: off, count: len(p)}
	return m.call(ctx, laneReads, MethodRead, r, func(d *wire.Decoder) { decodeBytes(d, p) })
}

// Stat implements Extents.
func (m *Remote) Stat(ctx context.Context, x local.ExtentID) (st local.ExtentStat, err error) {
	err = m.call(ctx, laneCalls, MethodStat, request{extent: x}, func(d *wire.Decoder) { decodeStat(d, &st) })
	return st, err
}

// List implements Extents.
func (m *Remote) List(ctx context.Context, after local.ExtentID, max int) (infos []local.ExtentInfo, err error) {
	r := request{extent: after, count: min(max, ListMax)}
	err = m.call(ctx, laneCalls, MethodList, r, func(d *wire.Decoder) { infos = decodeInfos(d) })
	return infos, err
}

// Drop implements Extents.
func (m *Remote) Drop(ctx context.Context, x local.ExtentID, why Reason) error {
	return m.call(ctx, laneCalls, MethodDrop, request{extent: x, reason: why}, nil)
}

// DropBlob implements Extents.
func (m *Remote) DropBlob(ctx context.Context, blob local.ID, why Reason) (n int, err error) {
	r := request{extent: local.ExtentID{Blob: blob}, reason: why}
	err = m.call(ctx, laneCalls, MethodDropBlob, r, func(d *wire.Decoder) { n = int(decodeInt(d, 0, local.ExtentsMax)) })
	return n, err
}

// Check implements Extents.
func (m *Remote) Check(ctx context.Context, xs []local.ExtentID) (all []Held, err error) {
	if len(xs) > CheckMax {
		return nil, fmt.Errorf("%w: check of %d extents at once, at most %d", ErrBadRequest, len(xs), CheckMax)
	}
	err = m.call(ctx, laneCalls, MethodCheck, request{extents: xs}, func(d *wire.Decoder) { all = decodeHeld(d) })
	if err == nil && len(all) != len(xs) {
		return nil, fmt.Errorf("%w: %d extents requested, %d returned", ErrUnreachable, len(xs), len(all))
	}
	return all, err
}

// Copy implements Extents.
func (m *Remote) Copy(ctx context.Context, c Copy) error {
	r := request{extent: c.Extent, crc: c.CRC, nodes: c.From, holders: c.Holders}
	return m.call(ctx, laneCalls, MethodCopy, r, nil)
}

// SetHolders implements Extents.
func (m *Remote) SetHolders(ctx context.Context, x local.ExtentID, h local.Holders) error {
	return m.call(ctx, laneCalls, MethodSetHolders, request{extent: x, holders: h}, nil)
}

// Verify implements Extents.
func (m *Remote) Verify(ctx context.Context, ref Ref) error {
	return m.call(ctx, laneCalls, MethodVerify, request{extent: ref.Extent, crc: ref.CRC}, nil)
}
