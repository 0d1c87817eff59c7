package node

import (
	"context"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
)

// placement has the assignment of tablets to servers, and which servers are alive.
type placement struct {
	err     error                       // the assignment is unknown
	tablets map[uint64]map[string]int64 // number of tablets by table and server; the server is "" for unassigned tablets
	alive   map[string]bool             // instances of servers
	names   map[uint64]string           // of tables
}

// placement reads the assignment of a table's tablets, or of all if the id is 0.
func (m *metaRows) placement(ctx context.Context, tableID uint64, meta *namespace.Access) (w placement) {
	w.tablets = map[uint64]map[string]int64{}
	add := func(table uint64, server string) {
		if w.tablets[table] == nil {
			w.tablets[table] = map[string]int64{}
		}
		w.tablets[table][server]++
	}
	from, to := "", ""
	if tableID != 0 {
		start, end := metadata.TableRange(tableID)
		from, to = string(start), string(end)
	}
	if tableID == 0 || tableID == metadata.TableID { // the root tablet is not in METADATA
		root, err := m.root(ctx)
		if err != nil {
			return placement{err: err}
		}
		add(metadata.TableID, root.Server)
	}
	err := m.scan(ctx, from, to, metadata.Locations(), func(r *metadata.Row) { add(r.Table, r.Server) })
	if err == nil {
		w.alive, err = meta.InstancesAlive(ctx)
	}
	if err == nil {
		w.names, err = meta.Tables(ctx)
	}
	if err != nil {
		return placement{err: err}
	}
	w.names[metadata.TableID] = metadata.Name
	return w
}

// addUnserved adds the number of tablets that no node has reported, and the nodes that should have reported them.
func (s *usageSum) addUnserved(w *placement) {
	if w.err != nil {
		for _, t := range s.tables {
			t.Unserved = -1
		}
		return
	}
	for id, servers := range w.tablets {
		all, lost := int64(0), int64(0)
		for server, tablets := range servers {
			all += tablets
			node := namespace.NodeOf(server)
			if s.answered[node] && w.alive[strings.TrimSuffix(server, metadataSuffix)] {
				continue
			}
			lost += tablets
			if node != "" && !s.answered[node] {
				s.silent = append(s.silent, node)
			}
		}
		if name := w.names[id]; name != "" { // otherwise it was dropped
			t := s.table(name)
			t.Unserved = max(lost, all-t.Tablets) // a server may not have loaded an assigned tablet yet
		}
	}
}

// table returns a table's entry in the sum, and creates it if needed.
func (s *usageSum) table(name string) *api.TableUsage {
	if s.tables == nil {
		s.tables = map[string]*api.TableUsage{}
	}
	if s.tables[name] == nil {
		s.tables[name] = &api.TableUsage{Name: name}
	}
	return s.tables[name]
}
