package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// Grant gives rights to a principal.
type Grant = api.GrantInfo

// Everyone is the principal of grants to all principals of the cluster.
const Everyone = api.Everyone

// Grants administers the rights of principals.
type Grants struct{ calls *caller }

// Grants returns the administration of rights.
func (c *Client) Grants() Grants { return Grants{&c.calls} }

// Add gives a principal rights, in addition to existing ones. When it returns, the rights are in
// effect on all servers. It requires the right to administer the table, or the cluster if the grant
// names no table. Errors: ErrNoUser, ErrNoTable, ErrNoFamily, ErrPermission, *table.LimitError,
// *AmbiguousError, and those of Tables.List.
func (g Grants) Add(ctx context.Context, grant Grant) error {
	return g.change(ctx, api.MethodGrant, grant)
}

// Revoke removes rights from exactly this grant: on the cluster, the table, the family or the view. When it
// returns, no server answers requests by these rights. Errors: ErrNoGrant, ErrLastAdmin, and those
// of Add.
func (g Grants) Revoke(ctx context.Context, grant Grant) error {
	return g.change(ctx, api.MethodRevoke, grant)
}

// Set replaces the grants on a table as a whole, on a view of it, or, without a table, on the cluster: from must have their principals and
// rights, and to has those that follow. It is one change, which is made as a whole or not at all. When it returns, it is in effect on all servers.
// Errors: api.ErrGrantsChanged, ErrLastAdmin, and those of Add.
func (g Grants) Set(ctx context.Context, tableName, view string, from, to []Grant) error {
	req := api.SetGrantsRequest{Table: tableName, View: view, From: principalRights(from), To: principalRights(to)}
	return g.calls.do(ctx, &call{method: api.MethodSetGrants, change: true, encode: req.Append})
}

func principalRights(grants []Grant) (all []api.PrincipalRights) {
	for _, g := range grants {
		all = append(all, api.PrincipalRights{Principal: g.Principal, Rights: g.Rights})
	}
	return all
}

func (g Grants) change(ctx context.Context, method string, grant Grant) error {
	req := api.GrantRequest{Principal: grant.Principal, Rights: grant.Rights, Table: grant.Table, Family: grant.Family, View: grant.View}
	return g.calls.do(ctx, &call{method: method, change: true, encode: req.Append})
}

// List returns the grants on a table to a principal. An empty table selects all grants, an empty
// principal all principals. It requires the right to administer the table, or the cluster. Errors:
// ErrNoTable, ErrPermission, and those of Tables.List.
func (g Grants) List(ctx context.Context, tableName, principal string) ([]Grant, error) {
	req := api.ListGrantsRequest{Principal: principal, Table: tableName}
	var all api.Grants
	err := g.calls.do(ctx, &call{method: api.MethodListGrants, safe: true, encode: req.Append, decode: all.Decode})
	return all.Grants, err
}
