package bigtableport

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"sync"
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

	// token has the hash of the token with which the connection was authenticated last. Only Authenticate uses it.
	token [sha256.Size]byte
	// identity is that of the last call; nil before the first, and on an open node.
	identity atomic.Pointer[identity]

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		closed  bool
		of      actfor.Principal // whose client it is
		client  *client.Client   // for rows; nil before its first use
		release func()           // of client
	}
}

// identity is an authenticated subject.
type identity struct {
	subject   *authz.Subject
	principal actfor.Principal // with the address of the port
}

// caller returns the caller of a connection.
func (p *Port) caller(nc net.Conn) server.Caller {
	conn, _ := nc.(*pki.Conn)
	return &caller{port: p, conn: conn, from: nc.RemoteAddr().String()}
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
		if c.identity.Load() == nil {
			c.become(&authz.Subject{Peer: c.conn.Peer, From: c.from})
		}
	case pki.Node:
		return &api.IdentityError{Reason: api.IdentityNone, Text: "the certificate is that of a node: use one of a user, or an access token"}
	default:
		return authz.ErrStranger
	}
	if c.port.cfg.Authz.Rights.RefusedNow(c.conn.Peer) {
		return &api.IdentityError{Reason: api.IdentityRevoked, Text: "credential was revoked: request a new one"}
	}
	return nil
}

// useToken authenticates the connection by a token, unless the call before had the same one.
func (c *caller) useToken(ctx context.Context, text string) error {
	hash, before := sha256.Sum256([]byte(text)), c.identity.Load()
	if before != nil && c.token != ([sha256.Size]byte{}) && subtle.ConstantTimeCompare(hash[:], c.token[:]) == 1 {
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
	c.token = hash
	c.become(s)
	return nil
}

func (c *caller) become(s *authz.Subject) {
	c.identity.Store(&identity{s, actfor.PrincipalOf(s, c.port.Addr())})
}

// stillValid returns an error if it is known, without a wait, that a subject's token is no longer valid. The nodes that execute its calls check it
// in any case.
func (p *Port) stillValid(s *authz.Subject) error {
	if err := s.CredentialToken.Load().Record.Valid(time.Now()); err != nil {
		return p.cfg.Authz.Rights.Recode(err)
	}
	if p.cfg.Authz.Rights.RefusedNow(s.Identity()) {
		return &api.IdentityError{Reason: api.IdentityRevoked, Text: "credential was revoked: request a new one"}
	}
	return nil
}

// data returns the client for rows. The connections of one credential share it, so the audit log has the address of the port for it. Errors: those of
// actfor.Clients.Hold.
func (c *caller) data(ctx context.Context) (*client.Client, error) {
	var p actfor.Principal
	if is := c.identity.Load(); is != nil {
		p = is.principal
	}
	c.mu.Lock()
	held := c.mu.client
	if c.mu.of != p {
		held = nil
	}
	c.mu.Unlock()
	if held != nil {
		return held, nil
	}
	held, release, err := c.port.clients.Hold(ctx, p)
	if err != nil {
		return nil, err
	}
	c.keep(p, held, release)
	return held, nil
}

// keep holds a client until the connection is closed or has another credential.
func (c *caller) keep(p actfor.Principal, held *client.Client, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed || c.mu.client == held {
		release()
		return
	}
	if c.mu.release != nil {
		c.mu.release()
	}
	c.mu.of, c.mu.client, c.mu.release = p, held, release
}

// admin returns the client for other calls until ctx, that of a call, ends. The audit log has the caller's host for it. Errors: those of
// actfor.Clients.Hold.
func (c *caller) admin(ctx context.Context) (*client.Client, error) {
	var p actfor.Principal
	if is := c.identity.Load(); is != nil {
		p = is.principal
		p.From = net.JoinHostPort(advertise.Host(c.from), "0")
	}
	held, release, err := c.port.clients.Hold(ctx, p)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, release)
	return held, nil
}

// Close implements server.Caller.
func (c *caller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	if c.mu.release != nil {
		c.mu.release()
		c.mu.release = nil
	}
}
