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

// A lane is a connection that carries one kind of traffic, so that none waits behind
// another's bytes.
type lane int

const (
	laneCalls   lane = iota // whatever is small
	laneStreams             // of those who write
	laneReads
	laneLogs // appends
	lanes
)

// dialTimeout bounds the making of a connection: others wait for it meanwhile.
const dialTimeout = 3 * time.Second

// Remote is the Peer on another node. It dials when first needed, and again after a
// connection was lost. It is safe for concurrent use.
type Remote struct {
	dial func(ctx context.Context) (*rpc.Conn, error)
	lane [lanes]laneConn
}

// laneConn is a lane's connection.
type laneConn struct {
	// turn has room for one: who dials, or looks whether there is a connection. Who comes while another dials needs
	// the same connection, and waits no longer than its context.
	turn   chan struct{}
	conn   *rpc.Conn
	closed bool
}

// NewRemote returns the Peer that dial connects to. The connections are the Remote's.
func NewRemote(dial func(ctx context.Context) (*rpc.Conn, error)) *Remote {
	m := &Remote{dial: dial}
	for i := range m.lane {
		m.lane[i].turn = make(chan struct{}, 1)
	}
	return m
}

// Close ends the connections, and all calls.
func (m *Remote) Close() error {
	var errs []error
	for i := range m.lane {
		l := &m.lane[i]
		l.turn <- struct{}{}
		l.closed = true
		if l.conn != nil {
			errs = append(errs, l.conn.Close())
		}
		<-l.turn
	}
	return errors.Join(errs...)
}

// conn returns the lane's connection.
func (m *Remote) conn(ctx context.Context, lane lane) (*rpc.Conn, error) {
	l := &m.lane[lane]
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
	defer func() { <-l.turn }()
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

// judge says what an error of a call means. Whatever is no answer of the node's means that it
// is unreachable.
func judge(err error) error {
	var answer *rpc.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return FromRPC(err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// call makes the call that r describes.
func (m *Remote) call(ctx context.Context, lane lane, method string, r request, decode func(*wire.Decoder)) error {
	r.shape = shapeOf[method]
	return m.callWith(ctx, lane, method, r.append, decode)
}

// callWith makes a call with the parameters that params writes.
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
	return judge(err)
}

// send makes a call of a stream.
func (m *Remote) send(ctx context.Context, method string, r request, done func(*wire.Decoder, error)) {
	r.shape = shapeOf[method]
	conn, err := m.conn(ctx, laneStreams)
	if err != nil {
		done(nil, err)
		return
	}
	err = conn.Go(ctx, method, r.append, func(d *wire.Decoder, err error) { done(d, judge(err)) })
	if err != nil {
		done(nil, judge(err))
	}
}

// Begin implements Extents. Like Piece and Seal it may dial, and waits while the
// connection has too much unsent; ctx bounds that.
func (m *Remote) Begin(ctx context.Context, b Begin, done func(error)) {
	r := request{stream: b.Stream, extent: b.Extent, offset: b.Offset, nodes: b.Chain, vital: b.Vital}
	m.send(ctx, MethodBegin, r, func(_ *wire.Decoder, err error) { done(err) })
}

// Piece implements Extents. p is free again when it returns.
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
			err = judge(d.Err())
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
		return nil, fmt.Errorf("%w: asked of %d extents, told of %d", ErrUnreachable, len(xs), len(all))
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
