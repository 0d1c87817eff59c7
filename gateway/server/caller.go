package server

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
)

// Caller is the peer of a connection.
type Caller interface {
	// Authenticate verifies the credential of a call: the connection's own, or an access token, which is empty if the call has none. It
	// returns the owner against whose share of the memory the connection is counted; "" has no bound. It is called before the request is
	// received, one call at a time; the connection waits for it. Its errors become statuses.
	Authenticate(ctx context.Context, token string) (owner string, err error)
	// Close is called once, when the connection is closed. Calls of the connection may still run.
	Close()
}

// CallerOf returns the caller in the context of a call; nil without Config.Caller.
func CallerOf(ctx context.Context) Caller {
	if c, _ := ctx.Value(connKey{}).(*conn); c != nil {
		return c.caller
	}
	return nil
}

// connInfo carries a connection through grpc-go to the contexts of its calls.
type connInfo struct {
	credentials.CommonAuthInfo
	conn *conn
}

// AuthType implements credentials.AuthInfo.
func (connInfo) AuthType() string { return "stele" }

// connCredentials are the credentials of connections that a listener returned. The TLS handshake is over by then.
type connCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (connCredentials) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nc, connInfo{conn: nc.(*conn)}, nil
}

// Info implements credentials.TransportCredentials.
func (connCredentials) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (c connCredentials) Clone() credentials.TransportCredentials { return c }

// TagConn implements stats.Handler.
func (a accountant) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	p, _ := peer.FromContext(ctx)
	return context.WithValue(ctx, connKey{}, p.AuthInfo.(connInfo).conn)
}

// tap authenticates the caller of a call at its first frame, and rejects the call if there is no memory for it.
func (m *memory) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := ctx.Value(connKey{}).(*conn)
	if c.caller != nil {
		token, err := bearer(info.Header.Get("authorization"))
		if err != nil {
			return nil, err
		}
		owner, err := c.caller.Authenticate(ctx, token)
		if err != nil {
			return nil, errcode.Convert(err, errcode.Repeatable)
		}
		if !m.own(c, owner) {
			time.AfterFunc(closeDelay, func() { _ = c.Close() })
			return nil, status.Error(codes.ResourceExhausted, "this user has too many connections to the node: use fewer, each of which carries many calls")
		}
	}
	if m.crowded(c) {
		return nil, errcode.Convert(&api.OverloadedError{Reason: "memory of calls", RetryAfter: time.Second}, errcode.Once)
	}
	return ctx, nil
}

// wantToken is the text for a header that has no token.
const wantToken = `want one header "authorization: Bearer TOKEN", with an access token of a file that "stele user add NAME --token" has written`

// closeDelay is how long a connection that is in excess stays open, so that its client learns the reason.
const closeDelay = time.Second

// bearer returns the token in the authorization headers of a call (RFC 6750), or "" without a header. Errors: a status.
func bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", status.Error(codes.Unauthenticated, wantToken)
	}
	return token, nil
}
