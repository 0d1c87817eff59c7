package lockclient

import (
	"context"
	"math/rand/v2"

	"github.com/steledb/stele/node/gossip"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// leaderLocator lists the nodes that may be servers of the lock service.
type leaderLocator struct{ *Client }

// Servers implements session.Locator: this node if it votes, then the voters known by gossip, then the others, which may know
// better.
func (cl leaderLocator) Servers() []string {
	var voters, others []string
	if group := cl.Group(); group != nil {
		voters = append(voters, cl.Self.Address)
	}
	listed := map[string]bool{cl.Self.Address: true}
	for _, m := range cl.Members() {
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
	for _, addr := range cl.Addresses() {
		if !listed[addr] {
			others = append(others, addr)
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return append(voters, others...)
}

// leaderDialer connects to servers of the lock service, to this node's own without the network.
type leaderDialer struct{ *Client }

// Dial implements session.Dialer.
func (cl leaderDialer) Dial(ctx context.Context, addr string) (session.Peer, error) {
	if addr == cl.Self.Address {
		service, err := cl.lockService()
		return session.Peer{Service: service}, err
	}
	conn, err := cl.Connect(ctx, addr)
	if err != nil {
		return session.Peer{}, err
	}
	return session.Peer{Service: metaapi.RemoteForNode(conn), Close: conn.Close}, nil
}

// lockService returns the lock service that this node offers. The error is a *NotLeaderError if the node is not a voter.
func (cl *Client) lockService() (metaapi.Service, error) {
	if group := cl.Group(); group != nil {
		return group.Service(), nil
	}
	return nil, cl.NotVoting()
}

// NotVoting returns the error of a node that does not vote: a *NotLeaderError, with another voter if one is known.
func (cl *Client) NotVoting() error {
	elsewhere := &metaapi.NotLeaderError{}
	for _, m := range cl.Members() {
		if m.Voter && !m.Self && m.State == gossip.Alive {
			elsewhere.Leader, elsewhere.Address = m.ID, m.RPC // it knows the leader
			break
		}
	}
	return elsewhere
}
