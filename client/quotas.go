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
	// QuotaBound is one bound of it.
	QuotaBound = api.QuotaBound
)

// What quotas are of: Quota.Of.
const (
	QuotaOfTable = api.QuotaOfTable
	QuotaOfUser  = api.QuotaOfUser
)

// QuotaChange is a change of a quota: bounds to set, and kinds to leave without a bound.
type QuotaChange struct {
	// Of is QuotaOfTable or QuotaOfUser, Name is that of the table or the principal.
	Of, Name string
	// Bounds are by kind: api.QuotaBytes, api.QuotaReadOps and so on. Each is at least 1.
	Bounds map[string]int64
	// Unbounded lists the kinds whose bounds are removed. A kind that is neither here nor in Bounds keeps its bound.
	Unbounded []string
	// Burst, for the rates in Bounds, is how much of a rate may be used at once after a pause: a second if it is zero.
	Burst time.Duration
}

// SetQuota sets bounds of a table's or a principal's quota: a QuotaChange without kinds to unbound. Errors: those of
// ChangeQuota.
func (c *Client) SetQuota(ctx context.Context, of, name string, bounds map[string]int64, burst time.Duration) error {
	return c.ChangeQuota(ctx, QuotaChange{Of: of, Name: name, Bounds: bounds, Burst: burst})
}

// ChangeQuota changes the quota of a table or a principal. The node that makes the change goes by it at once, all others a second after. It takes the right to administer the
// cluster. Errors: ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of Tables.
func (c *Client) ChangeQuota(ctx context.Context, q QuotaChange) error {
	req := api.SetQuotaRequest{Of: q.Of, Name: q.Name, Bounds: q.Bounds, Unbounded: q.Unbounded, Burst: q.Burst}
	return c.do(ctx, &call{method: api.MethodSetQuota, change: true, safe: true, encode: req.Append})
}

// RemoveQuota takes all bounds of a quota away. Errors: ErrNoQuota, and those of SetQuota.
func (c *Client) RemoveQuota(ctx context.Context, of, name string) error {
	req := api.NamesRequest{Names: []string{of, name}}
	return c.do(ctx, &call{method: api.MethodRemoveQuota, change: true, encode: req.Append})
}

// SetOwner gives a table to a principal, or to nobody if the name is empty: what it takes counts for his quota of bytes. It gives
// him no right. Usage tells whose tables are; first they are of who has made them. It takes the right to administer the cluster.
// Errors: ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of Tables.
func (c *Client) SetOwner(ctx context.Context, tableName, user string) error {
	req := api.NamesRequest{Names: []string{tableName, user}}
	return c.do(ctx, &call{method: api.MethodSetOwner, change: true, safe: true, encode: req.Append})
}

// Quotas returns all quotas: those of tables, then those of principals, by name. It takes the right to read the
// cluster. Errors: ErrPermission, and those of Tables.
func (c *Client) Quotas(ctx context.Context) ([]Quota, error) {
	var all api.Quotas
	err := c.ask(ctx, api.MethodListQuotas, nil, all.Decode)
	return all.Quotas, err
}
