package keyheat

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/tablet/heat"
)

// MethodSums returns a node's sums of the tables with the most operations.
const MethodSums = "tablet.heat_sums"

// Bounds of hot_tablets.
const (
	summingMax     = 2   // requests that are answered at the same time
	sumTablesMax   = 32  // tables of a node's part
	sumBucketsMax  = 256 // of a table in it
	sumPendingMax  = 4096
	hotTabletsRead = 50_000 // tablets whose places one request reads
)

// sums is what a node had of all tables in a period.
type sums struct {
	node string
	ops  int64 // on all requested tables, also those that are left out
	column
}

// append encodes the sums: [node, ops, column].
func (s *sums) append(e *wire.Encoder, f form) {
	e.Array(3)
	e.Str(s.node)
	e.Int(s.ops)
	s.column.append(e, f)
}

func (s *sums) decode(d *wire.Decoder) error {
	*s = sums{}
	tuple(d, 3, func(int) int {
		s.node, s.ops = d.Str(), d.Int()
		_ = s.column.decode(d) // d keeps the error
		return 0
	})
	return d.Err()
}

// add adds the buckets of the tables of a column that are in names.
func (s *sums) add(c *column, names map[uint64]string) {
	for _, t := range c.tables {
		if _, ok := names[t.table]; !ok {
			continue
		}
		to := s.of(t.table)
		if to.buckets = append(to.buckets, t.buckets...); len(to.buckets) > sumPendingMax {
			to.buckets = heat.Merge(sumBucketsMax, to.buckets)
		}
	}
}

// reduce keeps the tables with the most operations.
func (s *sums) reduce() {
	for _, t := range s.tables {
		t.buckets = heat.Merge(sumBucketsMax, t.buckets)
		s.ops += t.ops()
	}
	slices.SortFunc(s.tables, func(a, b *tableHeat) int { return cmp.Compare(b.ops(), a.ops()) })
	s.tables = s.tables[:min(len(s.tables), sumTablesMax)]
}

// ops returns the number of a table's operations.
func (t *tableHeat) ops() (n int64) {
	for i := range t.buckets {
		n += t.buckets[i].Ops()
	}
	return n
}

// serveHot answers hot_tablets.
func (s *Service) serveHot(c *rpc.Call) {
	var r api.HotTabletsRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	list, err := s.hotTablets(c.Context(), authz.SubjectOf(c), &r)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(list.Append)
}

func (s *Service) hotTablets(ctx context.Context, caller *authz.Subject, r *api.HotTabletsRequest) (*api.HotTabletList, error) {
	now := time.Now()
	p := periodOf(&api.KeyHeatRequest{Since: r.Since, UntilMS: r.UntilMS}, now)
	list := &api.HotTabletList{StartMS: p.from * 60_000, EndMS: min(p.to*60_000, now.UnixMilli())}
	names, err := s.readable(ctx, caller)
	if err != nil || len(names) == 0 {
		return list, err
	}
	for id := range names {
		list.TableIDs = append(list.TableIDs, int64(id))
	}
	slices.Sort(list.TableIDs)
	select {
	case s.summing <- struct{}{}:
		defer func() { <-s.summing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	all, nodes, err := s.gatherSums(ctx, names, p, list)
	if err != nil {
		return nil, err
	}
	if list.Tablets, err = s.hottest(ctx, all, cmp.Or(r.Most, api.HotTablets)); err != nil {
		return nil, err
	}
	for i := range list.Tablets {
		t := &list.Tablets[i]
		t.Table, t.Node = names[t.TableID], cmp.Or(nodes[t.Node], t.Node)
	}
	slices.Sort(list.Silent)
	return list, nil
}

// readable returns the names of the tables that the caller may read as a whole, by their ids.
func (s *Service) readable(ctx context.Context, caller *authz.Subject) (map[uint64]string, error) {
	all, err := s.readsAll(ctx, caller)
	if err != nil {
		return nil, err
	}
	names, err := s.Catalog.Names(ctx)
	if err != nil {
		return nil, err
	}
	readable := map[uint64]string{}
	for _, name := range names {
		schema, _, err := s.Catalog.Schema(ctx, name)
		if errors.Is(err, api.ErrNoTable) { // dropped meanwhile
			continue
		}
		if err == nil && !all {
			var v *acl.View
			if v, _, err = s.Authz.Rights.View(ctx, caller, schema); err == nil && v.CheckTable(acl.Read) != nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		readable[schema.ID] = name
	}
	return readable, nil
}

// gatherSums returns the sums of all nodes, and the names of nodes by their ids.
func (s *Service) gatherSums(ctx context.Context, names map[uint64]string, p period, list *api.HotTabletList) (all *sums, nodes map[string]string, err error) {
	all, nodes = &sums{}, map[string]string{}
	var mu sync.Mutex
	list.Silent, err = s.ask(ctx, func(ctx context.Context, node string) error {
		part := &sums{}
		err := s.Peers.Call(ctx, node, MethodSums, func(e *wire.Encoder) {
			e.Array(5)
			p.append(e)
			e.Array(len(names))
			for id := range names {
				e.Uint(id)
			}
			e.Int(int64(formLatest))
		}, part.decode)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all.column.merge(&part.column)
			list.Ops += part.ops
			nodes[node] = part.node
		}
		return err
	})
	all.reduce()
	return all, nodes, err
}

// hottest returns the tablets with the most operations. Tables are in the order of theirs, so that the first one with fewer than the tablets that
// were found ends the search.
func (s *Service) hottest(ctx context.Context, all *sums, most int) (hot []api.HotTablet, err error) {
	read := 0
	for _, t := range all.tables {
		if t.ops() == 0 || len(hot) == most && t.ops() <= opsOf(&hot[most-1]) || read > hotTabletsRead {
			break
		}
		tablets, err := s.tabletsOf(ctx, t)
		if err != nil {
			return nil, err
		}
		read += len(tablets)
		tablets = slices.DeleteFunc(tablets, func(t api.HotTablet) bool { return opsOf(&t) == 0 })
		hot = append(hot, tablets...)
		slices.SortStableFunc(hot, func(a, b api.HotTablet) int { return cmp.Compare(opsOf(&b), opsOf(&a)) })
		hot = hot[:min(len(hot), most)]
	}
	return hot, nil
}

func opsOf(t *api.HotTablet) int64 { return t.Reads + t.Writes }

// tabletsOf returns the tablets of a table in the order of rows, with its operations divided among them.
func (s *Service) tabletsOf(ctx context.Context, t *tableHeat) (tablets []api.HotTablet, err error) {
	from, to := metadata.TableRange(t.table)
	var starts [][]byte
	var start []byte
	err = s.Rows().Scan(ctx, string(from), string(to), metadata.Places(), func(r *metadata.Row) {
		starts = append(starts, start)
		tablets = append(tablets, api.HotTablet{TableID: t.table, Node: namespace.NodeOf(r.Server), Start: start, End: r.End})
		start = r.End
	})
	if err != nil || len(tablets) == 0 { // it was dropped for good
		return nil, err
	}
	for i := range t.buckets {
		from, to := heat.Overlap(starts, &t.buckets[i])
		heat.Spread(t.buckets[i].Sums, from, to, func(at int, sums heat.Sums) {
			h := &tablets[at]
			h.Reads, h.Writes = h.Reads+sums.Reads, h.Writes+sums.Writes
			h.ReadBytes, h.WriteBytes = h.ReadBytes+sums.ReadBytes, h.WriteBytes+sums.WriteBytes
			h.ReadMicros, h.WriteMicros = h.ReadMicros+sums.ReadMicros, h.WriteMicros+sums.WriteMicros
		})
	}
	return tablets, nil
}

// serveSums answers MethodSums.
func (s *Service) serveSums(c *rpc.Call) {
	p := period{from: c.Params.Int(), to: c.Params.Int(), interval: c.Params.Int()}
	requested := map[uint64]string{}
	for range c.Params.Array() {
		requested[c.Params.Uint()] = ""
	}
	f := formOf(c, 5)
	err := c.Params.Err()
	if err == nil {
		err = p.check()
	}
	var own *sums
	if err == nil {
		own, err = s.sums(requested, p)
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(func(e *wire.Encoder) { own.append(e, f) })
}

// sums returns what this node had of tables in a period.
func (s *Service) sums(requested map[uint64]string, p period) (*sums, error) {
	own := &sums{node: s.Name}
	err := s.each(p, func(c *column) {
		if c.minute >= p.from && c.minute < p.to {
			own.add(c, requested)
		}
	})
	if err != nil {
		return nil, err
	}
	own.reduce()
	return own, nil
}
