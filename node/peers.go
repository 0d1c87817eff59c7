package node

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

// peers caches a connection to each node that this one calls.
type peers struct {
	// resolve returns the current address of a node.
	resolve func(id string) (string, bool)
	dial    func(ctx context.Context, id string) (*rpc.Conn, error)
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

// methodIdentity returns a node's cluster and id. The node at an address may have been replaced by another one.
const methodIdentity = "cluster.who"

func (n *Node) handleIdentity() {
	n.rpc.Handle(methodIdentity, rpc.Inline, func(c *rpc.Call) {
		c.Reply(func(e *wire.Encoder) {
			e.Array(2)
			e.Str(n.cluster())
			e.Str(n.id())
		})
	})
}

// dialNode connects to a node, and verifies that it is that node.
func (n *Node) dialNode(ctx context.Context, id string) (*rpc.Conn, error) {
	addr, known := n.addressOf(id)
	if !known {
		return nil, fmt.Errorf("address of node %s is unknown", id)
	}
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: n.security.dialer(id)})
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", id, addr, err)
	}
	var cluster, caller string
	err = conn.Call(ctx, methodIdentity, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		d.Array()
		cluster, caller = d.Str(), d.Str()
		return d.Err()
	})
	switch {
	case err != nil:
		err = fmt.Errorf("identify the node at %s: %w", addr, err)
	case cluster != n.cluster() || caller != id:
		err = fmt.Errorf("node at %s is %s of cluster %q, want %s", addr, caller, cluster, id)
	default:
		return conn, nil
	}
	_ = conn.Close()
	return nil, err
}

// An unreachableError means that a node was not called, because no connection to it could be made. It is an api.ErrUnavailable.
type unreachableError struct {
	node, addr string
	err        error
}

func (e *unreachableError) Error() string {
	err := e.err
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // the remainder is the address
	}
	return fmt.Sprintf("node %s does not answer at %s: %v", e.node, e.addr, err)
}

func (e *unreachableError) Unwrap() error        { return e.err }
func (e *unreachableError) Is(target error) bool { return target == api.ErrUnavailable }

// call calls a method of a node. The error is an *unreachableError, that of the connection, or an *rpc.Error from the node.
func (p *peers) call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error {
	addr, known := p.resolve(id)
	if !known {
		return fmt.Errorf("%w: it is not known where node %s is", api.ErrUnavailable, id)
	}
	conn, err := p.conn(ctx, id, addr)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &unreachableError{id, addr, err}
	}
	return conn.Call(ctx, method, params, result)
}

func (p *peers) conn(ctx context.Context, id, addr string) (*rpc.Conn, error) {
	p.mu.Lock()
	have, ok := p.mu.conns[id]
	p.mu.Unlock()
	if ok && have.addr == addr && have.conn.Err() == nil {
		return have.conn, nil
	}
	fresh, err := p.dial(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.keep(id, peerConn{addr, fresh})
}

// keep stores a new connection and closes the old one. If another goroutine has stored one meanwhile, it closes the new connection
// and returns that one.
func (p *peers) keep(id string, c peerConn) (*rpc.Conn, error) {
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

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, c := range p.mu.conns {
		_ = c.conn.Close()
	}
	p.mu.conns = nil
}
