package server

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/gateway/errcode"
)

// Anonymous is the owner of a connection whose caller has not been authenticated.
const Anonymous = "(anonymous)"

// Caller is the peer of a connection. Its methods may be called at the same time.
type Caller interface {
	// Owner returns the owner against whose share the connection is counted before its first call: Anonymous if that is not known yet. ""
	// has no bound.
	Owner() string
	// Authenticate verifies the credential of a call: the connection's own, or an access token, which is empty if the call has none. It
	// returns the owner of the connection. It is called before the request is received. Its errors become statuses.
	Authenticate(ctx context.Context, token string) (owner string, err error)
	// Close is called once, when the connection is closed. Calls of the connection may still run.
	Close()
}

// CallerOf returns the caller in the context of a call; nil without Config.Caller.
func CallerOf(ctx context.Context) Caller { return connOf(ctx).caller }

// connInfo carries a connection through grpc-go to the contexts of its calls.
type connInfo struct {
	credentials.CommonAuthInfo
	conn *conn
}

// AuthType implements credentials.AuthInfo.
func (connInfo) AuthType() string { return "stele" }

// connOf returns the connection of a call.
func connOf(ctx context.Context) *conn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(connInfo).conn
}

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

// tapped is grpc-go's tap: it adds a call to the context of a stream whose HEADERS frame the connection has read last. It returns no error.
func (m *memory) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := connOf(ctx)
	c.newest.grouped = bigtable.Grouped(info.FullMethodName)
	return context.WithValue(ctx, callKey{}, &call{memory: m, conn: c, stream: c.newest}), nil
}

// admit charges a call, authenticates its caller, and rejects the call if either fails. It is a grpc.StreamServerInterceptor, and runs before
// the request is received (GS3).
func (m *memory) admit(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	k := stream.Context().Value(callKey{}).(*call)
	if !m.begin(k.conn, k.stream) {
		return errcode.Convert(&api.OverloadedError{Reason: "memory of calls", RetryAfter: time.Second}, errcode.Once)
	}
	defer m.end(k.conn, k.stream)
	if k.conn.caller != nil {
		if err := m.authenticate(stream.Context(), k.conn); err != nil {
			return err
		}
	}
	if isCompressed(stream.Context()) {
		return errCompressed
	}
	k.ServerStream, k.ctx = stream, traced(stream.Context())
	defer k.end()
	return handler(srv, k)
}

// traced returns a context in which what a call does belongs to the trace in its header traceparent, if it has one.
func traced(ctx context.Context) context.Context {
	if headers := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(headers) == 1 {
		ctx, _ = client.WithTraceparent(ctx, headers[0])
	}
	return ctx
}

// errCompressed rejects compressed requests: a few bytes, which are charged, could become as many as a request may have.
var errCompressed = errcode.Unimplemented("Compressed requests are not supported: send them without grpc-encoding.")

// isCompressed reports whether the requests of a stream are compressed. Compressors are registered for the whole process, by any package.
func isCompressed(ctx context.Context) bool {
	stream, _ := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if stream == nil {
		return false
	}
	name := stream.RecvCompress()
	return name != "" && name != encoding.Identity
}

// call is a call. The fields after stream are set when it is admitted.
type call struct {
	memory *memory
	conn   *conn
	stream *stream
	grpc.ServerStream
	ctx context.Context
	// received is the number of bytes of the last message in DATA frames.
	received int64
	// decoded releases the memory that the last message takes beyond what it was charged when it was received; nil for none.
	decoded func()
	// kept is what Keep has got for key.
	key, kept any
	release   func()
}

type callKey struct{}

// Context implements grpc.ServerStream.
func (k *call) Context() context.Context { return k.ctx }

// RecvMsg implements grpc.ServerStream. It decodes a message with memory for it. Errors: statuses, io.EOF.
func (k *call) RecvMsg(to any) error {
	k.forget()
	m, ok := to.(proto.Message)
	if !ok {
		return k.ServerStream.RecvMsg(to)
	}
	r := bigtable.Received{Most: k.memory.mostReceived()}
	if err := k.ServerStream.RecvMsg(&r); err != nil {
		return err
	}
	defer r.Free()
	k.received = messagePrefixBytes + r.Bytes()
	release, err := r.Decode(k.ctx, m, k.memory.mostDecoded(), k.memory.reserve)
	k.decoded = release
	return err
}

// forget releases what the last message takes.
func (k *call) forget() {
	k.forgetDecoded()
	if k.received > 0 {
		k.memory.consumed(k.conn, k.stream, k.received)
		k.received = 0
	}
}

func (k *call) forgetDecoded() {
	if k.decoded != nil {
		k.decoded()
		k.decoded = nil
	}
}

// end releases what is not charged to the stream.
func (k *call) end() {
	k.forgetDecoded()
	if k.release != nil {
		k.release()
	}
}

// Keep returns what a call, in its context, uses for a key until it ends. It calls get unless the last Keep of the call had the same key, and
// releases what it had for another. Its caller is the goroutine of the call. Errors: those of get.
func Keep[T any](ctx context.Context, key any, get func() (v T, release func(), err error)) (T, error) {
	k := ctx.Value(callKey{}).(*call)
	if k.key == key && k.release != nil {
		return k.kept.(T), nil
	}
	v, release, err := get()
	if err != nil {
		return v, err
	}
	if k.release != nil {
		k.release()
	}
	k.key, k.kept, k.release = key, v, release
	return v, nil
}

// authenticate authenticates the caller of a call. Its errors are statuses.
func (m *memory) authenticate(ctx context.Context, c *conn) error {
	md, _ := metadata.FromIncomingContext(ctx)
	token, err := bearer(md.Get("authorization"))
	if err != nil {
		return err
	}
	owner, err := c.caller.Authenticate(ctx, token)
	if err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	if !m.own(c, owner) {
		time.AfterFunc(closeDelay, func() { _ = c.Close() })
		return status.Error(codes.ResourceExhausted, "this user has too many connections to the node: use fewer, each of which carries many calls")
	}
	return nil
}

// closeDelay is how long a connection that is in excess stays open, so that its client learns the reason.
const closeDelay = time.Second

// wantToken is the text for a header that has no token.
const wantToken = `want one header "authorization: Bearer TOKEN", with an access token of a file that "stele user add NAME --token" has written`

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
