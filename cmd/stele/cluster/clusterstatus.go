package cluster

import (
	"slices"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

// clusterJSON is the --json form of the state of a cluster.
type clusterJSON struct {
	*health.Cluster
	UnservedTablets []unservedJSON `json:"unserved_tablets"`
}

func jsonOf(x *health.Cluster) *clusterJSON {
	j := &clusterJSON{x, []unservedJSON{}}
	for _, t := range x.UnservedTablets {
		j.UnservedTablets = append(j.UnservedTablets, unservedJSON{
			Table: t.Table, BoundsJSON: cli.BoundsOf(t.Start, t.End), NodeID: t.Node, Server: t.Server, SinceS: t.Since.Seconds(), Tries: t.Tries, Error: t.Error,
		})
	}
	return j
}

// gridOf returns the table of nodes.
func gridOf(x *health.Cluster) *cli.Grid {
	counted := func(n int64) cli.Number { return cli.Count(n) }
	g := cli.NewGrid("NODE", "STATE", "ROLE", "TABLETS", "REPLICAS", "UNDER", "P99 LOG")
	orUnknown := func(n *int64, format func(int64) cli.Number) cli.Number {
		if n == nil {
			return "?"
		}
		return format(*n)
	}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		state := n.State
		if slices.ContainsFunc(x.Unreachable, func(u health.UnreachableNode) bool { return u.ID == n.ID }) {
			state = "no answer"
		}
		if n.Draining {
			state += ", draining"
		}
		role := health.Role(&client.NodeInfo{Voter: n.Voter, Leader: n.Leader, Master: n.Master})
		g.Add(n.Name, state, role, orUnknown(n.Tablets, counted), orUnknown(n.Bytes, cli.Size), orUnknown(n.Under, counted), usText(n.LogP99US))
	}
	return g
}
