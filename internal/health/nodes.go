package health

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
)

// StillCounting is the reason that the counts of nodes are unknown.
const StillCounting = "still counting, after a node has joined or left"

// NameOf returns the name of a node, or its id if it has no name.
func NameOf(n *client.NodeInfo) string { return cmp.Or(n.Name, n.ID) }

// Tablets returns the number of tablets in METADATA on each node, by its id. Errors: those of a scan.
func Tablets(ctx context.Context, c *client.Client) (map[string]int64, error) {
	held := map[string]int64{}
	return held, (&Cluster{}).countTablets(ctx, c, held)
}

// leaderTimeout is the timeout of MarkLeader.
const leaderTimeout = 3 * time.Second

// MarkLeader marks the leader and the master among nodes by the status of the Raft group, if no node is
// marked as leader. If there is no answer, neither is known.
func MarkLeader(ctx context.Context, c *client.Client, nodes []client.NodeInfo) {
	if slices.ContainsFunc(nodes, func(n client.NodeInfo) bool { return n.Leader }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	s, err := c.Nodes().RaftStatus(ctx)
	if err != nil {
		s = &client.RaftStatus{}
	}
	ApplyRaftStatus(nodes, s)
}

// ApplyRaftStatus marks the leader and the master by the status of the Raft group. Without a leader there
// is no master.
func ApplyRaftStatus(nodes []client.NodeInfo, s *client.RaftStatus) {
	led := s.Leader != ""
	for i := range nodes {
		nodes[i].Leader = nodes[i].ID == s.Leader
		nodes[i].Master = led && (nodes[i].Master || s.Master == nodes[i].ID)
	}
}

// Role returns the roles of a node, separated by commas. A leader is a voter, which is omitted.
func Role(n *client.NodeInfo) string {
	var roles []string
	switch {
	case n.Leader:
		roles = append(roles, "leader")
	case n.Voter:
		roles = append(roles, "voter")
	}
	if n.Master {
		roles = append(roles, "master")
	}
	return strings.Join(roles, ",")
}
