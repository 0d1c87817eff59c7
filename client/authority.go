package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// AuthorityStatus is the state of the replacement of the cluster's authority.
type AuthorityStatus = api.AuthorityStatus

// RotateAuthority starts the replacement of the cluster's authority, or returns its state if it has
// started. The replacement advances automatically up to the stage in which users get new
// certificates; FinishAuthority ends that stage. Errors: ErrNoIssuer, ErrPermission,
// *AmbiguousError, and those of Tables.
func (c *Client) RotateAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{})
}

// RestartAuthority restarts the replacement with another new authority, for example if the key of
// the first was lost before all voters had it. Errors: ErrRollover once certificates may have been
// signed by the first, and those of RotateAuthority.
func (c *Client) RestartAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{Restart: true})
}

// FinishAuthority makes nodes renew their certificates and then trust the new authority only.
// Credentials issued before the stage sign become invalid. Errors: ErrRollover before that stage,
// and those of RotateAuthority.
func (c *Client) FinishAuthority(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{Finish: true})
}

// RotateGossipKey makes the nodes replace the gossip key, which takes some seconds. It has no
// effect if a replacement is in progress, and it does not affect the authority. Errors: those of
// RotateAuthority.
func (c *Client) RotateGossipKey(ctx context.Context) (*AuthorityStatus, error) {
	return c.rotateAuthority(ctx, api.RotateAuthorityRequest{GossipKey: true})
}

func (c *Client) rotateAuthority(ctx context.Context, r api.RotateAuthorityRequest) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, c.do(ctx, &call{method: api.MethodRotateAuthority, change: true, encode: r.Append, decode: s.Decode})
}

// Authority returns the state of the replacement of the cluster's authority. Errors: those of
// Tables.
func (c *Client) Authority(ctx context.Context) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, c.query(ctx, api.MethodAuthorityStatus, nil, s.Decode)
}
