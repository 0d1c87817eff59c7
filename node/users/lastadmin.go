package users

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/token"
)

// credentials identifies credentials of a principal: all, or one token. The zero value identifies none.
type credentials struct {
	of    string
	token *token.ID // nil: all
}

// checkAdminWithout returns api.ErrLastAdmin if the cluster would have no administrator without these credentials.
func (acc *Service) checkAdminWithout(ctx context.Context, lost credentials) error {
	cluster, _, err := acc.policies.get(ctx, acl.Cluster)
	if err != nil || !cluster.Rights(lost.of).Has(acl.Admin) {
		return err
	}
	return acc.checkAdminLeft(ctx, cluster, lost)
}

// checkAdminLeft returns api.ErrLastAdmin if, with these grants and without the lost credentials, no administrator could
// authenticate: disabled users cannot, nor can users without a valid credential.
func (acc *Service) checkAdminLeft(ctx context.Context, p *acl.Policy, lost credentials) error {
	all, err := acc.administrators(ctx, p)
	if err != nil {
		return err
	}
	now := time.Now()
	var byToken []*acl.Principal
	for _, x := range all {
		switch whole := x.Name == lost.of && lost.token == nil; {
		case x.Disabled || whole:
		case x.Until.After(now):
			return nil
		default:
			byToken = append(byToken, x)
		}
	}
	if len(byToken) == 0 {
		return api.ErrLastAdmin
	}
	tokens, err := acc.tokens.list(ctx, "")
	if err != nil {
		return err
	}
	for _, x := range byToken {
		for _, t := range tokens[x.Name] {
			gone := lost.token != nil && t.ID == *lost.token
			if !gone && t.Valid(now) == nil && x.Check(t.Generation) == nil {
				return nil
			}
		}
	}
	return api.ErrLastAdmin
}

// administrators returns the administrators of the cluster according to these grants.
func (acc *Service) administrators(ctx context.Context, p *acl.Policy) (all []*acl.Principal, err error) {
	var names []string
	for _, g := range p.Grants {
		if g.Rights.Has(acl.Admin) {
			names = append(names, g.Principal)
		}
	}
	if slices.Contains(names, acl.Everyone) {
		if names, err = acc.Catalog.List(ctx, principalsDir); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		x, _, err := acc.principal(ctx, name)
		if err != nil {
			return nil, err
		}
		if x != nil {
			all = append(all, x)
		}
	}
	return all, nil
}
