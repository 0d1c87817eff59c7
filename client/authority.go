package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// AuthorityStatus is the state of the replacement of the cluster's authority.
type AuthorityStatus = api.AuthorityStatus

// Authority replaces the authority of a cluster, which signs all its certificates.
type Authority struct{ calls *caller }

// Authority returns the administration of the cluster's authority.
func (c *Client) Authority() Authority { return Authority{&c.calls} }

// Rotate starts the replacement of the cluster's authority, or returns its state if it has started.
// The replacement advances automatically up to the stage in which users get new certificates;
// Finish ends that stage. Errors: ErrNoIssuer, ErrPermission, *AmbiguousError, and those of
// Tables.List.
func (a Authority) Rotate(ctx context.Context) (*AuthorityStatus, error) {
	return a.rotate(ctx, api.RotateAuthorityRequest{})
}

// Restart restarts the replacement with another new authority, for example if the key of the first
// was lost before all voters had it. Errors: ErrRollover once certificates may have been signed by
// the first, and those of Rotate.
func (a Authority) Restart(ctx context.Context) (*AuthorityStatus, error) {
	return a.rotate(ctx, api.RotateAuthorityRequest{Restart: true})
}

// Finish makes nodes renew their certificates and then trust the new authority only. Credentials
// issued before the stage sign become invalid. Errors: ErrRollover before that stage, and those of
// Rotate.
func (a Authority) Finish(ctx context.Context) (*AuthorityStatus, error) {
	return a.rotate(ctx, api.RotateAuthorityRequest{Finish: true})
}

// RotateGossipKey makes the nodes replace the gossip key, which takes some seconds. It has no
// effect if a replacement is in progress, and it does not affect the authority. Errors: those of
// Rotate.
func (a Authority) RotateGossipKey(ctx context.Context) (*AuthorityStatus, error) {
	return a.rotate(ctx, api.RotateAuthorityRequest{GossipKey: true})
}

func (a Authority) rotate(ctx context.Context, r api.RotateAuthorityRequest) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, a.calls.do(ctx, &call{method: api.MethodRotateAuthority, change: true, encode: r.Append, decode: s.Decode})
}

// Status returns the state of the replacement of the cluster's authority. Errors: those of
// Tables.List.
func (a Authority) Status(ctx context.Context) (*AuthorityStatus, error) {
	s := &AuthorityStatus{}
	return s, a.calls.query(ctx, api.MethodAuthorityStatus, nil, s.Decode)
}
