package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Commands of the master to tablet servers. The parameters of every command are followed by the server instance that it is for, and by those
// listed here.
const (
	// methodHeld returns the server's tablets: [[key, bytes, operations a second]…].
	methodHeld = "tablet.held"
	// methodLoad loads a tablet whose row is at a generation: key, generation.
	methodLoad = "tablet.load"
	// methodUnload unloads a tablet: key. The result is the generation of its row, 0 if another server has the tablet.
	methodUnload = "tablet.unload"
	// methodMerge merges two neighbouring tablets of the server: key, the upper one's key.
	methodMerge = "tablet.merge"
	// methodSort sorts a piece of a dead server's log: server, log, start, end. The result is the run, encoded by package tablet.
	methodSort = "tablet.sort_piece"
)

// order is a command of the master to a tablet server.
type order struct {
	command.Header
	server     string // the instance that it is for
	key, upper []byte
	generation uint64
	dead       string
	log        blobfs.ID
	start, end int64
}

const orderValues = 3 + 1

func (o *order) append(e *wire.Encoder, method string) {
	n := map[string]int{methodHeld: 0, methodLoad: 2, methodUnload: 1, methodMerge: 2, methodSort: 4}[method]
	e.Array(orderValues + n)
	o.Header.AppendValues(e)
	e.Str(o.server)
	switch method {
	case methodLoad:
		e.Bin(o.key)
		e.Uint(o.generation)
	case methodUnload:
		e.Bin(o.key)
	case methodMerge:
		e.Bin(o.key)
		e.Bin(o.upper)
	case methodSort:
		e.Str(o.dead)
		e.Bin(o.log[:])
		e.Int(o.start)
		e.Int(o.end)
	}
}

func (o *order) decode(d *wire.Decoder, n int, method string) error {
	if err := o.Header.Decode(d, n); err != nil {
		return err
	}
	o.server = d.Str()
	switch method {
	case methodLoad:
		o.key, o.generation = append([]byte(nil), d.Bytes()...), d.Uint()
	case methodUnload:
		o.key = append([]byte(nil), d.Bytes()...)
	case methodMerge:
		o.key, o.upper = append([]byte(nil), d.Bytes()...), append([]byte(nil), d.Bytes()...)
	case methodSort:
		o.dead = d.Str()
		if id := d.Bytes(); len(id) == len(o.log) {
			copy(o.log[:], id)
		} else if d.Err() == nil {
			return fmt.Errorf("a log's id has %d bytes", len(id))
		}
		o.start, o.end = d.Int(), d.Int()
	}
	return d.Err()
}

// handleTabletCommands registers the commands to this node's tablet server.
func (n *Node) handleTabletCommands() {
	for method, do := range map[string]func(context.Context, *tabletServer, *order) (reply.Result, error){
		methodHeld: func(_ context.Context, s *tabletServer, _ *order) (reply.Result, error) { return s.held(), nil },
		methodLoad: func(ctx context.Context, s *tabletServer, o *order) (reply.Result, error) {
			err := s.load(ctx, o.key, o.generation)
			if errors.Is(err, metarows.ErrNoRow) || errors.Is(err, metarows.ErrChanged) {
				err = reply.Recode(api.ErrConflict, err)
			}
			return nil, err
		},
		methodUnload: func(ctx context.Context, s *tabletServer, o *order) (reply.Result, error) {
			generation, err := s.unload(ctx, o.key)
			return func(e *wire.Encoder) { e.Uint(generation) }, err
		},
		methodMerge: func(ctx context.Context, s *tabletServer, o *order) (reply.Result, error) {
			return nil, s.merge(ctx, o.key, o.upper)
		},
		methodSort: func(ctx context.Context, s *tabletServer, o *order) (reply.Result, error) { return s.sort(ctx, o) },
	} {
		n.rpc.Handle(method, rpc.Waiting, func(c *rpc.Call) {
			var o order
			if err := o.decode(&c.Params, c.NumParams, method); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			a, err := n.execute(c, &o, do)
			if err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
			c.Reply(a)
		})
	}
}

// execute executes a command if it comes from the master and is for the current tablet server.
func (n *Node) execute(c *rpc.Call, o *order, do func(context.Context, *tabletServer, *order) (reply.Result, error)) (reply.Result, error) {
	s := n.server.Load()
	if s == nil || !s.is(o.server) {
		return nil, &rpc.Error{Code: rpc.CodeUnavailable, Message: fmt.Sprintf("tablet server %s is not running here", o.server)}
	}
	if err := n.epochs.AdmitCall(c, o.Header, n.meta.Client); err != nil {
		return nil, err
	}
	return do(c.Context(), s, o)
}

// order sends a command to a tablet server.
func (c commander) order(ctx context.Context, v *master.TabletServer, method string, q metaapi.Sequencer, o order, result func(*wire.Decoder) error) error {
	o.Header = command.Header{Master: c.n.id(), Sequencer: q, RaftEpoch: c.n.raftEpoch()}
	o.server = v.Name
	return c.n.peers.Call(ctx, v.Node, method, func(e *wire.Encoder) { o.append(e, method) }, result)
}
