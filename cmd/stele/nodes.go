package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "List, show, drain and remove the nodes of the cluster",
		Long: `List, show, drain and remove the nodes of the cluster. NODE is the name of a node, or
its id if several nodes have that name. Any node of the cluster answers these commands.

To take a node out of service for good: drain it, stop it, remove it.`,
		Example: `  stele node list
  stele node show n3
  stele node drain n3
  stele node remove n3`,
		Args: unknownCommand,
		RunE: requireSubcommand,
	}
	cmd.AddCommand(a.nodeListCommand(), a.nodeShowCommand(), a.nodeDrainCommand(), a.nodeUndrainCommand(), a.nodeRemoveCommand())
	return cmd
}

func (a *app) nodeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the nodes of the cluster",
		Long: `List the nodes of the cluster, as the node at --addr sees them. Failure detection takes
some seconds, and may list a paused node as dead.

ROLE: voters replicate the lock service, the leader leads it, the master assigns
tablets. LOAD is the share of the node's capacity in use. SINCE is the time that the
node has been in its state.`,
		Example: `  stele node list
  stele node list --addr 10.0.0.5:7106
  stele node list --json | jq -r 'select(.state == "dead") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var nodes []client.NodeInfo
			err := a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) (err error) {
				if nodes, err = c.Nodes(ctx); err == nil {
					markLeader(ctx, c, nodes)
				}
				return err
			})
			if err != nil {
				return err
			}
			return a.listNodes(nodes)
		},
	}
}

// nodes returns the nodes of the cluster, by a call of its own.
func (a *app) nodes(cmd *cobra.Command) (nodes []client.NodeInfo, err error) {
	err = a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
		nodes, err = c.Nodes(ctx)
		return err
	})
	return nodes, err
}

// leaderTimeout is the timeout of markLeader.
const leaderTimeout = 3 * time.Second

// markLeader marks the leader and the master among nodes by the status of the Raft group, if no node is
// marked as leader. If there is no answer, neither is known.
func markLeader(ctx context.Context, c *client.Client, nodes []client.NodeInfo) {
	if slices.ContainsFunc(nodes, func(n client.NodeInfo) bool { return n.Leader }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	s, err := c.RaftStatus(ctx)
	if err != nil {
		s = &client.RaftStatus{}
	}
	applyRaftStatus(nodes, s)
}

// applyRaftStatus marks the leader and the master by the status of the Raft group. Without a leader there
// is no master.
func applyRaftStatus(nodes []client.NodeInfo, s *client.RaftStatus) {
	led := s.Leader != ""
	for i := range nodes {
		nodes[i].Leader = nodes[i].ID == s.Leader
		nodes[i].Master = led && (nodes[i].Master || s.Master == nodes[i].ID)
	}
}

// nodeJSON is the --json form of a node, with the field names of the data API.
type nodeJSON struct {
	ID            string  `json:"id"`
	Name          string  `json:"name"`
	Zone          string  `json:"zone"`
	RPC           string  `json:"rpc"`
	Gossip        string  `json:"gossip"`
	HTTP          string  `json:"http"`
	Version       string  `json:"version"`
	State         string  `json:"state"`
	SinceSeconds  float64 `json:"since_s"`
	Voter         bool    `json:"voter"`
	Leader        bool    `json:"leader"`
	Master        bool    `json:"master"`
	Draining      bool    `json:"draining"`
	Self          bool    `json:"self"`
	CapacityBytes int64   `json:"capacity_bytes"`
	FreeBytes     int64   `json:"free_bytes"`
	Load          float64 `json:"load"`
}

func (a *app) listNodes(nodes []client.NodeInfo) error {
	slices.SortStableFunc(nodes, func(x, y client.NodeInfo) int { return strings.Compare(x.Name, y.Name) })
	if a.json {
		for _, n := range nodes {
			if err := a.printJSON(nodeJSON(n)); err != nil {
				return err
			}
		}
		return nil
	}
	a.notef("%s", a.nodesSentence(nodes))
	g := newGrid("NAME", "ID", "ZONE", "STATE", "ROLE", "ADDRESS", "VERSION", "FREE", "LOAD", "SINCE")
	for i := range nodes {
		n := &nodes[i]
		g.add(n.Name, n.ID, n.Zone, nodeState(n), nodeRole(n), n.RPC, n.Version, size(n.FreeBytes), formatLoad(n.Load), formatSeconds(n.SinceSeconds))
	}
	return a.print(g)
}

// nodesSentence returns a one-line summary of the nodes, for standard error.
func (a *app) nodesSentence(nodes []client.NodeInfo) string {
	alive, leader, master := 0, "", ""
	var down []string
	for i := range nodes {
		n := &nodes[i]
		switch n.State {
		case api.NodeAlive:
			alive++
		case api.NodeLeft:
			down = append(down, nodeName(n)+" has left")
		default:
			down = append(down, nodeName(n)+" is "+orElse(n.State, api.NodeUnknown))
		}
		if n.Leader {
			leader = nodeName(n)
		}
		if n.Master {
			master = nodeName(n)
		}
	}
	word, why := a.paint(a.errTTY, styleGood, "healthy"), ""
	switch {
	case leader == "":
		word, why = a.paint(a.errTTY, styleError, "unhealthy"), "; no leader is known"
	case master == "":
		word, why = a.paint(a.errTTY, styleHint, "degraded"), "; no master is known"
	case len(down) > 0:
		word = a.paint(a.errTTY, styleHint, "degraded")
	}
	if len(down) > 3 {
		down = append(down[:3], "…")
	}
	if len(down) > 0 {
		why += "; " + strings.Join(down, ", ")
	}
	text := fmt.Sprintf(": %d of %s alive", alive, plural(int64(len(nodes)), "node"))
	if leader != "" {
		text += ", leader " + leader
	}
	if master != "" {
		text += ", master " + master
	}
	return word + text + why
}

// nodeName returns the name of a node, or its id if it has no name.
func nodeName(n *client.NodeInfo) string { return orElse(n.Name, n.ID) }

func nodeState(n *client.NodeInfo) string {
	state := orElse(n.State, api.NodeUnknown)
	if n.Draining {
		state += ",draining"
	}
	return state
}

// nodeRole returns the roles of a node, separated by commas. A leader is a voter, which is omitted.
func nodeRole(n *client.NodeInfo) string {
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

// formatLoad formats a fraction in percent.
func formatLoad(load float64) number {
	return number(strconv.FormatFloat(100*load, 'f', 0, 64) + "%")
}

func formatSeconds(s float64) string { return formatUptime(time.Duration(s * float64(time.Second))) }

func (a *app) nodeShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Aliases: []string{"describe"},
		Short:   "Show the details of a node",
		Example: `  stele node show n3
  stele node show n3 --json | jq .state`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := a.nodes(cmd)
			if err != nil {
				return err
			}
			n, err := api.FindNode(nodes, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(nodeJSON(*n))
			}
			return a.showNode(n)
		},
	}
}

func (a *app) showNode(n *client.NodeInfo) error {
	g := newGrid("FIGURE", "VALUE")
	name := n.Name
	if n.Self {
		name += " (the node at --addr)"
	}
	g.add("name", name)
	g.add("id", n.ID)
	g.add("state", fmt.Sprintf("%s for %s", orElse(n.State, api.NodeUnknown), formatSeconds(n.SinceSeconds)))
	g.add("role", strings.ReplaceAll(nodeRole(n), ",", ", "))
	g.add("draining", yesNo(n.Draining))
	g.add("zone", n.Zone)
	g.add("clients and nodes", n.RPC)
	g.add("gossip", n.Gossip)
	g.add("metrics", n.HTTP)
	g.add("version", n.Version)
	g.add("disks", formatSize(n.FreeBytes)+" free of "+formatSize(n.CapacityBytes))
	g.add("load", string(formatLoad(n.Load)))
	return a.print(g)
}
