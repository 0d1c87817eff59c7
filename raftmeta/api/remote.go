package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// Remote returns the Service at the other end of conn. The caller keeps ownership of conn. Errors
// are those of the Service, and in addition:
//
//   - ErrNotReady, wrapping the connection's error, if a call was not sent, or if the connection
//     was lost during a read.
//   - ErrOutcomeUnknown, wrapping the reason, if a change was sent and not answered.
//
// The done callback of KeepAlive runs on the connection's reader, or on the goroutine that closes
// the connection.
func Remote(conn *rpc.Conn) Service { return &remote{conn: conn} }

// RemoteForNode is Remote for a node of the cluster: each change identifies its caller as a node.
// See SystemFileError.
func RemoteForNode(conn *rpc.Conn) Service { return &remote{conn: conn, node: true} }

type remote struct {
	conn *rpc.Conn
	node bool
}

// call sends r to method and decodes the answer.
func (m *remote) call(ctx context.Context, method string, r request, decode func(*wire.Decoder)) error {
	r.shape, r.node = shapeOf[method], m.node
	err := m.conn.Call(ctx, method, r.append, func(d *wire.Decoder) error {
		if decode != nil {
			decode(d)
		}
		return d.Err()
	})
	return r.callError(err)
}

// callError converts the error of a call to the error that the caller sees.
func (s *shape) callError(err error) error {
	var answer *rpc.Error
	var lost *rpc.ConnLostError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		if s.change && unknownOutcome(answer) {
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return FromRPC(err)
	case errors.Is(err, rpc.ErrRequestTooLarge):
		return err
	case errors.As(err, &lost):
		if s.change && lost.Sent {
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	case s.change:
		// The context ended, or the answer could not be decoded.
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

func (m *remote) OpenSession(ctx context.Context, name string, lease time.Duration) (SessionID, time.Duration, error) {
	var o opened
	err := m.call(ctx, MethodOpenSession, request{name: name, lease: lease}, o.decode)
	return o.session, o.lease, err
}

func (m *remote) KeepAlive(ctx context.Context, req KeepAliveRequest, done func(KeepAliveResponse, error)) {
	r := request{shape: shapeOf[MethodKeepAlive], session: req.Session, term: req.Term, acked: req.Acked, hang: req.Hang}
	err := m.conn.Go(ctx, r.method, r.append, func(d *wire.Decoder, err error) {
		var resp KeepAliveResponse
		if err == nil {
			decodeKeepAlive(d, &resp)
			err = d.Err()
		}
		done(resp, r.callError(err))
	})
	if err != nil {
		done(KeepAliveResponse{}, r.callError(err))
	}
}

func (m *remote) CloseSession(ctx context.Context, s SessionID) error {
	return m.call(ctx, MethodCloseSession, request{session: s}, nil)
}

func (m *remote) Get(ctx context.Context, path string, s SessionID) (f File, perm CachePermission, err error) {
	err = m.call(ctx, MethodGet, request{path: path, session: s}, func(d *wire.Decoder) { decodeStat(d, &f, &perm) })
	return f, perm, err
}

func (m *remote) GetStale(ctx context.Context, path string) (f File, err error) {
	err = m.call(ctx, MethodGet, request{path: path, stale: true}, func(d *wire.Decoder) { decodeStat(d, &f, &CachePermission{}) })
	return f, err
}

func (m *remote) Stat(ctx context.Context, path string) (Stat, error) {
	var f File
	err := m.call(ctx, MethodStat, request{path: path}, func(d *wire.Decoder) { decodeStat(d, &f, &CachePermission{}) })
	return f.Stat, err
}

func (m *remote) List(ctx context.Context, dir string) (all []Stat, err error) {
	err = m.call(ctx, MethodList, request{path: dir}, func(d *wire.Decoder) { all = decodeStats(d) })
	return all, err
}

func (m *remote) ReadDirectory(ctx context.Context, dir string, o DirectoryOptions) (p DirectoryPage, err error) {
	r := request{path: dir, since: o.Since, after: o.After}
	err = m.call(ctx, MethodReadDirectory, r, func(d *wire.Decoder) { decodeDirectoryPage(d, &p) })
	return p, err
}

func (m *remote) Set(ctx context.Context, path string, data []byte, gen uint64, o SetOptions) (made uint64, err error) {
	if len(data) > FileBytesMax {
		return 0, &TooLargeError{What: LimitFile, Limit: FileBytesMax, Got: int64(len(data))}
	}
	r := request{path: path, data: data, generation: gen, session: o.Session, ephemeral: o.Ephemeral, guard: o.Guard, owner: o.Owner, absentSince: o.AbsentSince,
		from: o.From, fromGeneration: o.FromGeneration}
	err = m.call(ctx, MethodSet, r, func(d *wire.Decoder) { made = d.Uint() })
	return made, err
}

func (m *remote) Delete(ctx context.Context, path string, gen uint64, o SetOptions) error {
	return m.call(ctx, MethodDelete, request{path: path, generation: gen, session: o.Session, guard: o.Guard}, nil)
}

func (m *remote) SetACL(ctx context.Context, path, acl string, o SetOptions) (gen uint64, err error) {
	r := request{path: path, acl: acl, session: o.Session, guard: o.Guard}
	err = m.call(ctx, MethodSetACL, r, func(d *wire.Decoder) { gen = d.Uint() })
	return gen, err
}

func (m *remote) Acquire(ctx context.Context, s SessionID, path string, mode Mode, wait, delay time.Duration) (g Grant, err error) {
	r := request{session: s, path: path, mode: mode, wait: wait, delay: delay}
	err = m.call(ctx, MethodAcquire, r, func(d *wire.Decoder) { decodeGrant(d, &g) })
	return g, err
}

func (m *remote) Release(ctx context.Context, s SessionID, path string, hold uint64) error {
	return m.call(ctx, MethodRelease, request{session: s, path: path, hold: hold}, nil)
}

func (m *remote) CheckSequencer(ctx context.Context, q Sequencer) error {
	return m.call(ctx, MethodCheckSequencer, request{sequencer: q}, nil)
}

func (m *remote) Watch(ctx context.Context, s SessionID, path string, kinds EventKind, gen uint64) (n uint64, err error) {
	r := request{session: s, path: path, kinds: kinds, seen: gen}
	err = m.call(ctx, MethodWatch, r, func(d *wire.Decoder) { n = d.Uint() })
	return n, err
}

func (m *remote) Unwatch(ctx context.Context, s SessionID, path string, watch uint64) error {
	return m.call(ctx, MethodUnwatch, request{session: s, path: path, watch: watch}, nil)
}
