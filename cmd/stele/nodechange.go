package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

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
	// Of a drain: what the node still has of the block store, and whether it can be unplugged for good.
	Extents    int64 `json:"extents,omitempty"`
	LogExtents int64 `json:"log_extents,omitempty"`
	Safe       *bool `json:"safe,omitempty"`
}

func (a *app) nodeDrainCommand() *cobra.Command {
	noWait := false
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Have a node hold nothing that is needed, so that it can be stopped",
		Long: `Have a node hold nothing that the cluster needs, and wait until that is so: its
vote in the lock service goes to another node, if there is one that can take it,
and what it holds of the block store is copied to others. Then it is safe to stop it.
The tablets on it are not served until it is back.

Parts of commit logs stay until the tablets that need them have written out what they
have in memory. When none is left the node can be unplugged for good: the command says
which it is, and "stele blob status" tells later.

The wish outlives restarts of the node; "stele node undrain" takes it back. It may
be interrupted: the drain goes on, and the same command waits again.`,
		Example: `  stele node drain n3
  stele node drain n3 --timeout 5m
  stele node drain n3 --no-wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, patient, func(ctx context.Context, c *client.Client) error {
				n, err := a.drain(ctx, c, args[0])
				if err != nil {
					return err
				}
				if noWait {
					return a.drained(n, false, fmt.Sprintf(`node %s drains; "stele node show %s" tells whether it still votes`, nodeName(n), args[0]))
				}
				n, store, err := a.awaitDrain(ctx, c, n)
				if err != nil {
					return err
				}
				return a.reportDrain(n, store)
			})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "only ask for it, and do not wait until it is so")
	return cmd
}

// drain asks for a node to be drained. The last one that is left cannot be: it would
// wait for ever.
func (a *app) drain(ctx context.Context, c *client.Client, name string) (*client.NodeInfo, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, name)
	if err != nil {
		return nil, err
	}
	others := 0
	for _, o := range nodes {
		if o.ID != n.ID && o.State == api.NodeAlive && !o.Draining {
			others++
		}
	}
	if others == 0 {
		return nil, &fault{code: exitError, hint: "start another node first; to stop the whole cluster just stop its nodes, which loses nothing",
			err: fmt.Errorf("there is no other node that could do the work of node %s", nodeName(n))}
	}
	return n, c.DrainNode(ctx, n.ID)
}

// drainPoll is how often a drain is looked at.
const drainPoll = 500 * time.Millisecond

// awaitDrain waits until the node has no vote, is not master, and has no extents of blobs. It returns the node, and its
// part of the block store; none if it does not run.
func (a *app) awaitDrain(ctx context.Context, c *client.Client, n *client.NodeInfo) (*client.NodeInfo, *client.NodeStore, error) {
	start := time.Now()
	var told atomic.Pointer[string]
	told.Store(new(string))
	stop := a.startTicker(func() string {
		return fmt.Sprintf("draining %s, %v: %s", nodeName(n), time.Since(start).Round(time.Second), *told.Load())
	})
	defer stop()
	for {
		now, store, needed, err := drainState(ctx, c, n.ID)
		if err != nil {
			return nil, nil, interruptedDrain(err, n)
		}
		if needed == "" {
			return now, store, nil
		}
		if needed != *told.Load() {
			told.Store(&needed)
			if !a.errTTY {
				a.talk("draining %s: %s", nodeName(n), needed)
			}
		}
		t := time.NewTimer(drainPoll)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, nil, interruptedDrain(ctx.Err(), n)
		}
	}
}

// drainState returns a node that drains, its part of the block store, and what it is still needed for.
func drainState(ctx context.Context, c *client.Client, id string) (*client.NodeInfo, *client.NodeStore, string, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	n, err := api.FindNode(nodes, id)
	if err != nil {
		return nil, nil, "", err
	}
	if needed := neededFor(n); needed != "" {
		return n, nil, needed, nil
	}
	if !n.Draining { // the wish has not come round yet, or was taken back
		return n, nil, "it votes no more, but is not seen as draining", nil
	}
	if n.State != api.NodeAlive {
		return n, nil, "", nil
	}
	s, err := c.StoreStatus(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	i := slices.IndexFunc(s.Nodes, func(x client.NodeStore) bool { return x.Node == id })
	switch {
	case i < 0:
		return n, nil, "", nil
	case s.Nodes[i].Error != "":
		return n, nil, "it does not tell what it still has: " + s.Nodes[i].Error, nil
	case !s.Nodes[i].Leaving:
		return n, nil, "it votes no more, and has yet to look at what it has", nil
	case s.Nodes[i].DrainExtents > 0:
		return n, nil, "it still has " + plural(s.Nodes[i].DrainExtents, "extent"), nil
	}
	return n, &s.Nodes[i], "", nil
}

// reportDrain says what may be done with a node that has drained.
func (a *app) reportDrain(n *client.NodeInfo, store *client.NodeStore) error {
	if a.json {
		note := nodeNote{ID: n.ID, Name: n.Name, Done: true, Voter: n.Voter}
		if store != nil {
			note.Extents, note.LogExtents, note.Safe = store.DrainExtents, store.DrainLogs, &store.Safe
		}
		return a.printJSON(note)
	}
	switch {
	case store == nil:
		a.talk(`node %s has no vote, and does not run; "stele blob fsck" tells whether all that is needed is on other nodes`, nodeName(n))
	case store.Safe:
		a.talk("node %s has no vote and holds nothing that is needed: it is safe to unplug it for good", nodeName(n))
	default:
		a.talk("node %s has no vote and no extents: it is safe to stop it", nodeName(n))
		a.talk(`keep its disks: %s on it may still be needed, until "stele blob status" calls it safe to unplug`, plural(store.DrainLogs, "commit log extent"))
	}
	return nil
}

// interruptedDrain tells that the drain goes on though nobody waits for it.
func interruptedDrain(err error, n *client.NodeInfo) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return withHint(err, fmt.Sprintf(`the drain goes on: "stele node show %[1]s" looks at it, "stele node undrain %[1]s" takes it back`, n.ID))
}

// neededFor says what a node is still needed for; empty for nothing.
func neededFor(n *client.NodeInfo) string {
	var parts []string
	if n.Master {
		parts = append(parts, "is the master")
	}
	switch {
	case n.Leader:
		parts = append(parts, "leads the lock service")
	case n.Voter:
		parts = append(parts, "votes in the lock service")
	}
	if len(parts) == 0 {
		return ""
	}
	return "it still " + strings.Join(parts, " and ")
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
alive it is to be stopped at once.`,
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
