package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// Types of what tokens are made by, and of what is known of them.
type (
	// TokenRequest says what a token is to be for.
	TokenRequest = api.CreateTokenRequest
	// CreatedToken is a token that was made: its Text is a secret.
	CreatedToken = api.CreatedToken
	// TokenInfo is what the cluster knows of a token.
	TokenInfo = api.TokenInfo
)

// CreateToken makes a token. Errors: ErrNodeNotFound, *LimitError, ErrUnavailable of a
// node that has no certificate and while no master is known, and those of Nodes. After an
// *AmbiguousError there may be one more that nobody has.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (*CreatedToken, error) {
	t := &api.CreatedToken{}
	return t, c.do(ctx, &call{method: api.MethodCreateToken, change: true, encode: r.Append, decode: t.Decode})
}

// Tokens returns the tokens that there are, in order of their ids. Errors: those of Nodes.
func (c *Client) Tokens(ctx context.Context) ([]TokenInfo, error) {
	var t api.Tokens
	err := c.ask(ctx, api.MethodListTokens, nil, t.Decode)
	return t.Tokens, err
}

// RevokeToken ends a token, given by its id: when it returns nil, nobody can use it any
// more. Errors: ErrTokenRefused if there is none of that id, and those of CreateToken.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return c.do(ctx, &call{method: api.MethodRevokeToken, change: true, encode: req.Append})
}
