package authz

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

// Subject is the peer of a connection, or the principal for which another node forwards a request.
type Subject struct {
	// Peer is the identity in the certificate.
	Peer pki.Peer
	From string    // host:port
	Conn *pki.Conn // nil for a forwarded request
	// Forwarded is set for a forwarded request.
	Forwarded bool
	// CredentialToken is the access token used on a connection without a client certificate.
	CredentialToken atomic.Pointer[CredentialToken]
	// ActsFor is the principal for which a node uses the connection (package actfor); nil for all other connections.
	ActsFor atomic.Pointer[Subject]
	// Asking is set while rights are looked up for a call that must not wait for them.
	Asking atomic.Bool
	// recentView caches views used on the connection, by table id.
	recentView [4]atomic.Pointer[recentView]
}

// CredentialToken is a verified access token.
type CredentialToken struct {
	Record *token.AccessRecord
	// Seen is the ticket at which its record was last read.
	Seen atomic.Pointer[acl.Ticket]
}

// recentView is a view and the ticket at which it was valid.
type recentView struct {
	view   *acl.View
	ticket acl.Ticket
}

// Identify returns the subject of a connection, for rpc.Peer.
func Identify(c net.Conn) any {
	conn := c.(*pki.Conn)
	return &Subject{Peer: conn.Peer, From: c.RemoteAddr().String(), Conn: conn}
}

// SubjectOf returns the subject of a call; nil on an open node.
func SubjectOf(c *rpc.Call) *Subject { return Acting(c.Identity()) }

// Acting returns the subject behind an identity: the principal for which a node uses the connection, if any.
func Acting(identity any) *Subject {
	caller, _ := identity.(*Subject)
	if caller != nil {
		if principal := caller.ActsFor.Load(); principal != nil {
			return principal
		}
	}
	return caller
}

// Identity returns the peer that the subject acts as: the principal of its access token, if any. That peer ends only with the token's
// record.
func (s *Subject) Identity() pki.Peer {
	if t := s.CredentialToken.Load(); t != nil {
		return pki.Peer{Kind: pki.Principal, Name: t.Record.Principal, Generation: t.Record.Generation, Cluster: s.Peer.Cluster, Serial: t.Record.ID.String()}
	}
	return s.Peer
}

// Principal returns the principal's name and generation, and its access token, if any.
func (s *Subject) Principal() (name string, generation uint64, t *CredentialToken) {
	if t := s.CredentialToken.Load(); t != nil {
		return t.Record.Principal, t.Record.Generation, t
	}
	return s.Peer.Name, s.Peer.Generation, nil
}

type subjectKey struct{}

// WithSubject stores a restricted subject in ctx.
func WithSubject(ctx context.Context, caller *Subject) context.Context {
	if !caller.Restricted() {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, caller)
}

// SubjectIn returns the restricted subject of ctx, or nil.
func SubjectIn(ctx context.Context) *Subject {
	caller, _ := ctx.Value(subjectKey{}).(*Subject)
	return caller
}

// OwnerOf returns the owner whose share of the node's workers the requests of a connection use.
func OwnerOf(p *rpc.Peer) string {
	caller := Acting(p.Identity)
	if name := caller.Owner(); name != "" || !caller.Restricted() {
		return name
	}
	return AnonymousOwner
}

// AnonymousOwner is the owner of requests without a credential. No principal has that name.
const AnonymousOwner = "(anonymous)"

// OpenClients is the owner of what the clients of an open cluster hold: they are not distinguished. No principal has that name.
const OpenClients = "(clients)"

// Restricted reports whether the subject's rights are checked. Nodes have all rights.
func (s *Subject) Restricted() bool { return s != nil && s.Peer.Kind != pki.Node }

// Owner returns the name under which resources of the subject are counted: empty for nodes and on open nodes.
func (s *Subject) Owner() string {
	if !s.Restricted() {
		return ""
	}
	return s.Identity().Name
}

// ErrStranger is the error for clients without a credential.
var ErrStranger = &api.IdentityError{Reason: api.IdentityNone, Text: "the connection has no credential: use a certificate of the cluster, or an access token"}
