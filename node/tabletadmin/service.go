package tabletadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Methods that any node calls on the servers of a table's tablets. The first parameter is the table's name, followed by the
// parameters listed here.
const (
	// MethodCompact compacts the table's tablets on the server: whether it is a major compaction.
	MethodCompact = "tablet.compact"
	// MethodDescribe returns the table's tablets on the server, in the form of describe_table.
	MethodDescribe = "tablet.describe"
	// MethodSplit splits a tablet: its key in METADATA, and the row to split at or nil. The result is the id of the lower part, and its
	// last row.
	MethodSplit = "tablet.split"
	// MethodCompactOne compacts a tablet: its key in METADATA, and whether it is a major compaction.
	MethodCompactOne = "tablet.compact_one"
)

// Requests from any node to the master.
const (
	// MethodMove moves a tablet to a node and waits for it: the tablet's key, the node's id.
	MethodMove = "cluster.move_tablet"
	// MethodMerge merges two neighbours and waits for it: their keys.
	MethodMerge = "cluster.merge_tablets"
	// MethodUnserved returns the tablets that are not served, as unserved_tablets does.
	MethodUnserved = "cluster.unserved_tablets"
)

// Config is what the service needs.
type Config struct {
	Log        *slog.Logger
	NodeName   string
	ID         func() string // of the node
	Limits     *table.Limits
	TabletsMax int64 // of a table, by requests; 0 is the default
	Authz      *authz.Authorizer
	Catalog    *namespace.Catalog
	Peers      *peers.Set
	Masters    *command.Gate
	Rows       func() *metarows.Table
	Master     func() *master.Master             // of this node
	TabletsOf  func(table string) *tablet.Server // of this node
	Find       func(ctx context.Context, node string) (members.Node, error)
}

// Service splits, moves, merges, compacts, clears and describes tablets for operators, on whatever servers they are.
type Service struct{ Config }

// New creates a service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers the methods of the service.
func (tv *Service) Register(r method.Registrar) {
	tv.handleTables(r)
	tv.handleTabletChanges(r)
	tv.handleClear(r)
	tv.handleMasterRequests(r)
	tv.handleUnserved(r)
}

func (tv *Service) handleTables(r method.Registrar) {
	tv.handleTable(r, MethodCompact, tv.compactHere)
	tv.handleTable(r, MethodDescribe, tv.describeHere)
	tv.handleTable(r, MethodSplit, tv.splitHere)
	tv.handleTable(r, MethodCompactOne, tv.compactOneHere)
	tv.handleTable(r, MethodSnapshot, tv.snapshotHere)
	tv.handleTable(r, MethodSnapshotChanges, tv.snapshotChangesHere)
	tv.handleTable(r, MethodClear, tv.clearHere)
}

func (tv *Service) handleTable(r method.Registrar, method string, do func(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error)) {
	r.Handle(method, rpc.Waiting, authz.Guard{}, func(c *rpc.Call) {
		name := c.Params.Str()
		a, err := do(c.Context(), name, &c.Params)
		if err == nil {
			err = c.Params.Err()
		}
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(a)
	})
}

// callServers calls a method of every server that has tablets of a table. Calls of result do not overlap. The error joins those of
// all servers.
func (tv *Service) callServers(ctx context.Context, s *table.Schema, method string, more func(e *wire.Encoder), result func(d *wire.Decoder) error) error {
	nodes, err := tv.nodesOf(ctx, s.ID)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for _, id := range nodes {
		group.Go(func() {
			err := tv.Peers.Call(ctx, id, method, func(e *wire.Encoder) {
				e.Array(2)
				e.Str(s.Name)
				more(e)
			}, func(d *wire.Decoder) error {
				if result == nil {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				return result(d)
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("node %s: %w", id, err))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// CompactTable compacts all tablets of a table.
func (tv *Service) CompactTable(ctx context.Context, s *table.Schema, major bool) error {
	return tv.callServers(ctx, s, MethodCompact, func(e *wire.Encoder) { e.Bool(major) }, nil)
}

// nodesOf returns the nodes whose servers have tablets of a table.
func (tv *Service) nodesOf(ctx context.Context, tableID uint64) (nodes []string, err error) {
	if tableID == metadata.TableID { // the root tablet is not in METADATA
		root, err := tv.Rows().Root(ctx)
		if err != nil {
			return nil, err
		}
		if id := namespace.NodeOf(root.Server); id != "" {
			nodes = append(nodes, id)
		}
	}
	from, to := metadata.TableRange(tableID)
	err = tv.Rows().Scan(ctx, string(from), string(to), metadata.Places(), func(r *metadata.Row) {
		if id := namespace.NodeOf(r.Server); id != "" && !slices.Contains(nodes, id) {
			nodes = append(nodes, id)
		}
	})
	return nodes, err
}

func (tv *Service) compactHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	major := d.Bool()
	if err := tv.TabletsOf(name).Compact(ctx, name, major); err != nil && !errors.Is(err, api.ErrNoTable) {
		return nil, err
	}
	return nil, nil
}

func (tv *Service) compactOneHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	major := d.Bool()
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	return nil, tv.TabletsOf(name).CompactTablet(ctx, r, major)
}

// decodeRef decodes the METADATA key of a tablet.
func decodeRef(d *wire.Decoder) (tablet.Ref, error) {
	tableID, end, err := metadata.ParseKey(d.Bytes())
	return tablet.Ref{Table: tableID, End: string(end)}, cmp.Or(d.Err(), err)
}

// splitHere splits a tablet of this node.
func (tv *Service) splitHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	var at []byte
	if !d.IsNil() {
		at = slices.Clone(d.Bytes())
	}
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	lower, id, err := tv.TabletsOf(name).Split(ctx, r, at)
	if errors.Is(err, tablet.ErrClosed) {
		return nil, reply.Recode(api.ErrOutcomeUnknown, err) // the split may have happened
	}
	if err != nil {
		return nil, err
	}
	return func(e *wire.Encoder) {
		e.Array(2)
		e.Uint(id)
		e.Bin([]byte(lower.End))
	}, nil
}

// describeHere returns the tablets of a table that this node serves.
func (tv *Service) describeHere(_ context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	d.Skip()
	info := api.TableInfo{Schema: table.NewSchema(name, 0)}
	tablets, err := tv.TabletsOf(name).TabletStats(name)
	if err != nil && !errors.Is(err, api.ErrNoTable) {
		return nil, err
	}
	for i := range tablets {
		info.Tablets = append(info.Tablets, tv.describe(&tablets[i]))
	}
	return info.Append, nil
}

func (tv *Service) describe(t *tablet.TabletStats) api.TabletInfo {
	ti := api.TabletInfo{ID: t.ID, Node: tv.NodeName, Start: t.Start, End: t.End, MemtableBytes: t.MemtableBytes}
	for _, f := range t.Files {
		if len(ti.Groups) == 0 || ti.Groups[len(ti.Groups)-1].Name != f.Group {
			ti.Groups = append(ti.Groups, api.GroupInfo{Name: f.Group})
		}
		g := &ti.Groups[len(ti.Groups)-1]
		g.Files, g.Bytes, g.RawBytes, g.Entries = g.Files+1, g.Bytes+f.Bytes, g.RawBytes+f.RawBytes, g.Entries+f.Entries
	}
	return ti
}
