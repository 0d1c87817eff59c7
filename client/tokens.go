package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// Types of requests and results about tokens.
type (
	// TokenRequest describes a token to create.
	TokenRequest = api.CreateTokenRequest
	// CreatedToken is a new token: its Text is a secret.
	CreatedToken = api.CreatedToken
	// TokenInfo is the stored information about a token.
	TokenInfo = api.TokenInfo
)

// CreateToken creates a token. Errors: ErrNodeNotFound, *LimitError, ErrUnavailable from a node
// without a certificate and while no master is known, and those of Nodes. After an *AmbiguousError,
// an unused token may exist.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (*CreatedToken, error) {
	t := &api.CreatedToken{}
	return t, c.do(ctx, &call{method: api.MethodCreateToken, change: true, encode: r.Append, decode: t.Decode})
}

// Tokens returns all tokens, sorted by id. Errors: those of Nodes.
func (c *Client) Tokens(ctx context.Context) ([]TokenInfo, error) {
	var t api.Tokens
	err := c.query(ctx, api.MethodListTokens, nil, t.Decode)
	return t.Tokens, err
}

// RevokeToken revokes a token, given by its id. When it returns nil, the token is no longer
// accepted. Errors: ErrTokenRefused if there is no token with that id, and those of CreateToken.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return c.do(ctx, &call{method: api.MethodRevokeToken, change: true, encode: req.Append})
}
