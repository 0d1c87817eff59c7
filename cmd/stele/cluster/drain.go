package cluster

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
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/timing"
)

const nodeDrainLong = `Drain a node, so that it can be stopped. The cluster moves its tablets to other nodes,
makes another node a voter in its place, if one can be, and copies its extents to other
nodes. Tablets stay available, except for the moment of their move. When the command
succeeds, it is safe to stop the node.

Commit log extents stay on the node until the tablets that need them have compacted
their memtables. When none is left, the node can be unplugged for good. The command
prints whether that is so; later, "stele blob status" does.

The request survives restarts of the node. "stele node undrain" cancels it. If the
command is interrupted, the drain continues; run the command again to wait for it.

The command waits for --timeout. Without it, it gives up after five minutes without
progress. It also gives up after 30 seconds without another node that can take over.
Then it prints what the node still holds.

Exit codes: 0 the node is drained, 1 no other node can take over, 7 the node is not
drained in time.`

const nodeDrainExample = `  stele node drain n3
  stele node drain n3 --timeout 5m
  stele node drain n3 --no-wait`

func nodeDrainCommand(a *cli.App) *cobra.Command {
	noWait := false
	cmd := &cobra.Command{
		Use:               "drain NODE",
		Short:             "Drain a node",
		Long:              nodeDrainLong,
		Example:           nodeDrainExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				n, err := drainNode(ctx, c, args[0])
				if err != nil {
					return err
				}
				if noWait {
					return reportDrainRequest(a, n, false, fmt.Sprintf(`draining node %s; "stele status" shows its tablets, "stele node show %s" whether it still votes`, cli.NodeName(n), args[0]))
				}
				return awaitDrain(ctx, a, n, func() (*drainState, error) { return readDrainState(ctx, c, n.ID) })
			})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "start the drain, and do not wait for it")
	return cmd
}

// drainNode requests the drain of a node. It returns an error if no other node can take over: such a
// drain would never finish.
func drainNode(ctx context.Context, c *client.Client, name string) (*client.NodeInfo, error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, name)
	if err != nil {
		return nil, err
	}
	if drainTargets(n, nodes) == 0 {
		return nil, &cli.Fault{Code: cli.ExitError, Hint: "start another node first; to stop the whole cluster, stop its nodes without draining them, which loses nothing",
			Err: fmt.Errorf("no other node can take over from node %s", cli.NodeName(n))}
	}
	return n, c.Nodes().Drain(ctx, n.ID)
}

// drainTargets returns the number of nodes that can take over from n: others that are alive and not
// draining.
func drainTargets(n *client.NodeInfo, nodes []client.NodeInfo) (targets int) {
	for _, o := range nodes {
		if o.ID != n.ID && o.State == api.NodeAlive && !o.Draining {
			targets++
		}
	}
	return targets
}

const (
	// drainPoll is the minimum interval between polls of a drain. A poll reads METADATA, so the interval
	// is longer if polls take long.
	drainPoll = 500 * time.Millisecond
	// drainStallTimeout is the time without progress after which the command gives up if it has no --timeout.
	drainStallTimeout = 5 * time.Minute
	// drainNoTargetTimeout is the time without another node after which it gives up. It is longer than a restart.
	drainNoTargetTimeout = 30 * time.Second
)

// drainState is the state of a drain.
type drainState struct {
	node    *client.NodeInfo
	store   *client.NodeStore // nil if the node is down or has not reported yet
	tablets int64             // tablets that it serves; -1 if unknown
	targets int               // nodes that can take over
	holds   string            // what the node still holds; empty if it is drained
}

// awaitDrain waits until the node has no vote, is not master, and has no tablets and no extents of
// blobs. Then it prints whether the node may be stopped or unplugged. The constants above
// bound the wait.
func awaitDrain(ctx context.Context, a *cli.App, n *client.NodeInfo, look func() (*drainState, error)) error {
	start := time.Now()
	_, bounded := ctx.Deadline()
	last := &drainState{node: n, tablets: -1, targets: 1, holds: "waiting for its state"}
	var status atomic.Pointer[string]
	status.Store(&last.holds)
	stop := a.StartTicker(func() string {
		return fmt.Sprintf("draining %s, %s: %s", cli.NodeName(n), text.Uptime(time.Since(start)), *status.Load())
	})
	defer stop()
	changed, lastTarget, lastMessage := start, start, time.Time{}
	for {
		began := time.Now()
		now, err := look()
		switch {
		case ctx.Err() != nil:
			return drainIncomplete(a, ctx.Err(), last, start)
		case err != nil:
			return cli.WithHint(err, drainContinues(n))
		case now.holds == "":
			stop()
			return reportDrain(a, now)
		}
		if now.holds != last.holds {
			changed = time.Now()
		}
		if now.targets > 0 {
			lastTarget = time.Now()
		}
		last = now
		status.Store(&now.holds)
		if !a.ErrTTY && changed.After(lastMessage) && time.Since(lastMessage) >= cli.ProgressLines {
			lastMessage = time.Now()
			a.Notef("draining %s: %s", cli.NodeName(n), now.holds)
		}
		switch {
		case time.Since(lastTarget) >= drainNoTargetTimeout:
			return drainIncomplete(a, errNoDrainTarget, last, start)
		case !bounded && time.Since(changed) >= drainStallTimeout:
			return drainIncomplete(a, errDrainStalled, last, start)
		}
		if timing.Sleep(ctx, max(drainPoll, 4*time.Since(began))) != nil {
			return drainIncomplete(a, ctx.Err(), last, start)
		}
	}
}

// Why awaitDrain gives up, besides the end of its context.
var (
	errNoDrainTarget = errors.New("no other node can take over")
	errDrainStalled  = fmt.Errorf("there has been no progress for %s", text.Uptime(drainStallTimeout))
)

// drainIncomplete returns the error of a drain that has not finished. With --json it prints the state first.
func drainIncomplete(a *cli.App, why error, last *drainState, start time.Time) error {
	n := last.node
	if errors.Is(why, context.Canceled) {
		return cli.WithHint(why, drainContinues(n))
	}
	if a.JSON {
		note := drainJSON(last)
		note.Done = false
		if err := a.PrintJSON(note); err != nil {
			return err
		}
	}
	f := &cli.Fault{Code: cli.ExitTimeout, Hint: drainContinues(n)}
	if last.tablets != 0 {
		f.Hint = `"stele status" lists tablets that cannot be served; if there is none, the moves only take longer; ` + f.Hint
	}
	after := text.Uptime(time.Since(start))
	f.Err = fmt.Errorf("node %s is not drained after %s: %s", cli.NodeName(n), after, last.holds)
	switch {
	case errors.Is(why, errNoDrainTarget):
		f.Code, f.Hint = cli.ExitError, "start another node, or undrain one; "+drainContinues(n)
		f.Err = fmt.Errorf("%w, and %w", f.Err, why)
	case errors.Is(why, errDrainStalled):
		f.Err = fmt.Errorf("%w, and %w", f.Err, why)
	}
	return f
}

// drainContinues returns the hint that the drain continues after the command has exited.
func drainContinues(n *client.NodeInfo) string {
	return fmt.Sprintf(`the drain continues: wait for it by "stele node drain %[1]s", or cancel it by "stele node undrain %[1]s"`, cli.NodeName(n))
}

// readDrainState reads the state of a drain.
func readDrainState(ctx context.Context, c *client.Client, id string) (*drainState, error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, id)
	if err != nil {
		return nil, err
	}
	x := &drainState{node: n, targets: drainTargets(n, nodes)}
	var unknown error
	if x.tablets, unknown = tabletsOn(ctx, c, n, nodes); unknown != nil {
		x.tablets = -1
	}
	yet := "" // reported only if the node holds nothing else
	switch {
	case !n.Draining: // gossip has not spread the request yet, or it was cancelled
		yet = "it is not listed as draining"
	case n.State == api.NodeAlive:
		s, err := c.BlockStore().Status(ctx)
		if err != nil {
			return nil, err
		}
		x.store, yet = drainStore(s, id)
	}
	x.holds = cli.OrElse(stillHolds(x, unknown), yet)
	return x, nil
}

// stillHolds returns what a node still holds, for messages; empty for nothing. unknown is the error if
// its tablets are unknown.
func stillHolds(x *drainState, unknown error) string {
	var still []string
	if x.node.Master {
		still = append(still, "is the master")
	}
	switch {
	case x.node.Leader:
		still = append(still, "leads the lock service")
	case x.node.Voter:
		still = append(still, "votes in the lock service")
	}
	switch {
	case unknown != nil:
		still = append(still, fmt.Sprintf("may serve tablets (their placement is unknown: %v)", unknown))
	case x.tablets > 0:
		still = append(still, "serves "+cli.Plural(x.tablets, "tablet"))
	}
	if x.store != nil && x.store.DrainExtents > 0 {
		still = append(still, "has "+cli.Plural(x.store.DrainExtents, "extent"))
	}
	if len(still) == 0 {
		return ""
	}
	last := len(still) - 1
	if last > 0 {
		still = []string{strings.Join(still[:last], ", "), still[last]}
	}
	return "it still " + strings.Join(still, " and ")
}

// drainStore returns a node's part of the block store, or why it is not known. Both are empty if the
// block store does not list the node.
func drainStore(s *client.StoreStatus, id string) (*client.NodeStore, string) {
	i := slices.IndexFunc(s.Nodes, func(x client.NodeStore) bool { return x.Node == id })
	switch {
	case i < 0:
		return nil, ""
	case s.Nodes[i].Error != "":
		return nil, "its extents are unknown: " + s.Nodes[i].Error
	case !s.Nodes[i].Draining:
		return nil, "it has not counted its extents yet"
	}
	return &s.Nodes[i], ""
}

// tabletsOn returns the number of tablets on a node: those that METADATA places there, and the root
// tablet, which METADATA does not contain.
func tabletsOn(ctx context.Context, c *client.Client, n *client.NodeInfo, nodes []client.NodeInfo) (int64, error) {
	held, err := health.Tablets(ctx, c)
	if err != nil {
		return 0, err
	}
	info, err := c.Tables().Describe(ctx, metadata.Name)
	if err != nil {
		return 0, err
	}
	// The table's description has only names of nodes. If two nodes share a name, the root tablet is
	// counted for neither.
	alike := slices.ContainsFunc(nodes, func(o client.NodeInfo) bool { return o.ID != n.ID && o.Name == n.Name })
	for _, t := range info.Tablets {
		if len(t.Start) == 0 && t.Node == n.Name && !alike {
			held[n.ID]++
		}
	}
	return held[n.ID], nil
}

// drainJSON returns the --json form of a drain.
func drainJSON(x *drainState) nodeChangeJSON {
	note := nodeChangeJSON{ID: x.node.ID, Name: x.node.Name, Done: true, Voter: x.node.Voter}
	if x.tablets >= 0 {
		note.Tablets = &x.tablets
	}
	if x.store != nil {
		note.Extents, note.LogExtents, note.Safe = x.store.DrainExtents, x.store.DrainLogs, &x.store.Safe
	}
	return note
}

// reportDrain prints whether a drained node may be stopped or unplugged.
func reportDrain(a *cli.App, x *drainState) error {
	if a.JSON {
		return a.PrintJSON(drainJSON(x))
	}
	name := cli.NodeName(x.node)
	switch {
	case x.store == nil:
		a.Notef(`node %s has no vote and no tablets, and is down; check by "stele blob fsck" whether its extents have replicas on other nodes`, name)
	case x.store.Safe:
		a.Notef("node %s has no vote, no tablets and no extents in use: it is safe to unplug it for good", name)
	default:
		a.Notef("node %s has no vote, no tablets and no extents of blobs: it is safe to stop it", name)
		a.Notef(`keep its disks until "stele blob status" reports it safe to unplug: %s on it may still be needed`, cli.Plural(x.store.DrainLogs, "commit log extent"))
	}
	return nil
}
