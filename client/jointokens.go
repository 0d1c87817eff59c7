package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// Types of requests and results about join tokens.
type (
	// TokenRequest describes a token to create.
	TokenRequest = api.CreateTokenRequest
	// CreatedToken is a new token: its Text is a secret.
	CreatedToken = api.CreatedToken
	// TokenInfo is the stored information about a token.
	TokenInfo = api.TokenInfo
)

// JoinTokens administers the tokens with which hosts join a cluster as nodes. For access tokens see
// Users.
type JoinTokens struct{ calls *caller }

// JoinTokens returns the administration of join tokens.
func (c *Client) JoinTokens() JoinTokens { return JoinTokens{&c.calls} }

// Create creates a token. Errors: ErrNodeNotFound, *LimitError, ErrUnavailable from a node without
// a certificate and while no master is known, and those of Nodes.List. After an *AmbiguousError, an
// unused token may exist.
func (j JoinTokens) Create(ctx context.Context, r TokenRequest) (*CreatedToken, error) {
	t := &api.CreatedToken{}
	return t, j.calls.do(ctx, &call{method: api.MethodCreateToken, change: true, encode: r.Append, decode: t.Decode})
}

// List returns all tokens, sorted by id. Errors: those of Nodes.List.
func (j JoinTokens) List(ctx context.Context) ([]TokenInfo, error) {
	var t api.Tokens
	err := j.calls.query(ctx, api.MethodListTokens, nil, t.Decode)
	return t.Tokens, err
}

// Revoke revokes a token, given by its id. When it returns nil, the token is no longer accepted.
// Errors: ErrTokenRefused if there is no token with that id, and those of Create.
func (j JoinTokens) Revoke(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return j.calls.do(ctx, &call{method: api.MethodRevokeToken, change: true, encode: req.Append})
}
