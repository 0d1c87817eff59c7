package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/gossip"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// openSession opens the node's first session with the lock service.
func (n *Node) openSession(ctx context.Context) (err error) {
	n.meta.Client, err = session.NewClient(session.Config{
		Locator: metaLocator{n}, Dialer: metaDialer{n}, Logger: n.log.With("part", "session"),
	})
	if err != nil {
		return err
	}
	return n.untilLeader(ctx, func(ctx context.Context) error { return n.meta.Open(ctx, n.sessionName()) })
}

// sessionName is the name of the node's sessions, which lock conflicts report.
func (n *Node) sessionName() string { return n.cfg.Name + " " + n.id() }

// sessionRetry is the pause between attempts to open a session.
const sessionRetry = 500 * time.Millisecond

// keepSession opens another session when the node's has expired, until the node closes. The tablet server ended with the lock, and
// its tablets are reassigned. Under the new lock the node starts as another server without tablets.
func (n *Node) keepSession() {
	for {
		select {
		case <-n.meta.Current().Done():
		case <-n.lock.Load().Done():
		case <-n.ctx.Done():
			return
		}
		n.log.Warn("server lock lost: serving nothing until it is reacquired")
		err := n.server.Load().close()
		if err == nil || n.ctx.Err() == nil {
			err = n.hold(n.ctx)
		}
		if err == nil {
			err = n.startTabletServer(n.ctx)
		}
		if err != nil {
			if n.ctx.Err() == nil {
				n.fail(err)
			}
			return
		}
	}
}

// untilLeader calls f until the lock service has answered, or ctx ends. The error that the leader's disk is full counts as no answer.
func (n *Node) untilLeader(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if !errors.Is(err, metaapi.ErrNotReady) && !errors.Is(err, metaapi.ErrDiskFull) || ctx.Err() != nil {
			return err
		}
		n.log.Warn("lock service unavailable; retrying", "err", err)
		timing.Sleep(ctx, sessionRetry)
	}
}

// metaLocator lists the nodes that may be servers of the lock service.
type metaLocator struct{ n *Node }

// Servers implements session.Locator: this node if it votes, then the voters known by gossip, then the others, which may know
// better.
func (l metaLocator) Servers() []string {
	n := l.n
	var voters, others []string
	if group, _ := n.voter.Group(); group != nil {
		voters = append(voters, n.RPCAddr())
	}
	listed := map[string]bool{n.RPCAddr(): true}
	if n.members.Ring() != nil {
		for _, m := range n.members.Ring().Members() {
			if m.Self || m.State != gossip.Alive {
				continue
			}
			listed[m.RPC] = true
			if m.Voter {
				voters = append(voters, m.RPC)
			} else {
				others = append(others, m.RPC)
			}
		}
	}
	for _, addr := range n.members.Addresses() {
		if !listed[addr] {
			others = append(others, addr)
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return append(voters, others...)
}

// metaDialer connects to servers of the lock service, to this node's own without the network.
type metaDialer struct{ n *Node }

// Dial implements session.Dialer.
func (d metaDialer) Dial(ctx context.Context, addr string) (session.Peer, error) {
	if addr == d.n.RPCAddr() {
		service, err := d.n.lockService()
		return session.Peer{Service: service}, err
	}
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{MessageTimeout: metaMessageTimeout, Dialer: d.n.security.Dialer("")})
	if err != nil {
		return session.Peer{}, err
	}
	return session.Peer{Service: metaapi.RemoteForNode(conn), Close: conn.Close}, nil
}

// metaMessageTimeout closes a connection whose server stops in the middle of an answer.
const metaMessageTimeout = 10 * time.Second

// lockService returns the lock service that this node offers. The error is a *NotLeaderError if the node is not a voter.
func (n *Node) lockService() (metaapi.Service, error) {
	if group, _ := n.voter.Group(); group != nil {
		return group.Service(), nil
	}
	return nil, n.notVoting()
}

// notVoting returns the error of a node that does not vote: a *NotLeaderError, with another voter if one is known.
func (n *Node) notVoting() error {
	elsewhere := &metaapi.NotLeaderError{}
	if n.members.Ring() == nil {
		return elsewhere
	}
	for _, m := range n.members.Ring().Members() {
		if m.Voter && !m.Self && m.State == gossip.Alive {
			elsewhere.Leader, elsewhere.Address = m.ID, m.RPC // it knows who leads
			break
		}
	}
	return elsewhere
}
