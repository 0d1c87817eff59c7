package metarows

import (
	"context"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
)

// Placement has the assignment of tablets to servers, and which servers are alive.
type Placement struct {
	Err     error                       // the assignment is unknown
	Tablets map[uint64]map[string]int64 // number of tablets by table and server; the server is "" for unassigned tablets
	Alive   map[string]bool             // instances of servers
	Names   map[uint64]string           // of tables
}

// Placement reads the assignment of a table's tablets, or of all if the id is 0.
func (m *Table) Placement(ctx context.Context, tableID uint64, meta *namespace.Access) (w Placement) {
	w.Tablets = map[uint64]map[string]int64{}
	add := func(table uint64, server string) {
		if w.Tablets[table] == nil {
			w.Tablets[table] = map[string]int64{}
		}
		w.Tablets[table][server]++
	}
	from, to := "", ""
	if tableID != 0 {
		start, end := metadata.TableRange(tableID)
		from, to = string(start), string(end)
	}
	if tableID == 0 || tableID == metadata.TableID { // the root tablet is not in METADATA
		root, err := m.Root(ctx)
		if err != nil {
			return Placement{Err: err}
		}
		add(metadata.TableID, root.Server)
	}
	err := m.Scan(ctx, from, to, metadata.Locations(), func(r *metadata.Row) { add(r.Table, r.Server) })
	if err == nil {
		w.Alive, err = meta.InstancesAlive(ctx)
	}
	if err == nil {
		w.Names, err = meta.Tables(ctx)
	}
	if err != nil {
		return Placement{Err: err}
	}
	w.Names[metadata.TableID] = metadata.Name
	return w
}
