package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// A nodeNote is what --json tells of a change to a node.
type nodeNote struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Done    bool   `json:"done"` // false after a dry run, and for a drain that goes on
	Voter   bool   `json:"voter"`
	Removed bool   `json:"removed,omitempty"`
	// Of a drain: the tablets that the node still serves, nil if that is not known, what it still has of the block store, and
	// whether it can be unplugged for good.
	Tablets    *int64 `json:"tablets,omitempty"`
	Extents    int64  `json:"extents,omitempty"`
	LogExtents int64  `json:"log_extents,omitempty"`
	Safe       *bool  `json:"safe,omitempty"`
}

func (a *app) drained(n *client.NodeInfo, done bool, what string) error {
	if a.json {
		return a.printJSON(nodeNote{ID: n.ID, Name: n.Name, Done: done, Voter: n.Voter})
	}
	a.talk("%s", what)
	return nil
}

func (a *app) nodeUndrainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "undrain NODE",
		Short: "Take a drain back, so that the node does its work again",
		Example: `  stele node undrain n3
  stele node undrain n3 --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				nodes, err := c.Nodes(ctx)
				if err != nil {
					return err
				}
				n, err := api.FindNode(nodes, args[0])
				if err != nil {
					return err
				}
				if err := c.UndrainNode(ctx, n.ID); err != nil {
					return err
				}
				return a.drained(n, true, fmt.Sprintf("node %s is no longer drained", nodeName(n)))
			})
		},
	}
}

func (a *app) nodeRemoveCommand() *cobra.Command {
	var yes, dryRun, force bool
	cmd := &cobra.Command{
		Use:     "remove NODE",
		Aliases: []string{"rm"},
		Short:   "Take a node that is gone for good out of the cluster",
		Long: `Take a node that is gone for good out of the cluster: it is no longer listed, and
its vote goes to another node. It cannot come back with its data folders; with empty
ones the host is a new node.

A node that is alive is refused: drain it and stop it first. So is one that holds
tablets. With --force it is removed all the same: the tablets are lost, and if it is
alive it is to be stopped at once.

In a cluster with certificates the remaining nodes then replace the key of gossip, which
takes some seconds.`,
		Example: `  stele node remove n3
  stele node remove n3 --dry-run
  stele node remove n3 --yes --force`,
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
			if n.State == api.NodeAlive && !force {
				err := &client.NodeInUseError{Node: nodeName(n), Reason: "it is alive"}
				if n.Draining {
					err.Reason = "it drains, and is alive"
					return withHint(err, fmt.Sprintf(`stop it, such as with "systemctl stop stele" on its host, once "stele node show %s" says that it holds nothing that is needed; then remove it`, nodeName(n)))
				}
				return err
			}
			what := describeNode(n)
			if dryRun {
				return a.removedNode(n, false, "would remove "+what)
			}
			question := "Remove " + what + "? It cannot come back."
			if force {
				question += " What only this node holds is lost."
			}
			if err := a.confirm(yes, question); err != nil {
				return err
			}
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveNode(ctx, n.ID, force); err != nil {
					return err
				}
				return a.removedNode(n, true, "removed node "+nodeName(n))
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell which node would be removed")
	cmd.Flags().BoolVar(&force, "force", false, "remove it though it is alive")
	return cmd
}

// describeNode says of a node what one wants to know before it goes.
func describeNode(n *client.NodeInfo) string {
	role := ""
	if r := nodeRole(n); r != "" {
		role = ", " + strings.ReplaceAll(r, ",", " and ")
	}
	return fmt.Sprintf("node %s (%s at %s%s, %s for %s)", nodeName(n), n.ID, orElse(n.RPC, "an unknown address"), role,
		orElse(n.State, api.NodeUnknown), formatSeconds(n.SinceSeconds))
}

func (a *app) removedNode(n *client.NodeInfo, removed bool, what string) error {
	if a.json {
		return a.printJSON(nodeNote{ID: n.ID, Name: n.Name, Done: removed, Voter: n.Voter, Removed: removed})
	}
	a.talk("%s", what)
	return nil
}
