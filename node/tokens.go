package node

import (
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

// joinTokensDir holds a file for each join token: package security/token.
const joinTokensDir = namespace.SecurityDir + "/join"

func joinTokenPath(id token.ID) string { return joinTokensDir + "/" + id.String() }

const (
	joinTokenTTL    = time.Hour // default
	joinTokenTTLMax = 30 * 24 * time.Hour
	// joinTokenKept is how long a token's record is kept after its end, so that its use is rejected as expired and not as unknown.
	joinTokenKept = 7 * 24 * time.Hour
)

// handleTokens registers the methods about tokens.
func (n *Node) handleTokens() {
	n.handleSecurity(api.MethodCreateToken, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // the change may outlive the call
		var r api.CreateTokenRequest
		if err := r.Decode(&c.Params, c.NumParams); err != nil {
			reply.Fail(c, err)
			return
		}
		if !reply.Begin(c, &r.Options) {
			return
		}
		made, err := n.makeToken(c.Context(), authz.SubjectOf(c), &r)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(made.Append)
	})
	n.answerNames(n.handleSecurity, api.MethodListTokens, 0, n.listTokens)
	n.handleSecurity(api.MethodRevokeToken, rpc.Spawned, func(c *rpc.Call) {
		c.Keep()
		var r api.NamesRequest
		if err := r.Decode(&c.Params, c.NumParams, api.MethodRevokeToken, 1); err != nil {
			reply.Fail(c, err)
			return
		}
		if !reply.Begin(c, &r.Options) {
			return
		}
		err := n.changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodRevokeToken, Name: r.Names[0]}, func(ctx context.Context) error {
			return n.revokeToken(ctx, r.Names[0])
		})
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(nil)
	})
}

// makeToken creates a join token and records the outcome in the audit log, even if the caller has left.
func (n *Node) makeToken(ctx context.Context, caller *authz.Subject, r *api.CreateTokenRequest) (*api.CreatedToken, error) {
	var begun atomic.Bool
	var made *api.CreatedToken
	err := n.changes.Do(ctx, authz.ChangeRequest{Caller: caller, Method: api.MethodCreateToken, Name: r.Node}, func(ctx context.Context) (err error) {
		begun.Store(true)
		auditSubject := "token"
		if made, err = n.createToken(ctx, r); err == nil {
			auditSubject = tokenSubject(made)
		}
		n.authz.Audit.Action(caller, api.MethodCreateToken, auditSubject, err)
		return err
	})
	if err == nil {
		return made, nil
	}
	if !begun.Load() { // rejected, or still waiting: then the outcome is recorded, too
		n.authz.Audit.Action(caller, api.MethodCreateToken, "token", err)
	}
	return nil, err
}

func (n *Node) createToken(ctx context.Context, r *api.CreateTokenRequest) (*api.CreatedToken, error) {
	ttl, uses := r.TTL, r.Uses
	if ttl == 0 {
		ttl = joinTokenTTL
	}
	if uses == 0 {
		uses = 1
	}
	switch {
	case r.Kind != api.TokenJoin:
		return nil, rpc.Errorf(rpc.CodeBadRequest, "token of kind %.40q, want %q", r.Kind, api.TokenJoin)
	case ttl > joinTokenTTLMax:
		return nil, &table.LimitError{What: "seconds that a join token lasts", Limit: int64(joinTokenTTLMax / time.Second), Got: int64(ttl / time.Second)}
	case uses < 1 || uses > token.UsesMax:
		return nil, &table.LimitError{What: "uses of a join token", Limit: token.UsesMax, Got: uses}
	}
	id := ""
	if r.Node != "" {
		x, err := n.members.Find(ctx, r.Node)
		if err != nil {
			return nil, err
		}
		id = x.ID
	}
	if err := n.pruneTokens(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	t := token.New(token.Join, n.security.fingerprint(), now, max(ttl, time.Second))
	rec, err := token.NewJoinRecord(t, now, int(uses), id)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	if _, err := n.changes.SetAsMaster(ctx, joinTokenPath(t.ID()), rec.Encode(), 0); err != nil {
		return nil, err
	}
	n.log.Info("join token created", "token", t.ID().String(), "uses", uses, "node", id, "expires", t.Ends())
	return &api.CreatedToken{Text: t.Reveal(), Info: joinTokenInfo(rec)}, nil
}

// tokenSubject describes a created token for the audit log.
func tokenSubject(made *api.CreatedToken) string {
	if made.Info.Node != "" {
		return fmt.Sprintf("token %s for node %s", made.Info.ID, made.Info.Node)
	}
	return fmt.Sprintf("token %s for %d hosts", made.Info.ID, made.Info.Uses)
}

func joinTokenInfo(r *token.JoinRecord) api.TokenInfo {
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
func (n *Node) joinToken(ctx context.Context, id token.ID) (joinToken, error) {
	f, err := n.meta.Get(ctx, joinTokenPath(id))
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
func (n *Node) joinTokens(ctx context.Context) (all []joinToken, err error) {
	names, err := n.catalog.List(ctx, joinTokensDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, err := token.ParseID(name)
		if err != nil {
			return nil, err
		}
		t, err := n.joinToken(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.JoinRecord != nil { // it may have been revoked meanwhile
			all = append(all, t)
		}
	}
	return all, nil
}

func (n *Node) listTokens(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all, err := n.joinTokens(ctx)
	if err != nil {
		return nil, err
	}
	var infos api.Tokens
	for _, t := range all {
		infos.Tokens = append(infos.Tokens, joinTokenInfo(t.JoinRecord))
	}
	return infos.Append, nil
}

// pruneTokens removes the records of tokens that expired long ago, and checks that one more fits: clients read at most api.TokensMax.
func (n *Node) pruneTokens(ctx context.Context) error {
	all, err := n.joinTokens(ctx)
	if err != nil {
		return err
	}
	left := int64(0)
	for _, t := range all {
		if time.Since(t.Ends) < joinTokenKept {
			left++
			continue
		}
		if err := n.changes.DeleteAsMaster(ctx, joinTokenPath(t.ID)); err != nil {
			return err
		}
	}
	if left >= api.TokensMax {
		return &table.LimitError{What: "join tokens", Limit: api.TokensMax, Got: left + 1}
	}
	return nil
}

func (n *Node) revokeToken(ctx context.Context, text string) error {
	id, err := token.ParseID(text)
	if err != nil {
		return rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	o, err := n.changes.MasterOption(ctx)
	if err != nil {
		return err
	}
	err = n.meta.Client.Delete(ctx, joinTokenPath(id), metaapi.AnyGeneration, o)
	switch {
	case errors.Is(err, metaapi.ErrNotFound):
		return &api.TokenRefusedError{Reason: api.TokenUnknown, ID: id.String(), Text: fmt.Sprintf("no join token has the id %s", id)}
	case err != nil:
		return changes.NotMasterNow(err)
	}
	n.log.Info("join token revoked", "token", id.String())
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
