// Package usage reports how many bytes, files and tablets tables have, by locality group and family (paper §2.1: accounting by family). A
// node asks all others and adds up their answers; what no node reports is counted by METADATA. One goroutine asks each node, for the time
// of a request.
package usage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Method returns a node's usage of a table by id, or of all tables if the id is 0.
const Method = "tablet.usage"

// timeout bounds the wait for a node's usage.
const timeout = 5 * time.Second

// Service reports the bytes and tablets of tables.
type Service struct{ Config }

// Config has what the service needs of the node.
type Config struct {
	Log     *slog.Logger
	Catalog *namespace.Catalog
	Meta    *namespace.Access
	Authz   *authz.Authorizer
	Peers   *peers.Set
	ID      func() string // the node's
	Members func() []blobfs.Member
	Rows    func() *metarows.Table
	// Owners returns the owners of tables by id.
	Owners func(ctx context.Context) (map[uint64]string, error)
	// Users and Metadata return the current tablet servers.
	Users, Metadata func() *tablet.Server
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers the methods of the service.
func (us *Service) Register(r method.Registrar) {
	r.HandleNames(api.MethodUsage, 1, authz.Guard{To: authz.Known}, us.serve)
	r.Handle(Method, rpc.Spawned, authz.Guard{}, func(c *rpc.Call) {
		id := c.Params.Uint()
		if err := c.Params.Err(); err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(us.here(id).Append)
	})
}

// serve returns the usage of a table, or of all tables.
func (us *Service) serve(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	name := r.Names[0]
	s, err := us.accountOf(ctx, name)
	if err != nil {
		return nil, err
	}
	id := uint64(0)
	if s != nil {
		id = s.ID
	}
	all, err := us.OfAll(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(all.Tables) == 0 && name != "" { // no node serves it now
		all.Tables = []api.TableUsage{{Name: name, Unserved: -1}}
	}
	if err := us.addOwners(ctx, all); err != nil {
		return nil, err
	}
	return all.Append, nil
}

// addOwners adds the owners of the tables.
func (us *Service) addOwners(ctx context.Context, all *api.Usage) error {
	if us.Authz.Open {
		return nil
	}
	owners, err := us.Owners(ctx)
	if err != nil {
		return err
	}
	for i := range all.Tables {
		t := &all.Tables[i]
		if s, _, err := namespace.ReadSchema(ctx, us.Meta.Current(), t.Name); err == nil {
			t.Owner = owners[s.ID]
		}
	}
	return nil
}

// accountOf returns the table whose usage the subject of ctx may see: see Authorizer.MaySeeSizes. Without a name it is all tables, for subjects
// that may read the cluster.
func (us *Service) accountOf(ctx context.Context, name string) (*table.Schema, error) {
	caller := authz.SubjectIn(ctx)
	if caller == nil {
		if name == "" {
			return nil, nil
		}
		return us.Catalog.SchemaOf(ctx, name)
	}
	if name == "" || name == metadata.Name {
		if _, err := us.Authz.Rights.Check(ctx, caller, acl.Read); err != nil || name == "" {
			return nil, err
		}
		return metadata.Schema(), nil
	}
	v, _, err := us.Authz.SeeTable(ctx, caller, name)
	if err != nil {
		return nil, err
	}
	return v.Schema(), us.Authz.MaySeeSizes(ctx, caller, v)
}

// OfAll collects the usage of a table, or of all tables, from all nodes.
func (us *Service) OfAll(ctx context.Context, tableID uint64) (*api.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	total := sum{answered: map[string]bool{}}
	var where metarows.Placement
	group.Go(func() { where = us.Rows().Placement(ctx, tableID, us.Meta) })
	for _, m := range us.Members() {
		if !m.Alive && m.ID != us.ID() {
			continue // METADATA has what it should serve
		}
		group.Go(func() {
			here := &api.Usage{}
			err := us.Peers.Call(ctx, m.ID, Method, func(e *wire.Encoder) {
				e.Array(1)
				e.Uint(tableID)
			}, here.Decode)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				us.Log.Debug("usage of node not received", "node", m.ID, "err", err)
				total.silent = append(total.silent, m.ID)
				return
			}
			total.answered[m.ID] = true
			total.add(here)
		})
	}
	group.Wait()
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, ctx.Err()
	}
	total.addUnserved(&where)
	return total.result(), nil
}

// here returns the usage of tables on this node.
func (us *Service) here(tableID uint64) *api.Usage {
	u := &api.Usage{}
	for _, x := range append(us.Metadata().Usage(tableID), us.Users().Usage(tableID)...) {
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

// sum adds up the usage of nodes.
type sum struct {
	tables   map[string]*api.TableUsage
	answered map[string]bool // nodes
	silent   []string        // nodes
}

func (s *sum) add(u *api.Usage) {
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
func (s *sum) result() *api.Usage {
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

// Collect collects the metrics of tables' sizes.
func (us *Service) Collect(m metric.Sender) {
	for _, t := range accounted(us.Users().Sizes()) {
		sendTableSize(m, &t)
	}
}

// accounted returns the largest tables, and the sum of all others as one.
func accounted(all []tablet.TableSize) []tablet.TableSize {
	if len(all) <= metric.LabelsMax {
		return all
	}
	slices.SortFunc(all, func(a, b tablet.TableSize) int {
		return cmp.Or(cmp.Compare(b.DiskBytes+b.MemtableBytes, a.DiskBytes+a.MemtableBytes), cmp.Compare(a.Table, b.Table))
	})
	rest := tablet.TableSize{Table: "(other)"}
	for _, t := range all[metric.LabelsMax:] {
		rest.DiskBytes += t.DiskBytes
		rest.MemtableBytes += t.MemtableBytes
	}
	return append(all[:metric.LabelsMax:metric.LabelsMax], rest)
}

func sendTableSize(m metric.Sender, t *tablet.TableSize) {
	m.Gauge("table_disk_bytes", "Bytes of the SSTables of a table's tablets on this node, not counting replicas. Above 1000 tables the smallest are summed as (other).",
		float64(t.DiskBytes), "table", t.Table)
	m.Gauge("table_memtable_bytes", "Bytes of the memtables of a table's tablets on this node. Above 1000 tables the smallest are summed as (other).", float64(t.MemtableBytes), "table", t.Table)
}

// addUnserved adds the number of tablets that no node has reported, and the nodes that should have reported them.
func (s *sum) addUnserved(w *metarows.Placement) {
	if w.Err != nil {
		for _, t := range s.tables {
			t.Unserved = -1
		}
		return
	}
	for id, servers := range w.Tablets {
		all, lost := int64(0), int64(0)
		for server, tablets := range servers {
			all += tablets
			node := namespace.NodeOf(server)
			if s.answered[node] && w.Alive[namespace.UserServer(server)] {
				continue
			}
			lost += tablets
			if node != "" && !s.answered[node] {
				s.silent = append(s.silent, node)
			}
		}
		if name := w.Names[id]; name != "" { // otherwise it was dropped
			t := s.table(name)
			t.Unserved = max(lost, all-t.Tablets) // a server may not have loaded an assigned tablet yet
		}
	}
}

// table returns a table's entry in the sum, and creates it if needed.
func (s *sum) table(name string) *api.TableUsage {
	if s.tables == nil {
		s.tables = map[string]*api.TableUsage{}
	}
	if s.tables[name] == nil {
		s.tables[name] = &api.TableUsage{Name: name}
	}
	return s.tables[name]
}
