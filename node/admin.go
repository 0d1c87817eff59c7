package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

func (n *Node) handleAdmin() {
	n.handle(api.MethodCreateTable, rpc.Spawned, n.createTable)
	n.handle(api.MethodSetFamily, rpc.Spawned, n.setFamily)
	n.answerNames(n.rpc.Handle, api.MethodPing, 0, n.ping)
	n.answerNames(n.rpc.Handle, api.MethodStatus, 0, n.status)
	n.handleNames(api.MethodListTables, 0, n.listTables)
	n.handleNames(api.MethodDescribeTable, 1, n.describeTable)
	n.handleNames(api.MethodDropTable, 1, n.dropTable)
	n.handleNames(api.MethodDropFamily, 2, n.dropFamily)
	n.handleNames(api.MethodCompactTable, 1, n.compactTable)
	n.handle(api.MethodSampleRowKeys, rpc.Spawned, n.sampleRowKeys)
	n.handleNames(api.MethodRoot, 1, n.root)
}

// answer writes a result.
type answer func(e *wire.Encoder)

// handleNames registers a method whose parameters are names.
func (n *Node) handleNames(method string, names int, h func(ctx context.Context, r *api.NamesRequest) (answer, error)) {
	n.answerNames(n.handle, method, names, h)
}

// answerNames does so by register, which says when the method is answered.
func (n *Node) answerNames(register func(string, rpc.Mode, func(*rpc.Call)), method string, names int,
	h func(ctx context.Context, r *api.NamesRequest) (answer, error)) {
	register(method, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // a change may outlive the call
		var r api.NamesRequest
		if err := r.Decode(&c.Params, c.NumParams, method, names); err != nil {
			fail(c, err)
			return
		}
		if !begin(c, &r.Options) {
			return
		}
		result, err := h(c.Context(), &r)
		if err != nil {
			fail(c, err)
			return
		}
		c.Reply(result)
	})
}

func schemaAnswer(s *table.Schema) answer {
	return func(e *wire.Encoder) { table.AppendSchema(e, s) }
}

func (n *Node) ping(context.Context, *api.NamesRequest) (answer, error) {
	p := api.Pong{Server: "stele", Version: Version(), Protocol: api.ProtocolVersion, Node: n.cfg.Name, Cluster: n.cluster()}
	return p.Append, nil
}

func (n *Node) createTable(c *rpc.Call) {
	c.Keep() // the change may outlive the call
	var r api.CreateTableRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	var s *table.Schema
	err := n.change(c.Context(), func(ctx context.Context) (err error) {
		s, err = n.create(ctx, &r)
		return err
	})
	if err != nil {
		fail(c, err)
		return
	}
	c.Reply(schemaAnswer(s))
}

// create makes a table of one tablet, as a change. The table is there when its schema is, so
// that comes last; a tablet without a table is removed at the next start.
func (n *Node) create(ctx context.Context, r *api.CreateTableRequest) (*table.Schema, error) {
	if err := n.limits.CheckTableName(r.Name); err != nil {
		return nil, err
	}
	switch _, _, err := n.catalog.schema(ctx, r.Name); {
	case err == nil:
		return nil, fmt.Errorf("table %q: %w", r.Name, api.ErrTableExists)
	case !errors.Is(err, api.ErrNoTable):
		return nil, err
	}
	// The tablet server may still have the one of before, whose removal failed half
	// way: two tablets of one range would take each other's rows.
	if err := n.tablets.DropTable(r.Name); err != nil && !errors.Is(err, api.ErrNoTable) {
		return nil, err
	}
	if _, err := r.Schema(1); err != nil {
		return nil, err
	}
	id, err := n.catalog.nextIDs(ctx, 2)
	if err != nil {
		return nil, err
	}
	s, err := r.Schema(id)
	if err != nil {
		return nil, err
	}
	m := &tablet.Meta{ID: id + 1, Table: id, LastMajor: time.Now()}
	gen, err := n.catalog.set(ctx, n.catalog.tabletPath(m.ID), tablet.EncodeMeta(m), 0)
	if err != nil {
		return nil, err
	}
	if err := n.catalog.saveSchema(ctx, s, 0); err != nil {
		return nil, err
	}
	n.log.Info("table created", "table", s.Name, "families", len(s.Families))
	return s, n.tablets.AddTablet(ctx, tablet.Load{Meta: m, Gen: gen, Schema: s})
}

// alter changes a table's schema.
func (n *Node) alter(ctx context.Context, name string, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	var s *table.Schema
	err := n.change(ctx, func(ctx context.Context) (err error) {
		s, err = n.alterNow(ctx, name, edit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (n *Node) alterNow(ctx context.Context, name string, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	old, gen, err := n.catalog.schema(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := edit(old)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(&n.limits); err != nil {
		return nil, err
	}
	if err := n.catalog.saveSchema(ctx, s, gen); err != nil {
		return nil, err
	}
	return s, n.tablets.SetSchema(s)
}

func (n *Node) setFamily(c *rpc.Call) {
	c.Keep() // the change may outlive the call
	var r api.SetFamilyRequest
	if err := r.Decode(&c.Params, c.NumParams); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	s, err := n.alter(c.Context(), r.Table, func(old *table.Schema) (*table.Schema, error) {
		s, err := old.Apply(r.Family)
		if err != nil {
			return nil, err
		}
		before, after := old.Family(r.Family.Name), s.Family(r.Family.Name)
		if before != nil && after != nil && before.Group != after.Group {
			return nil, fmt.Errorf("family %q is in locality group %q and stays there: %w", before.Name, before.Group, api.ErrGroupConflict)
		}
		return s, nil
	})
	if err != nil {
		fail(c, err)
		return
	}
	c.Reply(schemaAnswer(s))
}

func (n *Node) dropFamily(ctx context.Context, r *api.NamesRequest) (answer, error) {
	s, err := n.alter(ctx, r.Names[0], func(old *table.Schema) (*table.Schema, error) {
		return old.DropFamily(r.Names[1])
	})
	if err != nil {
		return nil, err
	}
	n.log.Info("family dropped", "table", r.Names[0], "family", r.Names[1])
	return schemaAnswer(s), nil
}

func (n *Node) listTables(ctx context.Context, _ *api.NamesRequest) (answer, error) {
	names, err := n.catalog.names(ctx)
	if err != nil {
		return nil, err
	}
	var schemas []*table.Schema
	for _, name := range names {
		if s, _, err := n.catalog.schema(ctx, name); err == nil { // dropped meanwhile
			schemas = append(schemas, s)
		}
	}
	return func(e *wire.Encoder) { api.AppendSchemas(e, schemas) }, nil
}

func (n *Node) describeTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	s, _, err := n.catalog.schema(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	tablets, err := n.tablets.TabletStats(s.Name)
	if errors.Is(err, api.ErrNoTable) {
		return nil, fmt.Errorf("table %q is on another node: ask the one that it was made on: %w", s.Name, api.ErrNotServing)
	}
	if err != nil {
		return nil, err
	}
	info := api.TableInfo{Schema: s}
	for _, t := range tablets {
		ti := api.TabletInfo{ID: t.ID, Node: n.cfg.Name, Start: t.Start, End: t.End, MemtableBytes: t.MemtableBytes}
		for _, f := range t.Files {
			if len(ti.Groups) == 0 || ti.Groups[len(ti.Groups)-1].Name != f.Group {
				ti.Groups = append(ti.Groups, api.GroupInfo{Name: f.Group})
			}
			g := &ti.Groups[len(ti.Groups)-1]
			g.Files, g.Bytes, g.RawBytes, g.Entries = g.Files+1, g.Bytes+f.Bytes, g.RawBytes+f.RawBytes, g.Entries+f.Entries
		}
		info.Tablets = append(info.Tablets, ti)
	}
	return info.Append, nil
}

func (n *Node) dropTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	return nil, n.change(ctx, func(ctx context.Context) error { return n.drop(ctx, r.Names[0]) })
}

// drop removes a table, as a change: it is gone when its schema is.
func (n *Node) drop(ctx context.Context, name string) error {
	_, gen, err := n.catalog.schema(ctx, name)
	if err != nil {
		return err
	}
	tablets, err := n.tablets.TabletStats(name)
	if err != nil && !errors.Is(err, api.ErrNoTable) { // not served: a drop is the way out
		return err
	}
	if err := n.catalog.remove(ctx, tablePath(name), gen); err != nil {
		return err
	}
	for _, t := range tablets {
		if err := n.catalog.remove(ctx, n.catalog.tabletPath(t.ID), metaapi.AnyGeneration); err != nil {
			n.log.Warn("metadata of a dropped tablet stays until the next start", "tablet", t.ID, "error", err)
		}
	}
	n.log.Info("table dropped", "table", name)
	if err := n.tablets.DropTable(name); !errors.Is(err, api.ErrNoTable) {
		return err
	}
	return nil
}

func (n *Node) compactTable(ctx context.Context, r *api.NamesRequest) (answer, error) {
	return nil, n.tablets.Compact(ctx, r.Names[0], r.Major)
}
