package node

import (
	"context"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// The master's commands. Their parameters are the master's node id and its epoch; an
// older epoch than any seen is refused with stale_epoch.
const (
	// methodHail tells a node who is master.
	methodHail = "cluster.hail"
	// methodStartVoting has a node take part in the lock service's group; a third
	// parameter is the group's raft epoch. It answers once the node's log is there.
	methodStartVoting = "cluster.start_voting"
	// methodStopVoting has a node that the group has removed give up its log.
	methodStopVoting = "cluster.stop_voting"
)

// command is a master's command as it crosses the wire.
type command struct {
	master    string
	epoch     uint64
	raftEpoch uint64
}

func (m command) append(e *wire.Encoder) {
	e.Array(3)
	e.Str(m.master)
	e.Uint(m.epoch)
	e.Uint(m.raftEpoch)
}

func (m *command) decode(d *wire.Decoder, n int) error {
	if n < 3 {
		return fmt.Errorf("%d parameters, want master, epoch and raft epoch", n)
	}
	m.master, m.epoch, m.raftEpoch = d.Str(), d.Uint(), d.Uint()
	return d.Err()
}

// handleCommands registers what a master may command. The commands are answered as
// soon as the node is of a cluster.
func (n *Node) handleCommands() {
	for method, do := range map[string]func(context.Context, command) error{
		methodHail:        func(context.Context, command) error { return nil },
		methodStartVoting: n.startVoting,
		methodStopVoting:  func(context.Context, command) error { return n.stopVoting() },
	} {
		n.rpc.Handle(method, rpc.Spawned, func(c *rpc.Call) {
			var m command
			if err := m.decode(&c.Params, c.NumParams); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			if !n.joined.Load() {
				c.Fail(&rpc.Error{Code: rpc.CodeUnavailable, Message: "the node is of no cluster yet", Retryable: true})
				return
			}
			if err := n.epochs.admit(m.master, m.epoch); err != nil {
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

func (c commander) send(ctx context.Context, id, method string, epoch uint64) error {
	m := command{master: c.n.id(), epoch: epoch, raftEpoch: c.n.raftEpoch()}
	return c.n.peers.call(ctx, id, method, m.append, nil)
}

// Hail implements master.Nodes.
func (c commander) Hail(ctx context.Context, id string, epoch uint64) error {
	return c.send(ctx, id, methodHail, epoch)
}

// StartVoting implements master.Nodes.
func (c commander) StartVoting(ctx context.Context, id string, epoch uint64) error {
	return c.send(ctx, id, methodStartVoting, epoch)
}

// StopVoting implements master.Nodes.
func (c commander) StopVoting(ctx context.Context, id string, epoch uint64) error {
	return c.send(ctx, id, methodStopVoting, epoch)
}
