package enrol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// tokensDir holds a file for each join token: package security/token.
const tokensDir = namespace.SecurityDir + "/join"

func pathOf(id token.ID) string { return tokensDir + "/" + id.String() }

const (
	tokenTTL    = time.Hour // default
	tokenTTLMax = 30 * 24 * time.Hour
	// tokenKept is how long a token's record is kept after its end, so that its use is rejected as expired and not as unknown.
	tokenKept = 7 * 24 * time.Hour
)

// create serves api.MethodCreateToken.
func (s *Service) create(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.CreateTokenRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	made, err := s.createFor(c.Context(), authz.SubjectOf(c), &r)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(made.Append)
}

// revoke serves api.MethodRevokeToken.
func (s *Service) revoke(c *rpc.Call) {
	c.Retain()
	var r api.NamesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodRevokeToken, 1), &r.Options) {
		return
	}
	change := authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodRevokeToken, Name: r.Names[0]}
	err := s.Changes.Do(c.Context(), change, func(ctx context.Context) error { return s.revokeNow(ctx, r.Names[0]) })
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// createFor creates a join token and records the outcome in the audit log, even if the caller has left.
func (s *Service) createFor(ctx context.Context, caller *authz.Subject, r *api.CreateTokenRequest) (*api.CreatedToken, error) {
	var begun atomic.Bool
	var made *api.CreatedToken
	err := s.Changes.Do(ctx, authz.ChangeRequest{Caller: caller, Method: api.MethodCreateToken, Name: r.Node}, func(ctx context.Context) (err error) {
		begun.Store(true)
		auditSubject := "token"
		if made, err = s.createNow(ctx, r); err == nil {
			auditSubject = subjectOf(made)
		}
		s.Authz.Audit.Action(caller, api.MethodCreateToken, auditSubject, err)
		return err
	})
	if err == nil {
		return made, nil
	}
	if !begun.Load() { // rejected, or still waiting: then the outcome is recorded, too
		s.Authz.Audit.Action(caller, api.MethodCreateToken, "token", err)
	}
	return nil, err
}

// bounds returns how long a requested token lasts, and how often it can be used.
func bounds(r *api.CreateTokenRequest) (ttl time.Duration, uses int64, err error) {
	ttl, uses = cmp.Or(r.TTL, tokenTTL), cmp.Or(r.Uses, 1)
	switch {
	case r.Kind != api.TokenJoin:
		err = rpc.Errorf(rpc.CodeBadRequest, "token of kind %.40q, want %q", r.Kind, api.TokenJoin)
	case ttl > tokenTTLMax:
		err = &table.LimitError{What: "seconds that a join token lasts", Limit: int64(tokenTTLMax / time.Second), Got: int64(ttl / time.Second)}
	case uses < 1 || uses > token.UsesMax:
		err = &table.LimitError{What: "uses of a join token", Limit: token.UsesMax, Got: uses}
	}
	return ttl, uses, err
}

// createNow creates a join token, within a change.
func (s *Service) createNow(ctx context.Context, r *api.CreateTokenRequest) (*api.CreatedToken, error) {
	ttl, uses, err := bounds(r)
	if err != nil {
		return nil, err
	}
	id := ""
	if r.Node != "" {
		if id, err = s.FindNode(ctx, r.Node); err != nil {
			return nil, err
		}
	}
	if err := s.prune(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	t := token.New(token.Join, s.Transport().Fingerprint(), now, max(ttl, time.Second))
	rec, err := token.NewJoinRecord(t, now, int(uses), id)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	if _, err := s.Changes.SetAsMaster(ctx, pathOf(t.ID()), rec.Encode(), 0); err != nil {
		return nil, err
	}
	s.Log.Info("join token created", "token", t.ID().String(), "uses", uses, "node", id, "expires", t.Ends())
	return &api.CreatedToken{Text: t.Reveal(), Info: infoOf(rec)}, nil
}

// subjectOf describes a created token for the audit log.
func subjectOf(made *api.CreatedToken) string {
	if made.Info.Node != "" {
		return fmt.Sprintf("token %s for node %s", made.Info.ID, made.Info.Node)
	}
	return fmt.Sprintf("token %s for %d hosts", made.Info.ID, made.Info.Uses)
}

func infoOf(r *token.JoinRecord) api.TokenInfo {
	i := api.TokenInfo{ID: r.ID.String(), Kind: api.TokenJoin, CreatedMS: r.Created.UnixMilli(), EndsMS: r.Ends.UnixMilli(), Uses: int64(r.Uses), Node: r.Node}
	for _, u := range r.Spent {
		i.UsedBy = append(i.UsedBy, u.Node)
	}
	return i
}

// joinToken is a join token's record, and the generation of its file.
type joinToken struct {
	*token.JoinRecord
	gen uint64
}

// joinToken returns a token's record, or nil if there is none.
func (s *Service) joinToken(ctx context.Context, id token.ID) (joinToken, error) {
	f, err := s.Meta.Get(ctx, pathOf(id))
	if errors.Is(err, metaapi.ErrNotFound) {
		return joinToken{}, nil
	}
	if err != nil {
		return joinToken{}, err
	}
	r, err := token.DecodeJoin(f.Data)
	return joinToken{r, f.Generation}, err
}

// joinTokens returns all join tokens.
func (s *Service) joinTokens(ctx context.Context) (all []joinToken, err error) {
	names, err := s.Catalog.List(ctx, tokensDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, err := token.ParseID(name)
		if err != nil {
			return nil, err
		}
		t, err := s.joinToken(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.JoinRecord != nil { // it may have been revoked meanwhile
			all = append(all, t)
		}
	}
	return all, nil
}

func (s *Service) list(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all, err := s.joinTokens(ctx)
	if err != nil {
		return nil, err
	}
	var infos api.Tokens
	for _, t := range all {
		infos.Tokens = append(infos.Tokens, infoOf(t.JoinRecord))
	}
	return infos.Append, nil
}

// prune removes the records of tokens that expired long ago, and checks that one more fits: clients read at most api.TokensMax.
func (s *Service) prune(ctx context.Context) error {
	all, err := s.joinTokens(ctx)
	if err != nil {
		return err
	}
	left := int64(0)
	for _, t := range all {
		if time.Since(t.Ends) < tokenKept {
			left++
			continue
		}
		if err := s.Changes.DeleteAsMaster(ctx, pathOf(t.ID)); err != nil {
			return err
		}
	}
	if left >= api.TokensMax {
		return &table.LimitError{What: "join tokens", Limit: api.TokensMax, Got: left + 1}
	}
	return nil
}

func (s *Service) revokeNow(ctx context.Context, text string) error {
	id, err := token.ParseID(text)
	if err != nil {
		return rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	o, err := s.Changes.MasterOption(ctx)
	if err != nil {
		return err
	}
	err = s.Meta.Client.Delete(ctx, pathOf(id), metaapi.AnyGeneration, o)
	switch {
	case errors.Is(err, metaapi.ErrNotFound):
		return &api.TokenRefusedError{Reason: api.TokenUnknown, ID: id.String(), Text: fmt.Sprintf("no join token has the id %s", id)}
	case err != nil:
		return changes.NotMasterNow(err)
	}
	s.Log.Info("join token revoked", "token", id.String())
	return nil
}

// refusedToken returns the error for a token that cannot be used.
func refusedToken(id token.ID, err error) error {
	var bad *token.FormatError
	reason := api.TokenUnknown
	switch {
	case errors.As(err, &bad):
		return &api.TokenRefusedError{Reason: api.TokenMalformed, Text: err.Error()}
	case errors.Is(err, token.ErrExpired):
		reason = api.TokenExpired
	case errors.Is(err, token.ErrSpent):
		reason = api.TokenSpent
	case errors.Is(err, token.ErrOtherNode):
		reason = api.TokenOtherNode
	}
	return &api.TokenRefusedError{Reason: reason, ID: id.String(), Text: err.Error()}
}
