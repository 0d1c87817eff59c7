package client

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
)

// Types of quotas.
type (
	// Quota is a quota of a table or of a principal.
	Quota = api.QuotaInfo
	// QuotaBound is one bound of a Quota.
	QuotaBound = api.QuotaBound
)

// Objects of quotas: the values of Quota.Of.
const (
	QuotaOfTable = api.QuotaOfTable
	QuotaOfUser  = api.QuotaOfUser
)

// QuotaChange is a change of a quota: bounds to set and bounds to remove.
type QuotaChange struct {
	// Of is QuotaOfTable or QuotaOfUser; Name is the name of the table or principal.
	Of, Name string
	// Bounds is by kind: api.QuotaBytes, api.QuotaReadOps and so on. Each value is at least 1.
	Bounds map[string]int64
	// Unbounded lists the kinds whose bounds are removed. A kind that is in neither Bounds nor
	// Unbounded keeps its bound.
	Unbounded []string
	// Burst applies to the rates in Bounds: how much of a rate may be used at once after a pause.
	// Zero means one second's worth.
	Burst time.Duration
}

// SetQuota sets bounds of the quota of a table or principal. Errors: those of ChangeQuota.
func (c *Client) SetQuota(ctx context.Context, of, name string, bounds map[string]int64, burst time.Duration) error {
	return c.ChangeQuota(ctx, QuotaChange{Of: of, Name: name, Bounds: bounds, Burst: burst})
}

// ChangeQuota changes the quota of a table or principal. It takes effect at once on the node that
// makes the change, and within a second on all others. It requires the right to administer the
// cluster. Errors: ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of Tables.
func (c *Client) ChangeQuota(ctx context.Context, q QuotaChange) error {
	req := api.SetQuotaRequest{Of: q.Of, Name: q.Name, Bounds: q.Bounds, Unbounded: q.Unbounded, Burst: q.Burst}
	return c.do(ctx, &call{method: api.MethodSetQuota, change: true, safe: true, encode: req.Append})
}

// RemoveQuota removes all bounds of a quota. Errors: ErrNoQuota, and those of SetQuota.
func (c *Client) RemoveQuota(ctx context.Context, of, name string) error {
	req := api.NamesRequest{Names: []string{of, name}}
	return c.do(ctx, &call{method: api.MethodRemoveQuota, change: true, encode: req.Append})
}

// SetOwner sets the owner of a table: the principal whose byte quota the table counts against. An
// empty name removes the owner. At first this is the principal that created the table. Ownership
// grants no rights; Usage shows it. It requires the right to administer the cluster. Errors:
// ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of Tables.
func (c *Client) SetOwner(ctx context.Context, tableName, user string) error {
	req := api.NamesRequest{Names: []string{tableName, user}}
	return c.do(ctx, &call{method: api.MethodSetOwner, change: true, safe: true, encode: req.Append})
}

// Quotas returns all quotas: those of tables, then those of principals, sorted by name. It requires
// the right to read the cluster. Errors: ErrPermission, and those of Tables.
func (c *Client) Quotas(ctx context.Context) ([]Quota, error) {
	var all api.Quotas
	err := c.query(ctx, api.MethodListQuotas, nil, all.Decode)
	return all.Quotas, err
}
