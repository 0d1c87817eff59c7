package blobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

const statusLong = `Show the state of the block store, as each node reports its part.

UNDER is the number of under-replicated extents that the node has to repair. When a node
stays unreachable, its replicas are copied to others. CORRUPT is the number of corrupt
replicas not repaired yet. LOG ON is the number of nodes that hold the commit log extent
the node appends to. GARBAGE is in quarantine and will be removed; the master looks for
garbage every hour. SCRUB is the progress of the node's current scrub, which reads and
verifies all its replicas.

STATE is "counting" after a node has started, and whenever a node has joined or left,
until the node has examined its extents; UNDER is then ?. A node is "balancing" while it
moves extents to emptier nodes, and "draining" or "drained" after "stele node drain".

These are the nodes' own figures. Use "stele blob fsck" to check everything again.`

const statusExample = `  stele blob status
  watch stele blob status
  stele blob status --json | jq '[.nodes[].under_replicated] | add'`

func statusCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the block store by node: repair, scrub, garbage, drain",
		Long:    statusLong,
		Example: statusExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.BlockStore().Status(ctx)
				if err != nil {
					return err
				}
				return printStoreStatus(a, s)
			})
		},
	}
}

func printStoreStatus(a *cli.App, s *client.StoreStatus) error {
	slices.SortStableFunc(s.Nodes, func(x, y client.NodeStore) int { return strings.Compare(x.Name, y.Name) })
	if a.JSON {
		return a.PrintJSON(s)
	}
	a.Notef("%s", storeSentence(a, s))
	if text := sweepSentence(s, time.Now()); text != "" {
		a.Notef("%s", text)
	}
	if slices.ContainsFunc(s.Nodes, func(n client.NodeStore) bool { return n.SweepHalted != "" || n.Alarm != "" }) {
		a.Hint(`see "stele blob resume-sweep --help"`)
	}
	for i := range s.Nodes {
		switch n := &s.Nodes[i]; {
		case n.Draining && n.Safe:
			a.Notef("%s is drained: it is safe to unplug it for good", n.Name)
		case n.Draining:
			a.Notef("%s is draining: %s left", n.Name, cli.OrElse(drainLeft(n), "unknown"))
		}
	}
	g := cli.NewGrid("NODE", "STATE", "EXTENTS", "BYTES", "UNDER", "TO COPY", "CORRUPT", "LOG ON", "GARBAGE", "SCRUB")
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Error != "" {
			g.Add(n.Name, "no answer", cli.Number(""), cli.Number(""), cli.Number(""), cli.Number(""), cli.Number(""), "", cli.Number(""), cli.Number(""))
			continue
		}
		under, toCopy := cli.Count(n.Under), cli.FormatSize(n.UnderBytes)
		if !n.Known {
			under, toCopy = "?", "?"
		}
		if n.CopyRate > 0 {
			toCopy += " at " + cli.FormatSize(n.CopyRate) + "/s"
		}
		g.Add(n.Name, nodeStoreState(n), cli.Count(n.Extents), cli.Size(n.Bytes), under, cli.Number(toCopy), cli.Count(n.Corrupt),
			fmt.Sprintf("%d of %d", n.LogReplicas, max(s.ReplicationFactor, n.LogReplicas)), cli.Size(n.QuarantinedBytes), cli.FormatPercent(n.ScrubPosition))
	}
	return a.Print(g)
}

func nodeStoreState(n *client.NodeStore) string {
	switch {
	case n.Draining && n.Safe:
		return "drained"
	case n.Draining:
		return "draining"
	case !n.Known:
		return "counting"
	case n.Balancing:
		return "balancing"
	}
	return "ok"
}

// drainLeft returns the extents that a draining node still holds, for messages; empty for none.
func drainLeft(n *client.NodeStore) string {
	var parts []string
	if n.DrainExtents > 0 {
		parts = append(parts, cli.Plural(n.DrainExtents, "extent"))
	}
	if n.DrainLogs > 0 {
		parts = append(parts, cli.Plural(n.DrainLogs, "commit log extent"))
	}
	return strings.Join(parts, " and ")
}

// sweepSentence describes the last garbage collection that a node reports; empty if none does.
func sweepSentence(s *client.StoreStatus, now time.Time) string {
	var last *client.NodeStore
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Error == "" && n.Sweeps+n.SweepsFailed > 0 && (last == nil || n.SweptAt.After(last.SweptAt)) {
			last = n
		}
	}
	if last == nil {
		return ""
	}
	ago := text.Uptime(max(now.Sub(last.SweptAt), 0))
	if last.SweepError != "" {
		return fmt.Sprintf("the last garbage collection failed %s ago: %s", ago, last.SweepError)
	}
	return fmt.Sprintf("the last garbage collection, round %d, ended %s ago: %s found, %d quarantined, %d removed, %s",
		last.SweepRound, ago, cli.Plural(last.SweptFound, "extent"), last.SweptAside, last.SweptRemoved, cli.FormatSize(last.SweptRemovedBytes))
}

// storeSentence returns a one-line summary of the block store, for standard error.
func storeSentence(a *cli.App, s *client.StoreStatus) string {
	var under, oneLeft, bytes, rate, corrupt, logs, answered int64
	var why, counting []string
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Error != "" {
			why = append(why, n.Name+" does not answer")
			continue
		}
		answered++
		corrupt, logs = corrupt+n.Corrupt, logs+n.LogUnder
		if n.Known {
			under, oneLeft, bytes, rate = under+n.Under, oneLeft+n.OneLeft, bytes+n.UnderBytes, rate+n.CopyRate
		} else {
			counting = append(counting, n.Name)
		}
		if n.SweepHalted != "" && !slices.ContainsFunc(s.Nodes, func(x client.NodeStore) bool { return x.Alarm != "" }) {
			why = append(why, "garbage collection is stopped: "+n.SweepHalted)
		}
		if n.Alarm != "" {
			why = append(why, "garbage collection is stopped by an alarm of "+n.Name+": "+n.Alarm)
		}
	}
	if len(counting) > 0 {
		why = append([]string{"the number of under-replicated extents is unknown: " + strings.Join(counting, ", ") + " " + cli.StillCounting}, why...)
	}
	if corrupt > 0 {
		why = append([]string{cli.Plural(corrupt, "replica") + " corrupt"}, why...)
	}
	if logs > 0 {
		why = append([]string{cli.Plural(logs, "commit log extent") + " under-replicated"}, why...)
	}
	if under > 0 {
		line := fmt.Sprintf("%s under-replicated, %s to copy", cli.Plural(under, "extent"), cli.FormatSize(bytes))
		if oneLeft > 0 {
			line = fmt.Sprintf("%s under-replicated, %s of them with one replica or none, %s to copy", cli.Plural(under, "extent"), cli.FormatCount(oneLeft), cli.FormatSize(bytes))
		}
		if rate > 0 {
			line += fmt.Sprintf(", about %s left", text.Uptime(time.Duration(float64(bytes)/float64(rate)*float64(time.Second))))
		}
		why = append([]string{line}, why...)
	}
	nodes := fmt.Sprintf("%d of %s answer", answered, cli.Plural(int64(len(s.Nodes)), "node"))
	if len(why) > 0 {
		return a.Paint(a.ErrTTY, cli.StyleHint, "degraded") + ": " + nodes + "; " + strings.Join(why, "; ")
	}
	return a.Paint(a.ErrTTY, cli.StyleGood, "healthy") + ": " + nodes + ", no extent is under-replicated"
}
