package node

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// methodUsage asks a node what a table takes there, by its id, or each if that is 0.
const methodUsage = "tablet.usage"

// usageTimeout bounds how long a node is waited for that is asked what it serves.
const usageTimeout = 5 * time.Second

// handleUsage registers what tells what tables take.
func (n *Node) handleUsage() {
	n.handleNames(api.MethodUsage, 1, n.usage)
	n.handle(methodUsage, rpc.Spawned, func(c *rpc.Call) {
		id := c.Params.Uint()
		if err := c.Params.Err(); err != nil {
			fail(c, err)
			return
		}
		c.Reply(n.usageHere(id).Append)
	})
}

// usage tells what a table takes, or each.
func (n *Node) usage(ctx context.Context, r *api.NamesRequest) (answer, error) {
	name := r.Names[0]
	s, err := n.accountOf(ctx, name)
	if err != nil {
		return nil, err
	}
	id := uint64(0)
	if s != nil {
		id = s.ID
	}
	all, err := n.usageOfAll(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(all.Tables) == 0 && name != "" { // nobody serves it now
		all.Tables = []api.TableUsage{{Name: name, Unserved: -1}}
	}
	if err := n.addOwners(ctx, all); err != nil {
		return nil, err
	}
	return all.Append, nil
}

// addOwners says whose the tables are.
func (n *Node) addOwners(ctx context.Context, all *api.Usage) error {
	if n.security == nil {
		return nil
	}
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	for i := range all.Tables {
		t := &all.Tables[i]
		if s, _, err := readSchema(ctx, n.meta.current(), t.Name); err == nil {
			t.Owner = owners[s.ID]
		}
	}
	return nil
}

// accountOf returns a table whose figures the caller whom ctx has may see: its administrators
// may. Those of all tables, if there is no name, who may read the cluster.
func (n *Node) accountOf(ctx context.Context, name string) (*table.Schema, error) {
	who := subjectIn(ctx)
	if who == nil {
		if name == "" {
			return nil, nil
		}
		return n.schemaOf(ctx, name)
	}
	if name == "" || name == metadata.Name {
		if _, err := n.rights.check(ctx, who, acl.Read); err != nil || name == "" {
			return nil, err
		}
		return metadata.Schema(), nil
	}
	v, _, err := n.seeTable(ctx, who, name)
	if err != nil {
		return nil, err
	}
	return v.Schema(), toldElement(v.CheckTable(acl.Admin))
}

// usageOfAll asks all nodes what a table takes, or each.
func (n *Node) usageOfAll(ctx context.Context, tableID uint64) (*api.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	sum := usageSum{answered: map[string]bool{}}
	var where placement
	asked.Go(func() { where = n.placement(ctx, tableID) })
	for _, m := range n.fleetOf.Members() {
		if !m.Alive && m.ID != n.id() {
			continue // if it should serve something, METADATA says so
		}
		asked.Go(func() {
			here := &api.Usage{}
			err := n.peers.call(ctx, m.ID, methodUsage, func(e *wire.Encoder) {
				e.Array(1)
				e.Uint(tableID)
			}, here.Decode)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				n.log.Debug("ask a node what its tables take", "node", m.ID, "error", err)
				sum.silent = append(sum.silent, m.ID)
				return
			}
			sum.answered[m.ID] = true
			sum.add(here)
		})
	}
	asked.Wait()
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, ctx.Err()
	}
	sum.addUnserved(&where)
	return sum.result(), nil
}

// usageHere is what tables take on this node.
func (n *Node) usageHere(tableID uint64) *api.Usage {
	s := n.server.Load()
	u := &api.Usage{}
	for _, x := range append(s.metadata.Usage(tableID), s.tablets.Usage(tableID)...) {
		u.Tables = append(u.Tables, toldUsage(&x))
	}
	return u
}

func toldUsage(x *tablet.Usage) api.TableUsage {
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

// usageSum adds up what nodes have told.
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

// result returns the sum by name, of families those that were dropped last.
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

// accountedTables bounds the tables that have metrics of their own.
const accountedTables = 1000

// collectUsage tells what tables take.
func (c *collector) collectUsage(m sender) {
	for _, t := range accounted(c.node.server.Load().tablets.Sizes()) {
		m.tableSize(&t)
	}
}

// accounted leaves of tables the largest; the others are one together.
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

// collectQuotas tells how often each quota has refused a request: of the first by name each its own, of the others together.
func (c *collector) collectQuotas(m sender) {
	set := c.node.quotas.meters.Load()
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
	m.gauge("table_memtable_bytes", "Bytes of the memtables of a table's tablets on this node.", float64(t.MemtableBytes), "table", t.Table)
}
