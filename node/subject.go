package node

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// subject is who is at the other end of a connection, or for whom a node passes a request
// on.
type subject struct {
	// peer is what the certificate says.
	peer pki.Peer
	from string    // host:port
	conn *pki.Conn // nil of one for whom another node asks
	// passed is set if another node passes the request on.
	passed bool
	// shown is the token that was shown on a connection without certificate.
	shown atomic.Pointer[shown]
	// asking is set while it is asked what he may do, for a call that may not wait for that.
	asking atomic.Bool
	// lately are views that were used on the connection, each at the place of its table.
	lately [4]atomic.Pointer[lately]
}

// shown is a token that was shown, and found good.
type shown struct {
	record *token.AccessRecord
	// seen is when its record was last seen to be there.
	seen atomic.Pointer[acl.Ticket]
}

// lately is a view, and when it was seen to hold.
type lately struct {
	view   *acl.View
	ticket acl.Ticket
}

// identify returns who is at the other end of a connection, for rpc.Peer.
func identify(c net.Conn) any {
	conn := c.(*pki.Conn)
	return &subject{peer: conn.Peer, from: c.RemoteAddr().String(), conn: conn}
}

// subjectOf returns for whom a call is; nil on a node that is open.
func subjectOf(c *rpc.Call) *subject {
	who, _ := c.Identity().(*subject)
	return who
}

// who returns the peer as whom the subject acts: that of its token, if it has shown one, which has no
// end then but that of its record.
func (s *subject) who() pki.Peer {
	if t := s.shown.Load(); t != nil {
		return pki.Peer{Kind: pki.Principal, Name: t.record.Principal, Generation: t.record.Generation, Cluster: s.peer.Cluster, Serial: t.record.ID.String()}
	}
	return s.peer
}

// principal returns its name and generation, and the token by which it is one, if any.
func (s *subject) principal() (name string, generation uint64, t *shown) {
	if t := s.shown.Load(); t != nil {
		return t.record.Principal, t.record.Generation, t
	}
	return s.peer.Name, s.peer.Generation, nil
}

type subjectKey struct{}

// withSubject returns ctx with a subject that is restricted, for what is done for it.
func withSubject(ctx context.Context, who *subject) context.Context {
	if !who.restricted() {
		return ctx
	}
	return context.WithValue(ctx, subjectKey{}, who)
}

// subjectIn returns the subject that ctx has, nil for none that is restricted.
func subjectIn(ctx context.Context) *subject {
	who, _ := ctx.Value(subjectKey{}).(*subject)
	return who
}

// ownerOf returns whose share of a node's workers the requests of a connection take.
func ownerOf(p *rpc.Peer) string {
	who, _ := p.Identity.(*subject)
	if name := who.owner(); name != "" || !who.restricted() {
		return name
	}
	return anonymousOwner
}

// anonymousOwner is the owner of requests of all who have shown nothing. No principal has that name.
const anonymousOwner = "(anonymous)"

// restricted tells whether what the subject may is to be looked at: nodes may all.
func (s *subject) restricted() bool { return s != nil && s.peer.Kind != pki.Node }

// owner names a subject, for what is kept for it: empty for nodes and on open nodes.
func (s *subject) owner() string {
	if !s.restricted() {
		return ""
	}
	return s.who().Name
}
