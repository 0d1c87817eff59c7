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

// methodAuth authenticates a connection without a client certificate by an access token.
const methodAuth = "auth"

func (c Config) hasToken() bool { return c.Token.Kind() != 0 }

// checkIdentity checks Credential and Token.
func (c Config) checkIdentity() error {
	switch {
	case c.Credential != nil && c.hasToken():
		return errors.New("credential and token are both set")
	case c.hasToken() && c.Token.Kind() != token.Access:
		return fmt.Errorf("token is for a %s, want one for access", c.Token.Kind())
	}
	return nil
}

// identityRejected reports whether a dial failed because the client or the node does not accept the
// identity of the other. A retry does not help.
func identityRejected(err error) bool {
	var plain tls.RecordHeaderError
	return errors.Is(err, rpc.ErrWantsTLS) || errors.Is(err, ErrUnauthenticated) || pki.IsAlert(err) || errors.As(err, &plain) ||
		errors.Is(err, pki.ErrOtherCluster) || errors.Is(err, pki.ErrUntrusted) || errors.Is(err, pki.ErrNotNode)
}

// NotRPC reports whether a dial failed because another protocol is spoken at the address: it may be another port of a node.
func NotRPC(err error) bool {
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) {
		h := plain.RecordHeader
		return string(h[:]) == "HTTP/" || h[0] == 0 && h[3] == 4 // HTTP/1, or the settings with which a server of HTTP/2 begins
	}
	return errors.Is(err, rpc.ErrPreamble)
}

// secured returns a dialer that uses plain, connects only to nodes of the cluster, and
// authenticates the client if it has a certificate. Without an identity it returns plain.
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

// Authorities returns the authorities that sign the cluster's certificates, for programs that connect
// to nodes by other means: those in Credential, or, with Token, the one that has signed the
// certificate of the node at addr. Errors: those of the network and of TLS; ErrNoTLS without an
// identity.
func (c Config) Authorities(ctx context.Context, addr string) (*pki.Trust, error) {
	if c.Credential != nil {
		return c.Credential.Trust(), nil
	}
	if !c.hasToken() {
		return nil, ErrNoTLS
	}
	nc, err := Config{Dial: c.Dial}.withDefaults().Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	var trust *pki.Trust
	pinned := pki.DialPinned(c.Token.Authority(), nil, func(t *pki.Trust) { trust = t })
	return trust, tls.Client(nc, pinned).HandshakeContext(ctx)
}

// Connect opens one authenticated connection to the node at addr, for calls that Client has no
// methods for, such as those of the lock service. Errors: those of rpc.Dial and of TLS;
// *IdentityError.
func (c Config) Connect(ctx context.Context, addr string) (*rpc.Conn, error) {
	if err := c.checkIdentity(); err != nil {
		return nil, err
	}
	return c.withDefaults().connect(ctx, addr)
}

// connect is Connect with the defaults filled in.
func (c Config) connect(ctx context.Context, addr string) (*rpc.Conn, error) {
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: c.Dial, SilenceMax: c.SilenceMax, MessageBytesMax: c.MessageBytesMax})
	if err != nil {
		return nil, err
	}
	err = c.authenticate(ctx, conn)
	if err == nil && c.Prepare != nil {
		err = c.Prepare(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// authenticate sends the client's token, if it has one, on a new connection. The handshake has
// verified that the node belongs to the cluster that created the token.
func (c Config) authenticate(ctx context.Context, conn *rpc.Conn) error {
	if !c.hasToken() {
		return nil
	}
	err := conn.Call(ctx, methodAuth, func(e *wire.Encoder) {
		e.Array(1)
		e.Str(c.Token.Reveal())
	}, nil)
	if err != nil {
		return fmt.Errorf("authenticate by token: %w", api.FromRPC(err))
	}
	return nil
}
