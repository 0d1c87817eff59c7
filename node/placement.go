package node

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// placement is who should serve tablets, and who lives to do so.
type placement struct {
	err     error                       // nothing is known
	tablets map[uint64]map[string]int64 // tablets by table and server; the server is empty if METADATA gives them to nobody
	alive   map[string]bool             // instances of servers
	names   map[uint64]string           // of tables
}

// placement reads who should serve a table, or all if the id is 0.
func (n *Node) placement(ctx context.Context, tableID uint64) (w placement) {
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
		root, err := n.rows.root(ctx)
		if err != nil {
			return placement{err: err}
		}
		add(metadata.TableID, root.Server)
	}
	err := n.rows.scan(ctx, from, to, metadata.Locations(), func(r *metadata.Row) { add(r.Table, r.Server) })
	if err == nil {
		w.alive, err = n.instancesAlive(ctx)
	}
	if err == nil {
		w.names, err = n.tables(ctx)
	}
	if err != nil {
		return placement{err: err}
	}
	w.names[metadata.TableID] = metadata.Name
	return w
}

// instancesAlive returns the tablet servers that hold their locks.
func (n *Node) instancesAlive(ctx context.Context) (map[string]bool, error) {
	files, err := n.catalog.meta.List(ctx, serversDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	alive := map[string]bool{}
	for _, f := range files {
		if f.Lock == metaapi.Exclusive {
			alive[serverName(path.Base(f.Path), f.LockGeneration)] = true
		}
	}
	return alive, nil
}

// addUnserved adds how many tablets nobody has told of, and the nodes that should have.
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
			node := nodeOf(server)
			if s.answered[node] && w.alive[strings.TrimSuffix(server, metadataSuffix)] {
				continue
			}
			lost += tablets
			if node != "" && !s.answered[node] {
				s.silent = append(s.silent, node)
			}
		}
		if name := w.names[id]; name != "" { // else it was dropped
			t := s.table(name)
			t.Unserved = max(lost, all-t.Tablets) // a server may not have loaded one yet that it was given
		}
	}
}

// table returns a table's part of the sum, which is made if nobody has told of it.
func (s *usageSum) table(name string) *api.TableUsage {
	if s.tables == nil {
		s.tables = map[string]*api.TableUsage{}
	}
	if s.tables[name] == nil {
		s.tables[name] = &api.TableUsage{Name: name}
	}
	return s.tables[name]
}
