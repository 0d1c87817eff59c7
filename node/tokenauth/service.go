package tokenauth

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Method authenticates a connection without a client certificate with an access token, for as long as the connection lasts:
// [token].
const Method = "auth"

// Service authenticates connections with access tokens.
type Service struct {
	Config
	gate *hostgate.Gate // bounds the tokens of unauthenticated clients
}

// Config has what the service needs.
type Config struct {
	Authz *authz.Authorizer
	// Serving returns an error until the node serves.
	Serving func() error
}

// New returns a service.
func New(cfg Config) *Service { return &Service{Config: cfg, gate: hostgate.New(limits)} }

// Register registers Method, which is answered before the node serves, too.
func (s *Service) Register(r method.Registrar) {
	r.Handle(Method, rpc.Spawned, authz.Guard{To: authz.Strangers}, s.auth)
}

// auth serves Method.
func (s *Service) auth(c *rpc.Call) {
	text, err := c.Params.Str(), c.Params.Err()
	caller := authz.SubjectOf(c)
	if err != nil || c.NumParams < 1 {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "auth: want a token"))
		return
	}
	if caller == nil { // an open node has no users
		c.Reply(nil)
		return
	}
	if err := s.Serving(); err != nil {
		c.Fail(err)
		return
	}
	if err := s.Authenticate(c.Context(), caller, text); err != nil {
		c.Fail(s.Authz.Refuse(Method, caller, err))
		return
	}
	c.Reply(nil)
}

// limits bounds the verification of access tokens from unauthenticated clients. Each is a read at the leader of the lock
// service, and legitimate clients do not guess.
var limits = hostgate.Limits{
	RequestsMax: 64, RequestsOfHost: 16, RefusalsMax: 20,
	Refusal:         func(err error) bool { return errors.Is(err, api.ErrUnauthenticated) },
	TooManyRefusals: "too many invalid tokens", TooManyRequests: "too many tokens are being verified",
}

// Authenticate verifies an access token for a connection, subject to limits. Errors: *api.OverloadedError, those of
// verify.
func (s *Service) Authenticate(ctx context.Context, caller *authz.Subject, text string) (err error) {
	if err := s.Authz.Rights.CheckLeader(); err != nil { // waiting would not help
		return err
	}
	leave, err := s.gate.Enter(advertise.Host(caller.From))
	if err != nil {
		return err
	}
	defer func() { leave(err) }()
	ctx, cancel := context.WithTimeout(ctx, authz.RightsTimeout)
	defer cancel()
	return s.verify(ctx, caller, text)
}

// verify verifies an access token and makes the connection its principal's. Errors: *api.IdentityError, those of authz.Rights.View.
func (s *Service) verify(ctx context.Context, caller *authz.Subject, text string) error {
	bad := &api.IdentityError{Reason: api.IdentityBadToken, Text: "the access token does not exist, or was revoked"}
	t, err := token.Parse(text)
	if err != nil || t.Kind() != token.Access {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "not an access token"}
	}
	if caller.Peer.Kind != pki.Anonymous {
		return &api.IdentityError{Reason: api.IdentityBadToken, Text: "the connection has a client certificate: use either a certificate or a token"}
	}
	b, err := s.Authz.Rights.Files.Get(ctx, authz.TokenPath(t.ID()))
	if err != nil {
		return s.Authz.Rights.Recode(err)
	}
	var r *token.AccessRecord // nil if there is none: the check takes as long
	if b != nil {
		if r, err = token.DecodeAccess(b); err != nil {
			return err
		}
	}
	if err := r.Check(t, time.Now()); err != nil {
		if errors.Is(err, token.ErrExpired) { // otherwise a wrong secret must not reveal that the token exists
			return s.Authz.Rights.Recode(err)
		}
		return bad
	}
	trial := &authz.Subject{Peer: caller.Peer}
	trial.CredentialToken.Store(&authz.CredentialToken{Record: r})
	if _, err := s.Authz.Rights.Known(ctx, trial); err != nil {
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
