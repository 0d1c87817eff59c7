package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

// nodeChangeJSON is the --json form of a change to a node.
type nodeChangeJSON struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Done    bool   `json:"done"` // false for a dry run, and for a drain in progress
	Voter   bool   `json:"voter"`
	Removed bool   `json:"removed,omitempty"`
	// Of a drain: the number of tablets that the node still serves, nil if unknown; the extents and
	// commit log extents that it still holds; and whether it can be unplugged for good.
	Tablets    *int64 `json:"tablets,omitempty"`
	Extents    int64  `json:"extents,omitempty"`
	LogExtents int64  `json:"log_extents,omitempty"`
	Safe       *bool  `json:"safe,omitempty"`
}

func reportDrainRequest(a *cli.App, n *client.NodeInfo, done bool, what string) error {
	if a.JSON {
		return a.PrintJSON(nodeChangeJSON{ID: n.ID, Name: n.Name, Done: done, Voter: n.Voter})
	}
	a.Notef("%s", what)
	return nil
}

func nodeUndrainCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "undrain NODE",
		Short: "Cancel the drain of a node",
		Example: `  stele node undrain n3
  stele node undrain n3 --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				nodes, err := c.Nodes().List(ctx)
				if err != nil {
					return err
				}
				n, err := api.FindNode(nodes, args[0])
				if err != nil {
					return err
				}
				if err := c.Nodes().Undrain(ctx, n.ID); err != nil {
					return err
				}
				what := "cancelled the drain of node " + cli.NodeName(n)
				if !n.Draining {
					what = fmt.Sprintf("node %s is not draining", cli.NodeName(n))
				}
				return reportDrainRequest(a, n, true, what)
			})
		},
	}
}

const nodeRemoveLong = `Remove a node from the cluster for good. It is no longer listed, and another node
becomes a voter in its place. It cannot rejoin with its data folders; with empty ones,
the host joins as a new node.

A node that is alive or holds tablets is not removed: drain it and stop it first.
--force removes it anyway: data that only this node holds is lost, and if the node is
alive it must be stopped at once.

In a cluster with certificates, the remaining nodes then replace the gossip key, which
takes a few seconds.`

const nodeRemoveExample = `  stele node remove n3
  stele node remove n3 --dry-run
  stele node remove n3 --yes --force`

func nodeRemoveCommand(a *cli.App) *cobra.Command {
	var yes, dryRun, force bool
	cmd := &cobra.Command{
		Use:               "remove NODE",
		Aliases:           []string{"rm"},
		Short:             "Remove a node from the cluster for good",
		Long:              nodeRemoveLong,
		Example:           nodeRemoveExample,
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
			if n.State == api.NodeAlive && !force {
				return inUse(n)
			}
			return removeNode(a, cmd, n, force, yes, dryRun)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the node that would be removed, and change nothing")
	cmd.Flags().BoolVar(&force, "force", false, "remove the node even if it is alive or holds tablets")
	return cmd
}

// inUse returns the error for a node that is alive, and so cannot be removed.
func inUse(n *client.NodeInfo) error {
	err := &client.NodeInUseError{Node: cli.NodeName(n), Reason: "it is alive"}
	if n.Draining {
		err.Reason = "it is draining, and alive"
		return cli.WithHint(err, fmt.Sprintf(`wait for "stele node drain %s" to finish, stop the node, for example by "systemctl stop stele" on its host, then remove it`, cli.NodeName(n)))
	}
	return err
}

// removeNode removes a node after confirmation, or prints what it would remove.
func removeNode(a *cli.App, cmd *cobra.Command, n *client.NodeInfo, force, yes, dryRun bool) error {
	what := describeNode(n)
	if dryRun {
		return reportNodeRemoval(a, n, false, "would remove "+what)
	}
	question := "Remove " + what + "? It cannot rejoin."
	if force {
		question += " Data that only this node holds is lost."
	}
	if err := a.Confirm(yes, question); err != nil {
		return err
	}
	return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		if err := c.Nodes().Remove(ctx, n.ID, force); err != nil {
			return err
		}
		return reportNodeRemoval(a, n, true, "removed node "+cli.NodeName(n))
	})
}

// describeNode returns a node's name, id, address, roles and state, for the question before a removal.
func describeNode(n *client.NodeInfo) string {
	role := ""
	if r := health.Role(n); r != "" {
		role = ", " + strings.ReplaceAll(r, ",", " and ")
	}
	return fmt.Sprintf("node %s (%s at %s%s, %s for %s)", cli.NodeName(n), n.ID, cli.OrElse(n.RPC, "an unknown address"), role,
		cli.OrElse(n.State, api.NodeUnknown), formatSeconds(n.SinceSeconds))
}

func reportNodeRemoval(a *cli.App, n *client.NodeInfo, removed bool, what string) error {
	if a.JSON {
		return a.PrintJSON(nodeChangeJSON{ID: n.ID, Name: n.Name, Done: removed, Voter: n.Voter, Removed: removed})
	}
	a.Notef("%s", what)
	return nil
}
