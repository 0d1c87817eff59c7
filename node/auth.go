package node

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client/api"
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
		caller := subjectOf(c)
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
			c.Fail(n.authz.refuse(methodAuth, caller, err))
			return
		}
		c.Reply(nil)
	})
}

// tokenLimits bounds the verification of access tokens from unauthenticated clients. Each is a read at the leader of the lock
// service, and legitimate clients do not guess.
var tokenLimits = gateLimits{
	requestsMax: 64, requestsOfHost: 16, refusalsMax: 20,
	refusal:         func(err error) bool { return errors.Is(err, api.ErrUnauthenticated) },
	tooManyRefusals: "too many invalid tokens", tooManyRequests: "too many tokens are being verified",
}

// authenticate verifies an access token for a connection, subject to tokenLimits. Errors: *api.OverloadedError, those of
// lookAtToken.
func (n *Node) authenticate(ctx context.Context, caller *subject, text string) (err error) {
	leave, err := n.security.tokens.enter(hostOf(caller.from))
	if err != nil {
		return err
	}
	defer func() { leave(err) }()
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	return n.lookAtToken(ctx, caller, text)
}

// lookAtToken verifies an access token and makes the connection its principal's. Errors: *api.IdentityError, those of rights.ask.
func (n *Node) lookAtToken(ctx context.Context, caller *subject, text string) error {
	bad := &api.IdentityError{Reason: api.IdentityBadToken, Text: "the access token does not exist, or was revoked"}
	t, err := token.Parse(text)
	if err != nil || t.Kind() != token.Access {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "not an access token"}
	}
	if caller.peer.Kind != pki.Anonymous {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection has a client certificate: use either a certificate or a token"}
	}
	b, err := n.authz.rights.files.Get(ctx, tokenPath(t.ID()))
	if err != nil {
		return n.authz.rights.recode(err)
	}
	var r *token.AccessRecord // nil if there is none: the check takes as long
	if b != nil {
		if r, err = token.DecodeAccess(b); err != nil {
			return err
		}
	}
	if err := r.Check(t, time.Now()); err != nil {
		if r != nil && r.Valid(time.Now()) != nil && r.ID == t.ID() {
			return n.authz.rights.recode(err)
		}
		return bad
	}
	trial := &subject{peer: caller.peer}
	trial.credentialToken.Store(&credentialToken{record: r})
	if _, err := n.authz.rights.known(ctx, trial); err != nil {
		return err
	}
	if !caller.credentialToken.CompareAndSwap(nil, trial.credentialToken.Load()) {
		if old := caller.credentialToken.Load().record; old.ID != r.ID {
			return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection uses another token: open another connection"}
		}
	} else if caller.conn != nil {
		if err := caller.conn.Stay(caller.identity(), r.Ends); err != nil {
			caller.credentialToken.Store(nil)
			return &api.OverloadedError{Reason: err.Error(), RetryAfter: time.Second}
		}
	}
	return nil
}
