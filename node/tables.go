package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/loglimit"
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
	// methodCompact compacts the table's tablets on the server: whether it is a major compaction.
	methodCompact = "tablet.compact"
	// methodTablets returns the table's tablets on the server, in the form of describe_table.
	methodTablets = "tablet.describe"
	// methodSplit splits a tablet: its key in METADATA, and the row to split at or nil. The result is the id of the lower part, and its
	// last row.
	methodSplit = "tablet.split"
	// methodCompactOne compacts a tablet: its key in METADATA, and whether it is a major compaction.
	methodCompactOne = "tablet.compact_one"
)

// Requests from any node to the master.
const (
	// methodMove moves a tablet to a node and waits for it: the tablet's key, the node's id.
	methodMove = "cluster.move_tablet"
	// methodUnite merges two neighbours and waits for it: their keys.
	methodUnite = "cluster.merge_tablets"
	// methodUnserved returns the tablets that are not served, as unserved_tablets does.
	methodUnserved = "cluster.unserved_tablets"
)

// tabletService splits, moves, merges, compacts and describes tablets for operators, on whatever servers they are.
type tabletService struct {
	log        *slog.Logger
	name       string // the node's
	id         func() string
	limits     *table.Limits
	tabletsMax int64 // of a table, by requests; 0 is the default
	authz      *authz.Authorizer
	catalog    *namespace.Catalog
	peers      *peers.Set
	epochs     *command.Gate
	rows       func() *metarows.Table
	master     func() *master.Master
	tabletsOf  func(table string) *tablet.Server // of this node
	find       func(ctx context.Context, node string) (members.Node, error)
}

// register registers the methods of the service.
func (tv *tabletService) register(r method.Registrar) {
	tv.handleTables(r)
	tv.handleTabletChanges(r)
	tv.handleMasterRequests(r)
	tv.handleUnserved(r)
}

func (tv *tabletService) handleTables(r method.Registrar) {
	tv.handleTable(r, methodCompact, tv.compactHere)
	tv.handleTable(r, methodTablets, tv.describeHere)
	tv.handleTable(r, methodSplit, tv.splitHere)
	tv.handleTable(r, methodCompactOne, tv.compactOneHere)
}

func (tv *tabletService) handleTable(r method.Registrar, method string, do func(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error)) {
	r.Handle(method, rpc.Waiting, func(c *rpc.Call) {
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

// askServers calls a method of every server that has tablets of a table. Calls of result do not overlap. The error joins those of
// all servers.
func (tv *tabletService) askServers(ctx context.Context, s *table.Schema, method string, more func(e *wire.Encoder), result func(d *wire.Decoder) error) error {
	nodes, err := tv.nodesOf(ctx, s.ID)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for _, id := range nodes {
		group.Go(func() {
			err := tv.peers.Call(ctx, id, method, func(e *wire.Encoder) {
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

// nodesOf returns the nodes whose servers have tablets of a table.
func (tv *tabletService) nodesOf(ctx context.Context, tableID uint64) (nodes []string, err error) {
	if tableID == metadata.TableID { // the root tablet is not in METADATA
		root, err := tv.rows().Root(ctx)
		if err != nil {
			return nil, err
		}
		if id := namespace.NodeOf(root.Server); id != "" {
			nodes = append(nodes, id)
		}
	}
	from, to := metadata.TableRange(tableID)
	err = tv.rows().Scan(ctx, string(from), string(to), metadata.Places(), func(r *metadata.Row) {
		if id := namespace.NodeOf(r.Server); id != "" && !slices.Contains(nodes, id) {
			nodes = append(nodes, id)
		}
	})
	return nodes, err
}

func (tv *tabletService) compactHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	major := d.Bool()
	if err := tv.tabletsOf(name).Compact(ctx, name, major); err != nil && !errors.Is(err, api.ErrNoTable) {
		return nil, err
	}
	return nil, nil
}

func (tv *tabletService) compactOneHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	major := d.Bool()
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	return nil, tv.tabletsOf(name).CompactTablet(ctx, r, major)
}

// decodeRef decodes the METADATA key of a tablet.
func decodeRef(d *wire.Decoder) (tablet.Ref, error) {
	tableID, end, err := metadata.ParseKey(d.Bytes())
	return tablet.Ref{Table: tableID, End: string(end)}, cmp.Or(d.Err(), err)
}

// splitHere splits a tablet of this node.
func (tv *tabletService) splitHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	var at []byte
	if !d.IsNil() {
		at = slices.Clone(d.Bytes())
	}
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	lower, id, err := tv.tabletsOf(name).Split(ctx, r, at)
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
func (tv *tabletService) describeHere(_ context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	d.Skip()
	info := api.TableInfo{Schema: table.NewSchema(name, 0)}
	tablets, err := tv.tabletsOf(name).TabletStats(name)
	if err != nil && !errors.Is(err, api.ErrNoTable) {
		return nil, err
	}
	for i := range tablets {
		info.Tablets = append(info.Tablets, tv.tabletInfo(&tablets[i]))
	}
	return info.Append, nil
}

func (tv *tabletService) tabletInfo(t *tablet.TabletStats) api.TabletInfo {
	ti := api.TabletInfo{ID: t.ID, Node: tv.name, Start: t.Start, End: t.End, MemtableBytes: t.MemtableBytes}
	for _, f := range t.Files {
		if len(ti.Groups) == 0 || ti.Groups[len(ti.Groups)-1].Name != f.Group {
			ti.Groups = append(ti.Groups, api.GroupInfo{Name: f.Group})
		}
		g := &ti.Groups[len(ti.Groups)-1]
		g.Files, g.Bytes, g.RawBytes, g.Entries = g.Files+1, g.Bytes+f.Bytes, g.RawBytes+f.RawBytes, g.Entries+f.Entries
	}
	return ti
}

// schemasRetry is the pause after a failed read of schemas.
const schemasRetry = time.Second

// renewSchemas rereads the schemas of served tables when they may have changed, and unloads tablets of dropped tables even if no
// request comes for them. It returns when the server's lock is lost or the node closes.
func (s *tabletServer) renewSchemas() {
	var failed loglimit.OnChange
	var again <-chan time.Time
	for {
		select {
		case <-s.schemas.Session.VersionsEnded():
		case <-again:
		case <-s.lock.Done():
			return
		case <-s.n.ctx.Done():
			return
		}
		err := s.tablets.RenewSchemas(s.n.ctx)
		s.forgetDropped()
		failed.WarnError(s.n.log, "schemas not read; retrying", err)
		if again = nil; err != nil {
			again = time.After(schemasRetry)
		}
	}
}
