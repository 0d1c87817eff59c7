package backupdir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// Access is the state of a cluster around its tables: users without their credentials, rights, owners and quotas.
type Access struct {
	Users  []User            `json:"users"`
	Grants []Grant           `json:"grants"`
	Owners map[string]string `json:"owners"` // users by table
	Quotas []Quota           `json:"quotas"`
}

// User is a user, or another principal.
type User struct {
	Name     string `json:"name"`
	Disabled bool   `json:"disabled,omitempty"`
}

// Grant is a grant. An empty table means the cluster, an empty family and view the whole table.
type Grant struct {
	Principal string `json:"principal"`
	Table     string `json:"table,omitempty"`
	Family    string `json:"family,omitempty"`
	Rights    string `json:"rights"`
	View      string `json:"view,omitempty"`
}

// Quota is one bound of a quota of a table or user.
type Quota struct {
	Of      string `json:"of"`
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Limit   int64  `json:"limit"`
	BurstMS int64  `json:"burst_ms,omitempty"`
}

// ReadAccess reads the access of a cluster, as far as it is about these tables; all of it if they are all tables. It has no users and grants
// if the cluster has no access control. Errors: those of the lists.
func ReadAccess(ctx context.Context, c *client.Client, tables []string) (*Access, error) {
	x := &Access{Owners: map[string]string{}}
	if err := x.readUsers(ctx, c); err != nil && !errors.Is(err, client.ErrOpenCluster) {
		return nil, err
	}
	quotas, err := c.Quotas().List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range quotas {
		for _, b := range quotas[i].Bounds {
			x.Quotas = append(x.Quotas, Quota{quotas[i].Of, quotas[i].Name, b.Kind, b.Limit, b.BurstMS})
		}
	}
	usage, err := c.Tables().Usage(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range usage.Tables {
		if t := &usage.Tables[i]; t.Owner != "" {
			x.Owners[t.Name] = t.Owner
		}
	}
	schemas, err := c.Tables().List(ctx)
	if slices.ContainsFunc(schemas, func(s *table.Schema) bool { return !slices.Contains(tables, s.Name) }) {
		x.restrict(tables)
	}
	return x, err
}

// restrict leaves out what is not about these tables.
func (x *Access) restrict(tables []string) {
	named := map[string]bool{}
	x.Grants = slices.DeleteFunc(x.Grants, func(g Grant) bool {
		has := slices.Contains(tables, g.Table)
		named[g.Principal] = named[g.Principal] || has
		return !has
	})
	maps.DeleteFunc(x.Owners, func(t, user string) bool {
		has := slices.Contains(tables, t)
		named[user] = named[user] || has
		return !has
	})
	x.Quotas = slices.DeleteFunc(x.Quotas, func(q Quota) bool { return q.Of != client.QuotaOfTable || !slices.Contains(tables, q.Name) })
	x.Users = slices.DeleteFunc(x.Users, func(u User) bool { return !named[u.Name] })
}

func (x *Access) readUsers(ctx context.Context, c *client.Client) error {
	users, err := c.Users().List(ctx)
	if err != nil {
		return err
	}
	for i := range users {
		x.Users = append(x.Users, User{users[i].Name, users[i].Disabled})
	}
	grants, err := c.Grants().List(ctx, "", "")
	for _, g := range grants {
		x.Grants = append(x.Grants, Grant(g))
	}
	return err
}

// Skipped is what Apply has left out, because the cluster lacks it.
type Skipped struct{ Users, Tables []string }

// Apply gives a cluster the rights, owners and quotas. It creates no user, and takes no right away; what is about users or tables that the
// cluster lacks is left out. It may be repeated. Errors: client.ErrOpenCluster if there are grants, those of the changes.
func (x *Access) Apply(ctx context.Context, c *client.Client) (Skipped, error) {
	a := &applying{ctx: ctx, c: c, users: map[string]bool{"": true, client.Everyone: true}, tables: map[string]bool{"": true}}
	if err := a.read(len(x.Grants) > 0); err != nil {
		return a.skipped, err
	}
	for _, g := range x.Grants {
		if a.has(g.Principal, g.Table) {
			if err := c.Grants().Add(ctx, client.Grant(g)); err != nil && !errors.Is(err, client.ErrNoFamily) && !errors.Is(err, table.ErrNoView) {
				return a.skipped, fmt.Errorf("grant %s to %q: %w", g.Rights, g.Principal, err)
			}
		}
	}
	for name, user := range x.Owners {
		if a.has(user, name) {
			if err := c.Tables().SetOwner(ctx, name, user); err != nil {
				return a.skipped, fmt.Errorf("set the owner of table %q: %w", name, err)
			}
		}
	}
	for _, q := range x.Quotas {
		if q.Of == client.QuotaOfTable && a.has("", q.Name) || q.Of == client.QuotaOfUser && a.has(q.Name, "") {
			if err := c.Quotas().Set(ctx, q.Of, q.Name, map[string]int64{q.Kind: q.Limit}, time.Duration(q.BurstMS)*time.Millisecond); err != nil {
				return a.skipped, fmt.Errorf("set the quota of %s %q: %w", q.Of, q.Name, err)
			}
		}
	}
	return a.skipped, nil
}

// applying is an Apply at work.
type applying struct {
	ctx           context.Context // of the call
	c             *client.Client
	users, tables map[string]bool // that the cluster has
	skipped       Skipped
}

// read reads the users and tables of the cluster.
func (a *applying) read(needUsers bool) error {
	users, err := a.c.Users().List(a.ctx)
	if err != nil && (needUsers || !errors.Is(err, client.ErrOpenCluster)) {
		return err
	}
	for i := range users {
		a.users[users[i].Name] = true
	}
	schemas, err := a.c.Tables().List(a.ctx)
	for _, s := range schemas {
		a.tables[s.Name] = true
	}
	return err
}

// has reports whether the cluster has a user and a table, and notes what it lacks.
func (a *applying) has(user, tableName string) bool {
	if !a.users[user] && !slices.Contains(a.skipped.Users, user) {
		a.skipped.Users = append(a.skipped.Users, user)
	}
	if !a.tables[tableName] && !slices.Contains(a.skipped.Tables, tableName) {
		a.skipped.Tables = append(a.skipped.Tables, tableName)
	}
	return a.users[user] && a.tables[tableName]
}
