package users

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// serveSetGrants serves set_grants. The audit log has a record for each principal whose rights change.
func (acc *Service) serveSetGrants(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.SetGrantsRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller, on := authz.SubjectOf(c), &api.GrantRequest{Table: r.Table, View: r.View}
	from, to, err := grantsToSet(on, &r)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	_, _, err = acc.Authz.Administers(c.Context(), caller, r.Table) // a caller without the right must not delay others
	if reply.IsRefusal(err) || errors.Is(err, api.ErrNoTable) {
		acc.Authz.Audit.Refused(caller, api.MethodSetGrants, grantText(on), err)
	} else if err == nil {
		err = acc.Authz.Audit.Admit(caller)
	}
	if err == nil {
		err = acc.setGrants(c.Context(), caller, on, from, to)
		acc.auditSet(caller, on, from, to, err)
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// grantsToSet returns the grants of a request on an object.
func grantsToSet(on *api.GrantRequest, r *api.SetGrantsRequest) (from, to []acl.Grant, err error) {
	if from, err = parseGrants(on, r.From); err == nil {
		to, err = parseGrants(on, r.To)
	}
	return from, to, err
}

func parseGrants(on *api.GrantRequest, all []api.PrincipalRights) (grants []acl.Grant, err error) {
	seen := map[string]bool{}
	for _, g := range all {
		rights, err := acl.ParseRights(g.Rights)
		if err == nil && seen[g.Principal] {
			err = fmt.Errorf("two grants to %q", g.Principal)
		}
		if err != nil {
			return nil, reply.BadRequest(err)
		}
		if err := checkGrantTarget(on, rights); err != nil {
			return nil, err
		}
		seen[g.Principal] = true
		grants = append(grants, acl.Grant{Principal: g.Principal, Rights: rights})
	}
	return grants, nil
}

// setGrants replaces the grants on an object by one write of its policy, if they are those of from.
func (acc *Service) setGrants(ctx context.Context, caller *authz.Subject, on *api.GrantRequest, from, to []acl.Grant) error {
	return acc.changeRights(ctx, authz.ChangeRequest{Caller: caller, Method: api.MethodSetGrants, Name: on.Table}, func(ctx context.Context) error {
		target, tableID := acl.Grant{}, acl.Cluster
		s, err := acc.grantTarget(ctx, on, &target)
		if err != nil {
			return err
		}
		if s != nil {
			tableID = s.ID
		}
		held := rightsOf(from)
		for _, g := range to {
			if g.Principal == acl.Everyone || g.Rights&^held[g.Principal] == 0 {
				continue
			}
			if err := acc.Check(ctx, g.Principal); err != nil {
				return err
			}
		}
		return grantError(acc.policies.edit(ctx, tableID, func(p *acl.Policy) (*acl.Policy, error) {
			if s != nil {
				p = p.Prune(s)
			}
			next, err := p.Replace(target.Family, from, to)
			if err == nil && tableID == acl.Cluster {
				err = acc.checkAdminLeft(ctx, next, credentials{})
			}
			return next, err
		}))
	})
}

func rightsOf(grants []acl.Grant) map[string]acl.Rights {
	all := make(map[string]acl.Rights, len(grants))
	for _, g := range grants {
		all[g.Principal] = g.Rights
	}
	return all
}

// auditSet records an attempt to replace grants.
func (acc *Service) auditSet(caller *authz.Subject, on *api.GrantRequest, from, to []acl.Grant, err error) {
	before, after := rightsOf(from), rightsOf(to)
	record := func(principal string, rights acl.Rights) {
		r := *on
		if r.Principal, r.Rights = principal, rights.String(); rights == 0 {
			r.Rights = "no rights"
		}
		acc.Authz.Audit.Action(caller, api.MethodSetGrants, grantText(&r), err)
	}
	for _, g := range to {
		if before[g.Principal] != g.Rights {
			record(g.Principal, g.Rights)
		}
	}
	for _, g := range from {
		if _, kept := after[g.Principal]; !kept {
			record(g.Principal, 0)
		}
	}
}
