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

// Quotas administers the quotas of tables and principals.
type Quotas struct{ calls *caller }

// Quotas returns the administration of quotas.
func (c *Client) Quotas() Quotas { return Quotas{&c.calls} }

// Set sets bounds of the quota of a table or principal. Errors: those of Change.
func (q Quotas) Set(ctx context.Context, of, name string, bounds map[string]int64, burst time.Duration) error {
	return q.Change(ctx, QuotaChange{Of: of, Name: name, Bounds: bounds, Burst: burst})
}

// Change changes the quota of a table or principal. It takes effect at once on the node that makes
// the change, and within a second on all others. It requires the right to administer the cluster.
// Errors: ErrNoTable, ErrNoUser, ErrPermission, *AmbiguousError, and those of Tables.List.
func (q Quotas) Change(ctx context.Context, change QuotaChange) error {
	req := api.SetQuotaRequest{Of: change.Of, Name: change.Name, Bounds: change.Bounds, Unbounded: change.Unbounded, Burst: change.Burst}
	return q.calls.do(ctx, &call{method: api.MethodSetQuota, change: true, safe: true, encode: req.Append})
}

// Remove removes all bounds of a quota. Errors: ErrNoQuota, and those of Set.
func (q Quotas) Remove(ctx context.Context, of, name string) error {
	req := api.NamesRequest{Names: []string{of, name}}
	return q.calls.do(ctx, &call{method: api.MethodRemoveQuota, change: true, encode: req.Append})
}

// List returns all quotas: those of tables, then those of principals, sorted by name. It requires
// the right to read the cluster. Errors: ErrPermission, and those of Tables.List.
func (q Quotas) List(ctx context.Context) ([]Quota, error) {
	var all api.Quotas
	err := q.calls.query(ctx, api.MethodListQuotas, nil, all.Decode)
	return all.Quotas, err
}
