package actfor

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// Method states for which principal a node uses the connection: [name, generation, token id or "", certificate serial or "", address].
const Method = "cluster.act_for"

// Service serves Method.
type Service struct{ Authz *authz.Authorizer }

// Register registers Method, which is answered before the node serves, too.
func (s Service) Register(r method.Registrar) { r.Handle(Method, rpc.Spawned, authz.Guard{}, s.actFor) }

func (s Service) actFor(c *rpc.Call) {
	principal := &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: c.Params.Str(), Generation: c.Params.Uint()}}
	tokenID := c.Params.Str()
	principal.Peer.Serial = c.Params.Str()
	principal.From = c.Params.Str()
	node, _ := c.Peer().Identity.(*authz.Subject) // not SubjectOf, which is the principal of an earlier call
	switch {
	case c.Params.Err() != nil:
		c.Fail(api.ToRPC(c.Params.Err()))
		return
	case node == nil || node.Peer.Kind != pki.Node || node.ActsFor.Load() != nil:
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: must be the first call of a node's connection", Method))
		return
	}
	principal.Peer.Cluster = node.Peer.Cluster
	if tokenID != "" {
		ctx, cancel := context.WithTimeout(c.Context(), authz.RightsTimeout)
		defer cancel()
		if err := s.Authz.Rights.RestoreToken(ctx, principal, tokenID); err != nil {
			c.Fail(reply.ToAPI(err))
			return
		}
	}
	if !c.Demote() { // what is reserved for nodes is not for the users that they act for
		c.Fail(api.ToRPC(&api.OverloadedError{Reason: "connections", RetryAfter: time.Second}))
		return
	}
	if !node.ActsFor.CompareAndSwap(nil, principal) {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: the connection acts for another principal", Method))
		return
	}
	c.Reply(nil)
}

// Principal is a principal with its credential.
type Principal struct {
	Name       string
	Generation uint64
	TokenID    string // empty for a certificate
	Serial     string // of a certificate; empty for a token
	From       string // address that the audit log has
}

// PrincipalOf returns the principal of a subject with a credential, and the address from for the audit log.
func PrincipalOf(s *authz.Subject, from string) Principal {
	name, generation, t := s.Principal()
	p := Principal{Name: name, Generation: generation, Serial: s.Peer.Serial, From: from}
	if t != nil {
		p.TokenID, p.Serial = t.Record.ID.String(), ""
	}
	return p
}

// callTimeout bounds the first call of a connection.
const callTimeout = 5 * time.Second

// prepare states that the node uses a new connection for the principal.
func (p Principal) prepare(ctx context.Context, conn *rpc.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return api.FromRPC(conn.Call(ctx, Method, func(e *wire.Encoder) {
		e.Array(5)
		e.Str(p.Name)
		e.Uint(p.Generation)
		e.Str(p.TokenID)
		e.Str(p.Serial)
		e.Str(p.From)
	}, nil))
}
