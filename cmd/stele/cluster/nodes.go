package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

func nodeCommand(a *cli.App) *cobra.Command {
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
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(nodeListCommand(a), nodeShowCommand(a), nodeDrainCommand(a), nodeUndrainCommand(a), nodeRemoveCommand(a))
	return cmd
}

func nodeListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the nodes of the cluster",
		Long: `List the nodes of the cluster, as the node at --addr sees them. Failure detection takes
some seconds, and may list a paused node as dead.

ROLE: voters replicate the lock service, the leader leads it, the master assigns
tablets. SINCE is the time that the node has been in its state.`,
		Example: `  stele node list
  stele node list --addr 10.0.0.5:7106
  stele node list --json | jq -r 'select(.state == "dead") | .name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var nodes []client.NodeInfo
			err := a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) (err error) {
				if nodes, err = c.Nodes().List(ctx); err == nil {
					health.MarkLeader(ctx, c, nodes)
				}
				return err
			})
			if err != nil {
				return err
			}
			return listNodes(a, nodes)
		},
	}
}

// fetchNodes returns the nodes of the cluster, by a call of its own.
func fetchNodes(a *cli.App, cmd *cobra.Command) (nodes []client.NodeInfo, err error) {
	err = a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		nodes, err = c.Nodes().List(ctx)
		return err
	})
	return nodes, err
}

func listNodes(a *cli.App, nodes []client.NodeInfo) error {
	slices.SortStableFunc(nodes, func(x, y client.NodeInfo) int { return strings.Compare(x.Name, y.Name) })
	if a.JSON {
		for _, n := range nodes {
			if err := a.PrintJSON(n); err != nil {
				return err
			}
		}
		return nil
	}
	a.Notef("%s", nodesSentence(a, nodes))
	g := cli.NewGrid("NAME", "ID", "ZONE", "STATE", "ROLE", "ADDRESS", "VERSION", "FREE", "SINCE")
	for i := range nodes {
		n := &nodes[i]
		if n.Reason != "" {
			a.Notef("node %s ended by itself: %s", cli.NodeName(n), n.Reason)
		}
		g.Add(n.Name, n.ID, n.Zone, nodeState(n), health.Role(n), n.RPC, n.Version, cli.Size(n.FreeBytes), formatSeconds(n.SinceSeconds))
	}
	return a.Print(g)
}

// nodesSentence returns a one-line summary of the nodes, for standard error.
func nodesSentence(a *cli.App, nodes []client.NodeInfo) string {
	alive, leader, master := 0, "", ""
	var down []string
	for i := range nodes {
		n := &nodes[i]
		switch n.State {
		case api.NodeAlive:
			alive++
		case api.NodeLeft:
			down = append(down, cli.NodeName(n)+" has left")
		default:
			down = append(down, cli.NodeName(n)+" is "+cli.OrElse(n.State, api.NodeUnknown))
		}
		if n.Leader {
			leader = cli.NodeName(n)
		}
		if n.Master {
			master = cli.NodeName(n)
		}
	}
	word, why := a.Paint(a.ErrTTY, cli.StyleGood, "healthy"), ""
	switch {
	case leader == "":
		word, why = a.Paint(a.ErrTTY, cli.StyleError, "unhealthy"), "; no leader is known"
	case master == "":
		word, why = a.Paint(a.ErrTTY, cli.StyleHint, "degraded"), "; no master is known"
	case len(down) > 0:
		word = a.Paint(a.ErrTTY, cli.StyleHint, "degraded")
	}
	if len(down) > 3 {
		down = append(down[:3], "…")
	}
	if len(down) > 0 {
		why += "; " + strings.Join(down, ", ")
	}
	text := fmt.Sprintf(": %d of %s alive", alive, cli.Plural(int64(len(nodes)), "node"))
	if leader != "" {
		text += ", leader " + leader
	}
	if master != "" {
		text += ", master " + master
	}
	return word + text + why
}

func nodeState(n *client.NodeInfo) string {
	state := cli.OrElse(n.State, api.NodeUnknown)
	if n.Draining {
		state += ",draining"
	}
	return state
}

func formatSeconds(s float64) string { return text.Uptime(time.Duration(s * float64(time.Second))) }

func nodeShowCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Aliases: []string{"describe"},
		Short:   "Show the details of a node",
		Example: `  stele node show n3
  stele node show n3 --json | jq .state`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := fetchNodes(a, cmd)
			if err != nil {
				return err
			}
			n, err := api.FindNode(nodes, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(n)
			}
			return showNode(a, n)
		},
	}
}

func showNode(a *cli.App, n *client.NodeInfo) error {
	g := cli.NewGrid("FIGURE", "VALUE")
	name := n.Name
	if n.Self {
		name += " (the node at --addr)"
	}
	g.Add("name", name)
	g.Add("id", n.ID)
	g.Add("state", fmt.Sprintf("%s for %s", cli.OrElse(n.State, api.NodeUnknown), formatSeconds(n.SinceSeconds)))
	if n.Reason != "" {
		g.Add("ended by itself", n.Reason)
	}
	g.Add("role", strings.ReplaceAll(health.Role(n), ",", ", "))
	g.Add("draining", cli.YesNo(n.Draining))
	g.Add("zone", n.Zone)
	g.Add("clients and nodes", n.RPC)
	g.Add("gossip", n.Gossip)
	g.Add("metrics", n.HTTP)
	g.Add("version", n.Version)
	g.Add("disks", cli.FormatSize(n.FreeBytes)+" free of "+cli.FormatSize(n.CapacityBytes))
	return a.Print(g)
}
