package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// The states of a node, from gossip. They are hints: a node that pauses is soon reported dead, and
// a dead node is still reported alive for a moment.
const (
	NodeAlive   = "alive"
	NodeDead    = "dead" // it no longer answers
	NodeLeft    = "left" // it announced its departure
	NodeUnknown = "unknown"
)

// NodeInfo is an element of the result of list_nodes: a node, from the view of the node that
// answers.
type NodeInfo struct {
	ID      string `json:"id"`
	Name    string `json:"name"` // for display; several nodes may have the same
	Zone    string `json:"zone"`
	RPC     string `json:"rpc"` // host:port for clients and other nodes
	Gossip  string `json:"gossip"`
	HTTP    string `json:"http"`    // empty if there is none
	Version string `json:"version"` // of the program
	// State is NodeAlive or another state; SinceSeconds is the time since it last changed.
	State        string  `json:"state"`
	SinceSeconds float64 `json:"since_s"`
	// Reason is the error with which a node in the state "left" ended by itself; empty: it was stopped, or is of an older version.
	Reason   string `json:"reason,omitempty"`
	Voter    bool   `json:"voter"`  // in the Raft group
	Leader   bool   `json:"leader"` // of the Raft group
	Master   bool   `json:"master"`
	Draining bool   `json:"draining"` // by request of an operator
	Self     bool   `json:"self"`     // the node that answers

	CapacityBytes int64 `json:"capacity_bytes"` // of its disks
	FreeBytes     int64 `json:"free_bytes"`
	// DiskGrowthBytes is by how much the used space of its disks grows in a day, as it did in the last DiskGrowthOverS seconds: an hour, a
	// day or a week. DiskGrowthOverS is 0 if that is not known yet, as by nodes of older versions.
	DiskGrowthBytes int64 `json:"disk_growth_bytes"`
	DiskGrowthOverS int64 `json:"disk_growth_over_s"`
}

// growthTrust is how many times as long as it was observed a growth is trusted to go on.
const growthTrust = 24

// FullIn returns when free bytes are used up by a growth, in bytes a day, that was observed over a period. It is not known if that is
// more than 24 times the period away: a load of an hour foretells the next night, not the next month.
func FullIn(free, perDay int64, over time.Duration) (in time.Duration, known bool) {
	if perDay <= 0 || float64(free)/float64(perDay) > growthTrust*over.Hours()/24 {
		return 0, false
	}
	return time.Duration(float64(free) / float64(perDay) * 24 * float64(time.Hour)), true
}

// FindNode returns the node with that id, or else the only one with that name. It returns
// ErrNodeNotFound if there is none or several nodes have the name.
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
	return nil, fmt.Errorf("node %q: %d nodes have that name, use an id, such as %s: %w", idOrName, len(ids), strings.Join(ids, " or "), ErrNodeNotFound)
}

func (n *NodeInfo) fields() fields {
	return fields{
		{"id", &n.ID}, {"name", &n.Name}, {"zone", &n.Zone}, {"rpc", &n.RPC}, {"gossip", &n.Gossip}, {"http", &n.HTTP},
		{"version", &n.Version}, {"state", &n.State}, {"reason", &n.Reason},
		{"voter", &n.Voter}, {"leader", &n.Leader}, {"master", &n.Master}, {"draining", &n.Draining}, {"self", &n.Self},
		{"since_s", &n.SinceSeconds}, {"capacity_bytes", &n.CapacityBytes}, {"free_bytes", &n.FreeBytes},
		{"disk_growth_bytes", &n.DiskGrowthBytes}, {"disk_growth_over_s", &n.DiskGrowthOverS},
	}
}

// nodesMax is the maximum number of nodes that a client decodes.
const nodesMax = 100_000

func nodeList(nodes *[]NodeInfo) *list[NodeInfo] {
	return &list[NodeInfo]{all: nodes, fields: (*NodeInfo).fields, what: "nodes", max: nodesMax}
}

// AppendNodes encodes the result of list_nodes.
func AppendNodes(e *wire.Encoder, nodes []NodeInfo) { nodeList(&nodes).append(e) }

// DecodeNodes decodes the result of list_nodes.
func DecodeNodes(d *wire.Decoder) (nodes []NodeInfo, err error) {
	err = nodeList(&nodes).decode(d)
	return nodes, err
}
