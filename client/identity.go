package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// methodAuth makes its caller, which has shown no certificate, the principal of a token.
const methodAuth = "auth"

func (c Config) hasToken() bool { return c.Token.Kind() != 0 }

// checkIdentity says what is wrong with how the client proves who it is.
func (c Config) checkIdentity() error {
	switch {
	case c.Credential != nil && c.hasToken():
		return errors.New("both a credential and a token: want one")
	case c.hasToken() && c.Token.Kind() != token.Access:
		return fmt.Errorf("token is for a %s, want one for access", c.Token.Kind())
	}
	return nil
}

// unknownHere tells whether a dial failed since the client does not take the node for one of
// its cluster, or the node not the client for one of its own: trying again does not help.
func unknownHere(err error) bool {
	var plain tls.RecordHeaderError
	return errors.Is(err, rpc.ErrWantsTLS) || errors.Is(err, ErrUnauthenticated) || pki.IsAlert(err) || errors.As(err, &plain) ||
		errors.Is(err, pki.ErrOtherCluster) || errors.Is(err, pki.ErrUntrusted) || errors.Is(err, pki.ErrNotNode)
}

// secured returns a dialer that, by one of plain, connects to nodes of the cluster alone
// and shows who the client is, if it is to.
func (c Config) secured(plain func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	var shake func(context.Context, net.Conn) (net.Conn, error)
	switch {
	case c.Credential != nil:
		e := pki.NewEndpoint(c.Credential, pki.Options{})
		shake = func(ctx context.Context, nc net.Conn) (net.Conn, error) { return e.Over(ctx, "", nc) }
	case c.hasToken():
		pinned := pki.DialPinned(c.Token.Authority(), nil, nil)
		shake = func(ctx context.Context, nc net.Conn) (net.Conn, error) {
			t := tls.Client(nc, pinned)
			if err := t.HandshakeContext(ctx); err != nil {
				_ = nc.Close()
				return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
			}
			return t, nil
		}
	default:
		return plain
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := plain(ctx, addr)
		if err != nil {
			return nil, err
		}
		conn, err := shake(ctx, nc)
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) {
			err = fmt.Errorf("%w: %w", ErrNoTLS, err)
		}
		return conn, err
	}
}

// Connect makes one connection to the node at addr, which knows on it who the client is: for what Client has no
// methods for, such as the lock service. Errors: those of rpc.Dial, and of TLS; *IdentityError.
func (c Config) Connect(ctx context.Context, addr string) (*rpc.Conn, error) {
	if err := c.checkIdentity(); err != nil {
		return nil, err
	}
	return c.withDefaults().connect(ctx, addr)
}

// connect is Connect, defaults filled in.
func (c Config) connect(ctx context.Context, addr string) (*rpc.Conn, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: c.Dial, SilenceMax: c.SilenceMax})
	if err != nil {
		return nil, err
	}
	if err := c.authenticate(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// authenticate shows the client's token, if it has one, on a new connection: which is to
// a node of the cluster that made the token, and so may have it.
func (c Config) authenticate(ctx context.Context, conn *rpc.Conn) error {
	if !c.hasToken() {
		return nil
	}
	err := conn.Call(ctx, methodAuth, func(e *wire.Encoder) {
		e.Array(1)
		e.Str(c.Token.Reveal())
	}, nil)
	if err != nil {
		return fmt.Errorf("show the token: %w", api.FromRPC(err))
	}
	return nil
}
