package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// AuthorityStatus is how far the replacement of the cluster's authority has come.
type AuthorityStatus = api.AuthorityStatus

// RotateAuthority begins to replace the cluster's authority, or returns how far that has come. It goes on by itself until users
// have to get new certificates, which FinishAuthority ends. Errors: ErrNoIssuer, ErrPermission, *AmbiguousError, and those of
// Tables.
func (c *Client) RotateAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{})
}

// RestartAuthority begins again with another new authority: if the key of the one before was lost before all voters had it.
// Errors: ErrRollover once certificates may have been signed by it, and those of RotateAuthority.
func (c *Client) RestartAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{Restart: true})
}

// FinishAuthority has nodes renew their certificates and then trust the new authority alone: credentials that were made before
// the stage sign are of no use afterwards. Errors: ErrRollover before that stage, and those of RotateAuthority.
func (c *Client) FinishAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{Finish: true})
}

// RotateGossipKey has the nodes replace the key of gossip, which they do in some seconds, and begins nothing if they are at it. The
// authority stays as it is. Errors: those of RotateAuthority.
func (c *Client) RotateGossipKey(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{GossipKey: true})
}

func (c *Client) rotateAuthority(ctx context.Context, r api.RotateAuthorityRequest) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, c.do(ctx, &call{method: api.MethodRotateAuthority, change: true, encode: r.Append, decode: s.Decode})
}

// Authority returns how far the replacement of the cluster's authority has come. Errors: those of Tables.
func (c *Client) Authority(ctx context.Context) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, c.ask(ctx, api.MethodAuthorityStatus, nil, s.Decode)
}
