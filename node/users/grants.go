package users

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// handleGrants registers the methods that manage grants.
func (acc *Service) handleGrants(r method.Registrar) {
	for _, method := range []string{api.MethodGrant, api.MethodRevoke} {
		// The caller must administer the cluster or the table, which serveGrant checks.
		r.Handle(method, rpc.Spawned, authz.Guard{To: authz.Known, Master: true}, func(c *rpc.Call) { acc.serveGrant(c, method) })
	}
	r.Handle(api.MethodSetGrants, rpc.Spawned, authz.Guard{To: authz.Known, Master: true}, acc.serveSetGrants)
	r.Handle(api.MethodListGrants, rpc.Spawned, authz.Guard{To: authz.Known}, func(c *rpc.Call) {
		var r api.ListGrantsRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
			return
		}
		grants, err := acc.listGrants(c.Context(), authz.SubjectOf(c), &r)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(grants.Append)
	})
}

// serveGrant serves grant and revoke.
func (acc *Service) serveGrant(c *rpc.Call, method string) {
	c.Retain() // the change may outlive the call
	var r api.GrantRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller := authz.SubjectOf(c)
	_, _, err := acc.Authz.Administers(c.Context(), caller, r.Table) // a caller without the right must not delay others
	if reply.IsRefusal(err) || errors.Is(err, api.ErrNoTable) {
		acc.Authz.Audit.Refused(caller, method, grantText(&r), err)
	} else if err == nil {
		err = acc.Authz.Audit.Admit(caller)
	}
	if err == nil {
		err = acc.regrant(c.Context(), caller, method, &r)
		acc.Authz.Audit.Action(caller, method, grantText(&r), err)
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// grantText describes a grant for the audit log.
func grantText(r *api.GrantRequest) string {
	s := fmt.Sprintf("%s to %s on ", r.Rights, r.Principal)
	switch {
	case r.Table == "":
		return s + "the cluster"
	case r.View != "":
		return s + "view " + r.View + " of table " + r.Table
	case r.Family == "":
		return s + "table " + r.Table
	}
	return s + "family " + r.Family + " of table " + r.Table
}

// regrant grants or revokes rights.
func (acc *Service) regrant(ctx context.Context, caller *authz.Subject, method string, r *api.GrantRequest) error {
	rights, err := acl.ParseRights(r.Rights)
	if err != nil {
		return reply.BadRequest(err)
	}
	if err := checkGrantTarget(r, rights); err != nil {
		return err
	}
	return acc.changeRights(ctx, authz.ChangeRequest{Caller: caller, Method: method, Name: r.Table}, func(ctx context.Context) error {
		g, tableID := acl.Grant{Principal: r.Principal, Rights: rights}, acl.Cluster
		s, err := acc.grantTarget(ctx, r, &g)
		if err != nil {
			return err
		}
		if s != nil {
			tableID = s.ID
		}
		if method == api.MethodGrant && g.Principal != acl.Everyone {
			if err := acc.Check(ctx, g.Principal); err != nil {
				return err
			}
		}
		err = acc.policies.edit(ctx, tableID, func(p *acl.Policy) (*acl.Policy, error) {
			if s != nil {
				p = p.Prune(s)
			}
			if method == api.MethodGrant {
				return p.Grant(g)
			}
			next, err := p.Revoke(g)
			if err == nil && tableID == acl.Cluster {
				err = acc.checkAdminLeft(ctx, next, credentials{})
			}
			return next, err
		})
		return grantError(err)
	})
}

// checkGrantTarget rejects a request whose scope is contradictory, or to which the rights do not apply.
func checkGrantTarget(r *api.GrantRequest, rights acl.Rights) error {
	switch {
	case r.Table == "" && r.Family+r.View != "":
		return reply.BadRequest(errors.New("a family or view without a table"))
	case r.Family != "" && r.View != "":
		return reply.BadRequest(errors.New("a grant is on a family or on a view"))
	case r.View != "" && rights&^(acl.Read|acl.Write) != 0:
		return reply.BadRequest(errors.New("on a view, rights are read and write"))
	}
	return nil
}

// grantTarget returns the current schema of the table in a request, and sets the family or view of g; nil for the cluster.
func (acc *Service) grantTarget(ctx context.Context, r *api.GrantRequest, g *acl.Grant) (*table.Schema, error) {
	if r.Table == "" {
		return nil, nil
	}
	s, err := acc.Authz.SchemaFor(ctx, r.Table)
	if err != nil {
		return nil, err
	}
	if r.Family != "" {
		f := s.Family(r.Family)
		if f == nil {
			return nil, &table.NoFamilyError{Table: s.Name, Family: r.Family}
		}
		g.Family = f.ID
	}
	if r.View != "" {
		v := s.View(r.View)
		if v == nil {
			return nil, &table.NoViewError{Table: s.Name, View: r.View}
		}
		g.Family = v.ID
	}
	return s, nil
}

// grantError converts errors about grants to their API form.
func grantError(err error) error {
	switch {
	case errors.Is(err, acl.ErrNoGrant):
		return api.ErrNoGrant
	case errors.Is(err, acl.ErrChanged):
		return api.ErrGrantsChanged
	case errors.Is(err, acl.ErrImplied), errors.Is(err, acl.ErrClusterRight):
		return reply.BadRequest(err)
	case errors.Is(err, acl.ErrTooMany):
		return &table.LimitError{What: "grants on a table, or on the cluster", Limit: acl.GrantsMax, Got: acl.GrantsMax + 1}
	}
	return err
}

// listGrants returns the grants on a table, or all.
func (acc *Service) listGrants(ctx context.Context, caller *authz.Subject, r *api.ListGrantsRequest) (*api.Grants, error) {
	s, t, err := acc.Authz.Administers(ctx, caller, r.Table)
	if err != nil {
		return nil, err
	}
	all := &api.Grants{}
	all.Grants, err = acc.grantsOn(ctx, s, func(to string) bool { return r.Principal == "" || r.Principal == to })
	if err != nil {
		return nil, err
	}
	if caller.Restricted() && !acc.Authz.Rights.Holds(caller, t) {
		return nil, authz.ErrRightsMoved
	}
	return all, nil
}

// grantsOn returns the grants on a table, or on the cluster and all tables if s is nil, of principals for which wanted returns true.
func (acc *Service) grantsOn(ctx context.Context, s *table.Schema, wanted func(principal string) bool) (all []api.GrantInfo, err error) {
	schemas := []*table.Schema{s}
	if s == nil {
		if schemas, err = acc.allSchemas(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range schemas {
		p, _, err := acc.policies.get(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		for _, g := range p.Prune(s).Grants {
			if wanted(g.Principal) {
				all = append(all, grantInfo(s, g))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b api.GrantInfo) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Family, b.Family), cmp.Compare(a.View, b.View))
	})
	return all, nil
}

// allSchemas returns the schemas of all tables, after an empty one for the cluster.
func (acc *Service) allSchemas(ctx context.Context) ([]*table.Schema, error) {
	names, err := acc.Catalog.Names(ctx)
	if err != nil {
		return nil, err
	}
	schemas := []*table.Schema{{}}
	for _, name := range names {
		if s, err := acc.Authz.SchemaFor(ctx, name); err == nil {
			schemas = append(schemas, s)
		} else if !errors.Is(err, api.ErrNoTable) {
			return nil, err
		}
	}
	return schemas, nil
}

func grantInfo(s *table.Schema, g acl.Grant) api.GrantInfo {
	i := api.GrantInfo{Principal: g.Principal, Table: s.Name, Rights: g.Rights.String()}
	for _, f := range s.Families {
		if f.ID == g.Family {
			i.Family = f.Name
		}
	}
	for _, v := range s.Views {
		if v.ID == g.Family {
			i.View = v.Name
		}
	}
	return i
}

// PruneGrants removes the grants on families that were dropped, within the change that drops them; s is the table's new schema.
func (acc *Service) PruneGrants(ctx context.Context, s *table.Schema) {
	if acc.Authz.Open {
		return
	}
	p, _, err := acc.policies.get(ctx, s.ID)
	if err == nil && len(p.Prune(s).Grants) < len(p.Grants) {
		err = acc.policies.edit(ctx, s.ID, func(p *acl.Policy) (*acl.Policy, error) { return p.Prune(s), nil })
		if err == nil {
			_, err = acc.nextEpoch(ctx)
		}
	}
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		acc.Log.Warn("grants of dropped family not removed", "table", s.Name, "err", err)
	}
}
