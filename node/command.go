package node

import (
	"context"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// The master's commands. Their parameters are the master's node id, the sequencer of its
// lock, whose lock generation is its epoch, and the raft epoch. A command of an older
// epoch than any seen is refused with stale_epoch, and one of a newer epoch is taken only
// when the lock service says that the sequencer is valid.
const (
	// methodHail tells a node who is master.
	methodHail = "cluster.hail"
	// methodStartVoting has a node take part in the lock service's group of that raft
	// epoch. It answers once the node's log is there.
	methodStartVoting = "cluster.start_voting"
)

// command is a master's command as it crosses the wire.
type command struct {
	master    string
	sequencer metaapi.Sequencer
	raftEpoch uint64
}

func (m command) append(e *wire.Encoder) {
	e.Array(3)
	m.appendValues(e)
}

func (m command) appendValues(e *wire.Encoder) {
	e.Str(m.master)
	e.Str(m.sequencer.String())
	e.Uint(m.raftEpoch)
}

func (m *command) decode(d *wire.Decoder, n int) error {
	if n < 3 {
		return fmt.Errorf("%d parameters, want master, sequencer and raft epoch", n)
	}
	m.master = d.Str()
	text := d.Str()
	m.raftEpoch = d.Uint()
	if err := d.Err(); err != nil {
		return err
	}
	var err error
	m.sequencer, err = metaapi.ParseSequencer(text)
	return err
}

// handleCommands registers what a master may command. The commands are answered as
// soon as the node is of a cluster.
func (n *Node) handleCommands() {
	n.rpc.Handle(methodNudge, rpc.Inline, func(c *rpc.Call) {
		if n.serving.Load() {
			n.master.Nudge()
		}
		c.Reply(nil)
	})
	for method, do := range map[string]func(context.Context, command) error{
		methodHail:        func(context.Context, command) error { return nil },
		methodStartVoting: n.startVoting,
	} {
		n.rpc.Handle(method, rpc.Spawned, func(c *rpc.Call) {
			var m command
			if err := m.decode(&c.Params, c.NumParams); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			if !n.serving.Load() { // there may be no way to ask the lock service yet
				c.Fail(&rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve: " + n.unready(), Retryable: true})
				return
			}
			if err := n.admitCommand(c, m); err != nil {
				c.Fail(err)
				return
			}
			if err := do(c.Context(), m); err != nil {
				c.Fail(toAPI(err))
				return
			}
			c.Reply(nil)
		})
	}
}

// commander sends the commands of the master that this node is. It implements
// master.Nodes.
type commander struct{ n *Node }

func (c commander) send(ctx context.Context, id, method string, q metaapi.Sequencer) error {
	m := command{master: c.n.id(), sequencer: q, raftEpoch: c.n.raftEpoch()}
	return c.n.peers.call(ctx, id, method, m.append, nil)
}

// Hail implements master.Nodes.
func (c commander) Hail(ctx context.Context, id string, q metaapi.Sequencer) error {
	return c.send(ctx, id, methodHail, q)
}

// StartVoting implements master.Nodes.
func (c commander) StartVoting(ctx context.Context, id string, q metaapi.Sequencer) error {
	if s := c.n.security; s != nil { // it asks for the authority's key meanwhile
		defer s.promoting.begin(id)()
	}
	return c.send(ctx, id, methodStartVoting, q)
}

// What any node may ask the master for.
const (
	// methodNudge asks it to look at the tablets: something has changed.
	methodNudge = "cluster.nudge"
	// methodMove asks it to bring a tablet to a node, and waits for that: the tablet's key, the
	// node's id.
	methodMove = "cluster.move_tablet"
	// methodUnite asks it to merge two neighbours, and waits for that: their keys.
	methodUnite = "cluster.merge_tablets"
	// methodUnserved asks it which tablets are not served: what unserved_tablets answers.
	methodUnserved = "cluster.unserved_tablets"
)

// nudgeMaster tells the master, if it is known who that is, that something has changed.
func (n *Node) nudgeMaster(ctx context.Context) {
	if n.master.Epoch() != 0 {
		n.master.Nudge()
		return
	}
	boss, _ := n.epochs.last()
	if boss == "" || boss == n.id() {
		return
	}
	if err := n.peers.call(ctx, boss, methodNudge, func(e *wire.Encoder) { e.Array(0) }, nil); err != nil {
		n.log.Debug("nudge the master", "node", boss, "error", err)
	}
}
