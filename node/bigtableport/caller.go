package bigtableport

import (
	"context"
	"crypto/sha256"
	"net"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/server"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/security/pki"
)

// method is the name of the port in the audit log.
const method = "bigtable"

// caller is the peer of one connection. It implements server.Caller.
type caller struct {
	port *Port
	conn *pki.Conn // nil on an open node
	from string    // host:port

	// verifying has a place for the call that verifies a token; the others wait.
	verifying chan struct{}
	// identity is that of the last call; nil before the first, and on an open node.
	identity atomic.Pointer[identity]
}

// identity is an authenticated subject.
type identity struct {
	subject   *authz.Subject
	token     [sha256.Size]byte // the hash of its token; 0 for a certificate
	principal actfor.Principal  // with the address of the port
}

// caller returns the caller of a connection.
func (p *Port) caller(nc net.Conn) server.Caller {
	conn, _ := nc.(*pki.Conn)
	return &caller{port: p, conn: conn, from: nc.RemoteAddr().String(), verifying: make(chan struct{}, 1)}
}

// Owner implements server.Caller.
func (c *caller) Owner() string {
	switch {
	case c.conn == nil:
		return ""
	case c.conn.Peer.Kind == pki.Principal:
		return c.conn.Peer.Name
	}
	return server.Anonymous
}

func callerOf(ctx context.Context) *caller { return server.CallerOf(ctx).(*caller) }

// Authenticate implements server.Caller. Errors: *api.IdentityError, those of tokenauth.Service.Authenticate.
func (c *caller) Authenticate(ctx context.Context, token string) (owner string, err error) {
	if c.conn == nil {
		return "", nil
	}
	if err := c.authenticate(ctx, token); err != nil {
		from := &authz.Subject{Peer: c.conn.Peer, From: c.from}
		_ = c.port.cfg.Authz.Refuse(method, from, err) // for the audit log
		return "", err
	}
	return c.identity.Load().subject.Owner(), nil
}

func (c *caller) authenticate(ctx context.Context, token string) error {
	if token != "" {
		return c.useToken(ctx, token)
	}
	switch c.conn.Peer.Kind {
	case pki.Principal:
		if c.identity.Load() == nil { // if two calls do, they store the same
			c.become(&authz.Subject{Peer: c.conn.Peer, From: c.from}, [sha256.Size]byte{})
		}
	case pki.Node:
		return &api.IdentityError{Reason: api.IdentityNone, Text: "the certificate is that of a node: use one of a user, or an access token"}
	default:
		return authz.ErrStranger
	}
	return c.port.cfg.Authz.Rights.RefusedNow(c.conn.Peer)
}

// useToken authenticates the connection by a token, unless the call before had the same one.
func (c *caller) useToken(ctx context.Context, text string) error {
	hash := sha256.Sum256([]byte(text))
	if is := c.identity.Load(); is != nil && is.token == hash {
		return c.port.stillValid(is.subject)
	}
	select {
	case c.verifying <- struct{}{}:
		defer func() { <-c.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before := c.identity.Load()
	if before != nil && before.token == hash {
		return c.port.stillValid(before.subject)
	}
	s := &authz.Subject{Peer: c.conn.Peer, From: c.from}
	if err := c.port.cfg.Tokens.Authenticate(ctx, s, text); err != nil {
		return err
	}
	if before != nil && before.subject.Owner() != s.Owner() {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection is another user's: open another connection"}
	}
	if err := c.conn.Stay(s.Identity(), s.CredentialToken.Load().Record.Ends); err != nil {
		return &api.OverloadedError{Reason: err.Error(), RetryAfter: time.Second}
	}
	c.become(s, hash)
	return nil
}

func (c *caller) become(s *authz.Subject, token [sha256.Size]byte) {
	c.identity.Store(&identity{s, token, actfor.PrincipalOf(s, c.port.Addr())})
}

// stillValid returns an error if it is known, without a wait, that a subject's token is no longer valid. The nodes that execute its calls check it
// in any case.
func (p *Port) stillValid(s *authz.Subject) error {
	if err := s.CredentialToken.Load().Record.Valid(time.Now()); err != nil {
		return p.cfg.Authz.Rights.Recode(err)
	}
	return p.cfg.Authz.Rights.RefusedNow(s.Identity())
}

// client returns the client for a call. Those of one credential share it for rows, so that the audit log has the address of the port for them;
// for an administrator's call it has the caller's host. Errors: those of actfor.Clients.Hold.
func (c *caller) client(ctx context.Context, administrates bool) (*client.Client, error) {
	var p actfor.Principal
	if is := c.identity.Load(); is != nil {
		if p = is.principal; administrates {
			p.From = net.JoinHostPort(advertise.Host(c.from), "0")
		}
	}
	return server.Keep(ctx, p, func() (*client.Client, func(), error) { return c.port.clients.Hold(ctx, p) })
}

// Close implements server.Caller.
func (c *caller) Close() {}
