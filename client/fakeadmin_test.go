package client

import (
	"errors"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

func (f *fake) admin(method string, d *wire.Decoder, n int, e *wire.Encoder) error {
	names := map[string]int{
		api.MethodDescribeTable: 1, api.MethodDropTable: 1, api.MethodCompactTable: 1,
		api.MethodDropFamily: 2, api.MethodDrainNode: 1, api.MethodRemoveNode: 1,
	}[method]
	var r api.NamesRequest
	if method != api.MethodCreateTable && method != api.MethodSetFamily {
		if err := r.Decode(d, n, method, names); err != nil {
			return err
		}
		if method == api.MethodDrainNode || method == api.MethodRemoveNode {
			return f.changeNode(method, &r, e)
		}
		if names > 0 && f.schemas[r.Names[0]] == nil {
			return api.ErrNoTable
		}
	}
	switch method {
	case api.MethodListNodes:
		api.AppendNodes(e, f.nodes)
	case api.MethodRaftStatus:
		(&api.RaftStatus{Leader: "n1", Servers: []api.RaftServer{{ID: "n1", Voter: true, Leader: true}}}).Append(e)
	case api.MethodPing:
		(&api.Pong{Server: "stele", Version: "test", Protocol: api.ProtocolVersion, Node: "fake"}).Append(e)
	case api.MethodStatus:
		(&api.Status{Node: "fake", Ready: true, Tables: int64(len(f.schemas)), Uptime: time.Second}).Append(e)
	case api.MethodListTables:
		var schemas []*table.Schema
		for _, s := range f.schemas {
			schemas = append(schemas, s)
		}
		api.AppendSchemas(e, schemas)
	case api.MethodDescribeTable:
		(&api.TableInfo{Schema: f.schemas[r.Names[0]], Tablets: []api.TabletInfo{{ID: 7, End: []byte("m")}}}).Append(e)
	case api.MethodDropTable:
		delete(f.schemas, r.Names[0])
		delete(f.rows, r.Names[0])
		e.Nil()
	case api.MethodCompactTable:
		e.Nil()
	default:
		return f.alter(method, r, d, n, e)
	}
	return nil
}

func (f *fake) changeNode(method string, r *api.NamesRequest, e *wire.Encoder) error {
	n, err := api.FindNode(f.nodes, r.Names[0])
	if err != nil {
		return err
	}
	e.Nil()
	if method == api.MethodDrainNode {
		n.Draining = !r.Undrain
		return nil
	}
	if n.State == api.NodeAlive && !r.Force {
		return &api.NodeInUseError{Node: n.ID, Reason: "it is alive"}
	}
	id := n.ID
	f.nodes = slices.DeleteFunc(f.nodes, func(n api.NodeInfo) bool { return n.ID == id })
	return nil
}

func (f *fake) alter(method string, r api.NamesRequest, d *wire.Decoder, n int, e *wire.Encoder) (err error) {
	var s *table.Schema
	switch method {
	case api.MethodCreateTable:
		var r api.CreateTableRequest
		if err := r.Decode(d, n); err != nil {
			return err
		}
		if f.schemas[r.Name] != nil {
			return api.ErrTableExists
		}
		if s, err = r.Schema(2); err != nil {
			return err
		}
		f.rows[r.Name] = map[string][]table.Cell{}
	case api.MethodSetFamily:
		var r api.SetFamilyRequest
		if err := r.Decode(d, n); err != nil {
			return err
		}
		if f.schemas[r.Table] == nil {
			return api.ErrNoTable
		}
		s, err = f.schemas[r.Table].Apply(r.Family)
	case api.MethodDropFamily:
		s, err = f.schemas[r.Names[0]].DropFamily(r.Names[1])
	default:
		err = errors.New("no such method in the fake")
	}
	if err != nil {
		return err
	}
	f.schemas[s.Name] = s
	table.AppendSchema(e, s)
	return nil
}
