package api

import (
	"context"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// Remote is the client of another node's Peer. It dials on first use, and again after a connection
// is lost. It is safe for concurrent use.
type Remote struct{ conns conns }

// NewRemote returns the client of the Peer that dial connects to. It owns the connections.
func NewRemote(dial func(ctx context.Context) (*rpc.Conn, error)) *Remote {
	m := &Remote{}
	m.conns.init(dial)
	return m
}

// Close closes the connections, which fails all calls.
func (m *Remote) Close() error { return m.conns.close() }

// call calls a method of extents with the parameters r.
func (m *Remote) call(ctx context.Context, lane lane, method string, r request, decode func(*wire.Decoder)) error {
	r.shape = shapeOf[method]
	return m.conns.call(ctx, lane, method, r.append, decode)
}

// send calls a method of a stream.
func (m *Remote) send(ctx context.Context, method string, r request, done func(*wire.Decoder, error)) {
	r.shape = shapeOf[method]
	m.conns.start(ctx, laneStreams, method, r.append, done)
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
	return readExtent(ctx, m, request{extent: ref.Extent, crc: ref.CRC, offset: off, count: len(p)}, p)
}

// ReadToCopy implements Extents.
func (m *Remote) ReadToCopy(ctx context.Context, ref Ref, p []byte, off int64) error {
	return readExtent(ctx, m, request{extent: ref.Extent, crc: ref.CRC, offset: off, count: len(p), toCopy: true}, p)
}

func readExtent(ctx context.Context, m *Remote, r request, p []byte) error {
	if len(p) > PieceBytesMax {
		return badBytes(len(p))
	}
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
