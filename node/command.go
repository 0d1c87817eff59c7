package node

import (
	"context"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Commands of the master. Their parameters are the master's node id, the sequencer of its lock, whose lock generation is its
// epoch, and the Raft epoch. A command with an older epoch than one seen is rejected with stale_epoch. One with a newer epoch is
// accepted if the lock service confirms the sequencer.
const (
	// methodHail announces the master to a node.
	methodHail = "cluster.hail"
	// methodStartVoting makes a node a member of the lock service's group of that Raft epoch. It answers once the node's log exists.
	methodStartVoting = "cluster.start_voting"
)

// handleCommands registers the master's commands. They are answered once the node belongs to a cluster.
func (n *Node) handleCommands() {
	n.rpc.Handle(methodNudge, rpc.Inline, func(c *rpc.Call) {
		if n.serving.Load() {
			n.master.Nudge()
		}
		c.Reply(nil)
	})
	for method, do := range map[string]func(context.Context, command.Header) error{
		methodHail:        func(context.Context, command.Header) error { return nil },
		methodStartVoting: n.voter.StartVoting,
	} {
		n.rpc.Handle(method, rpc.Spawned, func(c *rpc.Call) {
			var m command.Header
			if err := m.Decode(&c.Params, c.NumParams); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			if !n.serving.Load() { // the lock service may not be reachable yet
				c.Fail(&rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve: " + n.unready(), Retryable: true})
				return
			}
			if err := n.epochs.AdmitCall(c, m, n.meta.Client); err != nil {
				c.Fail(err)
				return
			}
			if err := do(c.Context(), m); err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
			c.Reply(nil)
		})
	}
}

// commander sends the commands of this node's mastership. It implements master.Nodes.
type commander struct{ n *Node }

func (c commander) send(ctx context.Context, id, method string, q metaapi.Sequencer) error {
	m := command.Header{Master: c.n.id(), Sequencer: q, RaftEpoch: c.n.raftEpoch()}
	return c.n.peers.Call(ctx, id, method, m.Append, nil)
}

// Announce implements master.Nodes.
func (c commander) Announce(ctx context.Context, id string, q metaapi.Sequencer) error {
	return c.send(ctx, id, methodHail, q)
}

// StartVoting implements master.Nodes.
func (c commander) StartVoting(ctx context.Context, id string, q metaapi.Sequencer) error {
	defer c.n.authority.Promote(id)() // it requests the authority's key meanwhile
	return c.send(ctx, id, methodStartVoting, q)
}

// Requests from any node to the master.
const (
	// methodNudge reports that something about tablets has changed.
	methodNudge = "cluster.nudge"
	// methodMove moves a tablet to a node and waits for it: the tablet's key, the node's id.
	methodMove = "cluster.move_tablet"
	// methodUnite merges two neighbours and waits for it: their keys.
	methodUnite = "cluster.merge_tablets"
	// methodUnserved returns the tablets that are not served, as unserved_tablets does.
	methodUnserved = "cluster.unserved_tablets"
)

// nudgeMaster reports a change to the master, if one is known.
func (n *Node) nudgeMaster(ctx context.Context) {
	if n.master.Epoch() != 0 {
		n.master.Nudge()
		return
	}
	masterID, _ := n.epochs.Last()
	if masterID == "" || masterID == n.id() {
		return
	}
	if err := n.peers.Call(ctx, masterID, methodNudge, func(e *wire.Encoder) { e.Array(0) }, nil); err != nil {
		n.log.Debug("nudge the master", "node", masterID, "err", err)
	}
}
