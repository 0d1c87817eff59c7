// Package peers has the connections of a node to the others: one to each that it calls, opened on demand and replaced when the node's
// address changes. It starts no goroutine.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// Set caches a connection to each node that this one calls.
type Set struct {
	// Resolve returns the current address of a node.
	Resolve func(id string) (string, bool)
	Dial    func(ctx context.Context, id string) (*rpc.Conn, error)
	// mu guards the fields in it. Never held while dialing.
	mu struct {
		sync.Mutex
		conns  map[string]peerConn
		closed bool
	}
}

type peerConn struct {
	addr string
	conn *rpc.Conn
}

// An UnreachableError means that a node was not called, because no connection to it could be made. It is an api.ErrUnavailable.
type UnreachableError struct {
	node, addr string
	err        error
}

func (e *UnreachableError) Error() string {
	err := e.err
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // the remainder is the address
	}
	return fmt.Sprintf("node %s does not answer at %s: %v", e.node, e.addr, err)
}

func (e *UnreachableError) Unwrap() error        { return e.err }
func (e *UnreachableError) Is(target error) bool { return target == api.ErrUnavailable }

// Call calls a method of a node. The error is an *UnreachableError, that of the connection, or an *rpc.Error from the node.
func (p *Set) Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error {
	addr, known := p.Resolve(id)
	if !known {
		return fmt.Errorf("%w: it is not known where node %s is", api.ErrUnavailable, id)
	}
	conn, err := p.conn(ctx, id, addr)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &UnreachableError{id, addr, err}
	}
	return conn.Call(ctx, method, params, result)
}

func (p *Set) conn(ctx context.Context, id, addr string) (*rpc.Conn, error) {
	p.mu.Lock()
	have, ok := p.mu.conns[id]
	p.mu.Unlock()
	if ok && have.addr == addr && have.conn.Err() == nil {
		return have.conn, nil
	}
	fresh, err := p.Dial(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.keep(id, peerConn{addr, fresh})
}

// keep stores a new connection and closes the old one. If another goroutine has stored one meanwhile, it closes the new connection
// and returns that one.
func (p *Set) keep(id string, c peerConn) (*rpc.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, ok := p.mu.conns[id]
	switch {
	case p.mu.closed:
		_ = c.conn.Close()
		return nil, rpc.ErrServerClosed
	case ok && have.addr == c.addr && have.conn.Err() == nil:
		_ = c.conn.Close()
		return have.conn, nil
	case ok:
		_ = have.conn.Close()
	}
	if p.mu.conns == nil {
		p.mu.conns = map[string]peerConn{}
	}
	p.mu.conns[id] = c
	return c.conn, nil
}

// Close closes all connections, and prevents new ones.
func (p *Set) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, c := range p.mu.conns {
		_ = c.conn.Close()
	}
	p.mu.conns = nil
}
