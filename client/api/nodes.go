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

// texts are the strings of a NodeInfo and their keys.
func (n *NodeInfo) texts() []text {
	return []text{
		{"id", &n.ID}, {"name", &n.Name}, {"zone", &n.Zone}, {"rpc", &n.RPC}, {"gossip", &n.Gossip}, {"http", &n.HTTP},
		{"version", &n.Version}, {"state", &n.State},
	}
}

func (n *NodeInfo) flags() []flag {
	return []flag{
		{"voter", &n.Voter}, {"leader", &n.Leader}, {"master", &n.Master}, {"draining", &n.Draining}, {"self", &n.Self},
	}
}

func (n *NodeInfo) append(e *wire.Encoder) {
	texts, flags := n.texts(), n.flags()
	e.Map(len(texts) + len(flags) + 4)
	appendTexts(e, texts)
	appendFlags(e, flags)
	e.Str("since_s")
	e.Float(n.SinceSeconds)
	e.Str("capacity_bytes")
	e.Int(n.CapacityBytes)
	e.Str("free_bytes")
	e.Int(n.FreeBytes)
	e.Str("load")
	e.Float(n.Load)
}

func (n *NodeInfo) decode(d *wire.Decoder) error {
	texts, flags := n.texts(), n.flags()
	return decodeMap(d, func(key string) bool {
		switch key {
		case "since_s":
			n.SinceSeconds = d.Float()
		case "capacity_bytes":
			n.CapacityBytes = d.Int()
		case "free_bytes":
			n.FreeBytes = d.Int()
		case "load":
			n.Load = d.Float()
		default:
			return decodeText(d, key, texts) || decodeFlag(d, key, flags)
		}
		return true
	})
}

// nodesMax bounds the nodes of a cluster that a client reads.
const nodesMax = 100_000

// AppendNodes writes the result of list_nodes.
func AppendNodes(e *wire.Encoder, nodes []NodeInfo) {
	e.Array(len(nodes))
	for i := range nodes {
		nodes[i].append(e)
	}
}

// DecodeNodes reads the result of list_nodes.
func DecodeNodes(d *wire.Decoder) (nodes []NodeInfo, err error) {
	err = decodeList(d, "nodes", nodesMax, func() error {
		nodes = append(nodes, NodeInfo{})
		return nodes[len(nodes)-1].decode(d)
	})
	return nodes, err
}

// text is a string of a result and its key.
type text struct {
	key   string
	value *string
}

func appendTexts(e *wire.Encoder, texts []text) {
	for _, t := range texts {
		e.Str(t.key)
		e.Str(*t.value)
	}
}

// decodeText reads the value of key, or returns false for one that is no text's.
func decodeText(d *wire.Decoder, key string, texts []text) bool {
	for _, t := range texts {
		if t.key == key {
			*t.value = d.Str()
			return true
		}
	}
	return false
}

// flag is a bool of a result and its key.
type flag struct {
	key   string
	value *bool
}

func appendFlags(e *wire.Encoder, flags []flag) {
	for _, f := range flags {
		e.Str(f.key)
		e.Bool(*f.value)
	}
}

// decodeFlag reads the value of key, or returns false for one that is no flag's.
func decodeFlag(d *wire.Decoder, key string, flags []flag) bool {
	for _, f := range flags {
		if f.key == key {
			*f.value = d.Bool()
			return true
		}
	}
	return false
}
