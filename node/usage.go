package node

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/node/authz"

	"github.com/steledb/stele/node/namespace"

	"github.com/steledb/stele/node/reply"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// methodUsage returns a node's usage of a table by id, or of all tables if the id is 0.
const methodUsage = "tablet.usage"

// usageTimeout bounds the wait for a node's usage.
const usageTimeout = 5 * time.Second

// handleUsage registers the methods that report usage.
func (qs *quotaService) handleUsage(r registrar) {
	r.handleNames(api.MethodUsage, 1, qs.usage)
	r.handle(methodUsage, rpc.Spawned, func(c *rpc.Call) {
		id := c.Params.Uint()
		if err := c.Params.Err(); err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(qs.usageHere(id).Append)
	})
}

// usage returns the usage of a table, or of all tables.
func (qs *quotaService) usage(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	name := r.Names[0]
	s, err := qs.accountOf(ctx, name)
	if err != nil {
		return nil, err
	}
	id := uint64(0)
	if s != nil {
		id = s.ID
	}
	all, err := qs.usageOfAll(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(all.Tables) == 0 && name != "" { // no node serves it now
		all.Tables = []api.TableUsage{{Name: name, Unserved: -1}}
	}
	if err := qs.addOwners(ctx, all); err != nil {
		return nil, err
	}
	return all.Append, nil
}

// addOwners adds the owners of the tables.
func (qs *quotaService) addOwners(ctx context.Context, all *api.Usage) error {
	if qs.authz.Open {
		return nil
	}
	owners, err := qs.owners(ctx)
	if err != nil {
		return err
	}
	for i := range all.Tables {
		t := &all.Tables[i]
		if s, _, err := namespace.ReadSchema(ctx, qs.meta.Current(), t.Name); err == nil {
			t.Owner = owners[s.ID]
		}
	}
	return nil
}

// accountOf returns the table whose usage the subject of ctx may see: its administrators may. Without a name it is all tables, for subjects
// that may read the cluster.
func (qs *quotaService) accountOf(ctx context.Context, name string) (*table.Schema, error) {
	caller := authz.SubjectIn(ctx)
	if caller == nil {
		if name == "" {
			return nil, nil
		}
		return qs.catalog.SchemaOf(ctx, name)
	}
	if name == "" || name == metadata.Name {
		if _, err := qs.authz.Rights.Check(ctx, caller, acl.Read); err != nil || name == "" {
			return nil, err
		}
		return metadata.Schema(), nil
	}
	v, _, err := qs.authz.SeeTable(ctx, caller, name)
	if err != nil {
		return nil, err
	}
	return v.Schema(), authz.ElementPermission(v.CheckTable(acl.Admin))
}

// usageOfAll collects the usage of a table, or of all tables, from all nodes.
func (qs *quotaService) usageOfAll(ctx context.Context, tableID uint64) (*api.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	var mu sync.Mutex
	var changeRequest sync.WaitGroup
	sum := usageSum{answered: map[string]bool{}}
	var where placement
	changeRequest.Go(func() { where = qs.rows().placement(ctx, tableID, qs.meta) })
	for _, m := range qs.members() {
		if !m.Alive && m.ID != qs.id() {
			continue // METADATA has what it should serve
		}
		changeRequest.Go(func() {
			here := &api.Usage{}
			err := qs.peers.call(ctx, m.ID, methodUsage, func(e *wire.Encoder) {
				e.Array(1)
				e.Uint(tableID)
			}, here.Decode)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				qs.log.Debug("usage of node not received", "node", m.ID, "err", err)
				sum.silent = append(sum.silent, m.ID)
				return
			}
			sum.answered[m.ID] = true
			sum.add(here)
		})
	}
	changeRequest.Wait()
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, ctx.Err()
	}
	sum.addUnserved(&where)
	return sum.result(), nil
}

// usageHere returns the usage of tables on this node.
func (qs *quotaService) usageHere(tableID uint64) *api.Usage {
	s := qs.server()
	u := &api.Usage{}
	for _, x := range append(s.metadata.Usage(tableID), s.tablets.Usage(tableID)...) {
		u.Tables = append(u.Tables, usageResult(&x))
	}
	return u
}

func usageResult(x *tablet.Usage) api.TableUsage {
	t := api.TableUsage{
		Name: x.Table, Tablets: int64(x.Tablets), Files: int64(x.Files), DiskBytes: x.DiskBytes, UndividedBytes: x.UndividedBytes,
		MemtableBytes: x.MemtableBytes, InMemoryBytes: x.InMemoryBytes,
	}
	for _, f := range x.Families {
		t.Families = append(t.Families, api.FamilyUsage{
			Name: f.Name, Group: f.Group, DiskBytes: f.DiskBytes, MemtableBytes: f.MemtableBytes, InMemoryBytes: f.InMemoryBytes, Files: int64(f.Files),
		})
	}
	return t
}

// usageSum adds up the usage of nodes.
type usageSum struct {
	tables   map[string]*api.TableUsage
	answered map[string]bool // nodes
	silent   []string        // nodes
}

func (s *usageSum) add(u *api.Usage) {
	if s.tables == nil {
		s.tables = map[string]*api.TableUsage{}
	}
	for _, x := range u.Tables {
		t := s.tables[x.Name]
		if t == nil {
			s.tables[x.Name] = &x
			continue
		}
		t.Tablets += x.Tablets
		t.Files += x.Files
		t.DiskBytes += x.DiskBytes
		t.UndividedBytes += x.UndividedBytes
		t.MemtableBytes += x.MemtableBytes
		t.InMemoryBytes += x.InMemoryBytes
		for _, f := range x.Families {
			i := slices.IndexFunc(t.Families, func(o api.FamilyUsage) bool { return o.Name == f.Name })
			if i < 0 {
				t.Families = append(t.Families, f)
				continue
			}
			o := &t.Families[i]
			o.DiskBytes += f.DiskBytes
			o.MemtableBytes += f.MemtableBytes
			o.InMemoryBytes += f.InMemoryBytes
			o.Files += f.Files
		}
	}
}

// result returns the sum by table name; dropped families come last.
func (s *usageSum) result() *api.Usage {
	slices.Sort(s.silent)
	u := &api.Usage{Silent: slices.Compact(s.silent)}
	for _, t := range s.tables {
		slices.SortFunc(t.Families, func(a, b api.FamilyUsage) int {
			if (a.Name == "") != (b.Name == "") {
				return -cmp.Compare(a.Name, b.Name)
			}
			return cmp.Compare(a.Name, b.Name)
		})
		u.Tables = append(u.Tables, *t)
	}
	slices.SortFunc(u.Tables, func(a, b api.TableUsage) int { return cmp.Compare(a.Name, b.Name) })
	return u
}

// accountedTables bounds the tables that have their own metrics.
const accountedTables = 1000

// collectUsage collects the metrics of tables' sizes.
func (c *collector) collectUsage(m sender) {
	for _, t := range accounted(c.node.server.Load().tablets.Sizes()) {
		m.tableSize(&t)
	}
}

// accounted returns the largest tables, and the sum of all others as one.
func accounted(all []tablet.TableSize) []tablet.TableSize {
	if len(all) <= accountedTables {
		return all
	}
	slices.SortFunc(all, func(a, b tablet.TableSize) int {
		return cmp.Or(cmp.Compare(b.DiskBytes+b.MemtableBytes, a.DiskBytes+a.MemtableBytes), cmp.Compare(a.Table, b.Table))
	})
	rest := tablet.TableSize{Table: "(other)"}
	for _, t := range all[accountedTables:] {
		rest.DiskBytes += t.DiskBytes
		rest.MemtableBytes += t.MemtableBytes
	}
	return append(all[:accountedTables:accountedTables], rest)
}

// collectQuotas collects the numbers of requests refused for quotas: for the first quotas by name each, and for the others together.
func (c *collector) collectQuotas(m sender) {
	set := c.node.quotas.state.meters.Load()
	if set == nil {
		return
	}
	rest := [quota.Kinds]int64{}
	for i, key := range slices.Sorted(maps.Keys(set.of)) {
		n := set.of[key].Refusals()
		for k := range n {
			if i >= accountedTables {
				rest[k] += n[k]
			} else if set.of[key].Record().Rates[k].PerSecond > 0 {
				m.quotaRefusals(set.of[key].Name(), k, n[k])
			}
		}
	}
	for k := range rest {
		if len(set.of) > accountedTables {
			m.quotaRefusals("(other)", k, rest[k])
		}
	}
}

func (m sender) quotaRefusals(of string, k int, n int64) {
	m.counter("quota_refusals_total", "Requests rejected on this node because of a rate quota. Above 1000 quotas the others are summed as (other).", float64(n), "quota", of, "kind", rateKinds[k])
}

func (m sender) tableSize(t *tablet.TableSize) {
	m.gauge("table_disk_bytes", "Bytes of the SSTables of a table's tablets on this node, not counting replicas. Above 1000 tables the smallest are summed as (other).",
		float64(t.DiskBytes), "table", t.Table)
	m.gauge("table_memtable_bytes", "Bytes of the memtables of a table's tablets on this node. Above 1000 tables the smallest are summed as (other).", float64(t.MemtableBytes), "table", t.Table)
}
