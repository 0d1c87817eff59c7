package node

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// methodAuth authenticates a connection without a client certificate with an access token, for as long as the connection lasts:
// [token].
const methodAuth = "auth"

func (n *Node) handleAuth() {
	n.rpc.Handle(methodAuth, rpc.Spawned, func(c *rpc.Call) {
		text, err := c.Params.Str(), c.Params.Err()
		caller := authz.SubjectOf(c)
		switch {
		case err != nil || c.NumParams < 1:
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "auth: want a token"))
			return
		case caller == nil: // an open node has no users
			c.Reply(nil)
			return
		case !n.serving.Load():
			c.Fail(n.notServing())
			return
		}
		if err := n.authenticate(c.Context(), caller, text); err != nil {
			c.Fail(n.authz.Refuse(methodAuth, caller, err))
			return
		}
		c.Reply(nil)
	})
}

// tokenLimits bounds the verification of access tokens from unauthenticated clients. Each is a read at the leader of the lock
// service, and legitimate clients do not guess.
var tokenLimits = hostgate.Limits{
	RequestsMax: 64, RequestsOfHost: 16, RefusalsMax: 20,
	Refusal:         func(err error) bool { return errors.Is(err, api.ErrUnauthenticated) },
	TooManyRefusals: "too many invalid tokens", TooManyRequests: "too many tokens are being verified",
}

// authenticate verifies an access token for a connection, subject to tokenLimits. Errors: *api.OverloadedError, those of
// lookAtToken.
func (n *Node) authenticate(ctx context.Context, caller *authz.Subject, text string) (err error) {
	leave, err := n.security.tokens.Enter(hostOf(caller.From))
	if err != nil {
		return err
	}
	defer func() { leave(err) }()
	ctx, cancel := context.WithTimeout(ctx, authz.RightsTimeout)
	defer cancel()
	return n.lookAtToken(ctx, caller, text)
}

// lookAtToken verifies an access token and makes the connection its principal's. Errors: *api.IdentityError, those of rights.ask.
func (n *Node) lookAtToken(ctx context.Context, caller *authz.Subject, text string) error {
	bad := &api.IdentityError{Reason: api.IdentityBadToken, Text: "the access token does not exist, or was revoked"}
	t, err := token.Parse(text)
	if err != nil || t.Kind() != token.Access {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "not an access token"}
	}
	if caller.Peer.Kind != pki.Anonymous {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection has a client certificate: use either a certificate or a token"}
	}
	b, err := n.authz.Rights.Files.Get(ctx, authz.TokenPath(t.ID()))
	if err != nil {
		return n.authz.Rights.Recode(err)
	}
	var r *token.AccessRecord // nil if there is none: the check takes as long
	if b != nil {
		if r, err = token.DecodeAccess(b); err != nil {
			return err
		}
	}
	if err := r.Check(t, time.Now()); err != nil {
		if r != nil && r.Valid(time.Now()) != nil && r.ID == t.ID() {
			return n.authz.Rights.Recode(err)
		}
		return bad
	}
	trial := &authz.Subject{Peer: caller.Peer}
	trial.CredentialToken.Store(&authz.CredentialToken{Record: r})
	if _, err := n.authz.Rights.Known(ctx, trial); err != nil {
		return err
	}
	if !caller.CredentialToken.CompareAndSwap(nil, trial.CredentialToken.Load()) {
		if old := caller.CredentialToken.Load().Record; old.ID != r.ID {
			return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection uses another token: open another connection"}
		}
	} else if caller.Conn != nil {
		if err := caller.Conn.Stay(caller.Identity(), r.Ends); err != nil {
			caller.CredentialToken.Store(nil)
			return &api.OverloadedError{Reason: err.Error(), RetryAfter: time.Second}
		}
	}
	return nil
}
