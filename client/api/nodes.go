package api

import (
	"fmt"
	"strings"

	"github.com/steledb/stele/internal/wire"
)

// The states of a node, as gossip tells them. They are hints: a node that pauses is
// soon believed dead, and a dead one alive for a moment.
const (
	NodeAlive   = "alive"
	NodeDead    = "dead" // it does not answer any more
	NodeLeft    = "left" // it said that it goes
	NodeUnknown = "unknown"
)

// NodeInfo is an element of the result of list_nodes: a node, as the one that
// answers knows it.
type NodeInfo struct {
	ID      string
	Name    string // for people; several nodes may have the same
	Zone    string
	RPC     string // host:port that clients and nodes reach it by
	Gossip  string
	HTTP    string // empty for none
	Version string // of the program
	// State is one of NodeAlive and its siblings, SinceSeconds for how long it has been
	// so.
	State        string
	SinceSeconds float64
	Voter        bool // in the Raft group
	Leader       bool // of the Raft group
	Master       bool
	Draining     bool // by an operator's word: it is to hold nothing that is needed
	Self         bool // it is the node that answers

	CapacityBytes, FreeBytes int64 // of its disks
	// Load is how much of what the node can do is in use: 0 is idle, 1 is all.
	Load float64
}

// FindNode returns the node of an id, or else the only one of a name. Errors:
// ErrNodeNotFound, also for a name that several nodes have.
func FindNode(nodes []NodeInfo, idOrName string) (*NodeInfo, error) {
	var found *NodeInfo
	var ids []string
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.ID == idOrName:
			return n, nil
		case n.Name == idOrName:
			found, ids = n, append(ids, n.ID)
		}
	}
	switch len(ids) {
	case 0:
		return nil, fmt.Errorf("node %q: %w", idOrName, ErrNodeNotFound)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("node %q: that is the name of %d nodes, give an id, such as %s: %w", idOrName, len(ids), strings.Join(ids, " or "), ErrNodeNotFound)
}

func (n *NodeInfo) fields() fields {
	return fields{
		{"id", &n.ID}, {"name", &n.Name}, {"zone", &n.Zone}, {"rpc", &n.RPC}, {"gossip", &n.Gossip}, {"http", &n.HTTP},
		{"version", &n.Version}, {"state", &n.State},
		{"voter", &n.Voter}, {"leader", &n.Leader}, {"master", &n.Master}, {"draining", &n.Draining}, {"self", &n.Self},
		{"since_s", &n.SinceSeconds}, {"capacity_bytes", &n.CapacityBytes}, {"free_bytes", &n.FreeBytes}, {"load", &n.Load},
	}
}

// nodesMax bounds the nodes of a cluster that a client reads.
const nodesMax = 100_000

func nodeList(nodes *[]NodeInfo) *list[NodeInfo] {
	return &list[NodeInfo]{all: nodes, fields: (*NodeInfo).fields, what: "nodes", max: nodesMax}
}

// AppendNodes writes the result of list_nodes.
func AppendNodes(e *wire.Encoder, nodes []NodeInfo) { nodeList(&nodes).append(e) }

// DecodeNodes reads the result of list_nodes.
func DecodeNodes(d *wire.Decoder) (nodes []NodeInfo, err error) {
	err = nodeList(&nodes).decode(d)
	return nodes, err
}
