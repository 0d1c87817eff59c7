package node

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// subject is the peer of a connection, or the principal for which another node forwards a request.
type subject struct {
	// peer is the identity in the certificate.
	peer pki.Peer
	from string    // host:port
	conn *pki.Conn // nil for a forwarded request
	// forwarded is set for a forwarded request.
	forwarded bool
	// credentialToken is the access token used on a connection without a client certificate.
	credentialToken atomic.Pointer[credentialToken]
	// asking is set while rights are looked up for a call that must not wait for them.
	asking atomic.Bool
	// recentView caches views used on the connection, by table id.
	recentView [4]atomic.Pointer[recentView]
}

// credentialToken is a verified access token.
type credentialToken struct {
	record *token.AccessRecord
	// seen is the ticket at which its record was last read.
	seen atomic.Pointer[acl.Ticket]
}

// recentView is a view and the ticket at which it was valid.
type recentView struct {
	view   *acl.View
	ticket acl.Ticket
}

// identify returns the subject of a connection, for rpc.Peer.
func identify(c net.Conn) any {
	conn := c.(*pki.Conn)
	return &subject{peer: conn.Peer, from: c.RemoteAddr().String(), conn: conn}
}

// subjectOf returns the subject of a call; nil on an open node.
func subjectOf(c *rpc.Call) *subject {
	caller, _ := c.Identity().(*subject)
	return caller
}

// identity returns the peer that the subject acts as: the principal of its access token, if any. That peer ends only with the token's
// record.
func (s *subject) identity() pki.Peer {
	if t := s.credentialToken.Load(); t != nil {
		return pki.Peer{Kind: pki.Principal, Name: t.record.Principal, Generation: t.record.Generation, Cluster: s.peer.Cluster, Serial: t.record.ID.String()}
	}
	return s.peer
}

// principal returns the principal's name and generation, and its access token, if any.
func (s *subject) principal() (name string, generation uint64, t *credentialToken) {
	if t := s.credentialToken.Load(); t != nil {
		return t.record.Principal, t.record.Generation, t
	}
	return s.peer.Name, s.peer.Generation, nil
}

type subjectKey struct{}

// withSubject stores a restricted subject in ctx.
func withSubject(ctx context.Context, caller *subject) context.Context {
	if !caller.restricted() {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, caller)
}

// subjectIn returns the restricted subject of ctx, or nil.
func subjectIn(ctx context.Context) *subject {
	caller, _ := ctx.Value(subjectKey{}).(*subject)
	return caller
}

// ownerOf returns the owner whose share of the node's workers the requests of a connection use.
func ownerOf(p *rpc.Peer) string {
	caller, _ := p.Identity.(*subject)
	if name := caller.owner(); name != "" || !caller.restricted() {
		return name
	}
	return anonymousOwner
}

// anonymousOwner is the owner of requests without a credential. No principal has that name.
const anonymousOwner = "(anonymous)"

// restricted reports whether the subject's rights are checked. Nodes have all rights.
func (s *subject) restricted() bool { return s != nil && s.peer.Kind != pki.Node }

// owner returns the name under which resources of the subject are counted: empty for nodes and on open nodes.
func (s *subject) owner() string {
	if !s.restricted() {
		return ""
	}
	return s.identity().Name
}

// errStranger is the error for clients without a credential.
var errStranger = &api.IdentityError{Reason: api.IdentityNone, Text: "the connection has no credential: use a certificate of the cluster, or an access token"}
