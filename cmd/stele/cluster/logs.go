package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/timing"
)

const logsLong = `Show the last lines of the logs of all nodes, or of one, the newest last.

A node keeps the last 256 lines of level info, and the last 256 warnings and errors, in
memory: after a restart it has none. The whole log is where the host keeps it, such as in
systemd's journal ("journalctl -u stele").

--follow then shows new lines until Ctrl-C. It misses lines if a node logs more than 256
of a kind in two seconds.`

const logsExample = `  stele logs
  stele logs --level warn
  stele logs host1 --limit 20
  stele logs --follow --json | jq -r 'select(.level == "error") | .message'`

// logsEvery is the pause between two looks of --follow.
const logsEvery = 2 * time.Second

// logsFlags are the flags of logs.
type logsFlags struct {
	node, level string
	limit       int
	follow      bool
}

func logsCommand(a *cli.App) *cobra.Command {
	f := logsFlags{level: "info", limit: 50}
	cmd := &cobra.Command{
		Use:     "logs [NODE]",
		Short:   "Show the last lines of the nodes' logs",
		Long:    logsLong,
		Example: logsExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 {
				return cli.Usagef("", "--limit is %d, must be at least 1", f.limit)
			}
			if !slices.Contains([]string{"info", "warn", "error"}, f.level) {
				return cli.Usagef("", "--level is %s, must be info, warn or error", f.level)
			}
			if len(args) == 1 {
				f.node = args[0]
			}
			timeout := cli.DefaultTimeout
			if f.follow {
				timeout = cli.NoTimeout
			}
			return a.Call(cmd, timeout, func(ctx context.Context, c *client.Client) error { return logs(ctx, a, c, &f) })
		},
	}
	cmd.Flags().StringVar(&f.level, "level", f.level, "the lowest level to show: info, warn or error")
	cmd.Flags().IntVar(&f.limit, "limit", f.limit, "the number of lines to show, before those that follow")
	cmd.Flags().BoolVar(&f.follow, "follow", f.follow, "show new lines until Ctrl-C")
	return cmd
}

// logJSON is the --json form of a line.
type logJSON struct {
	Node string `json:"node"`
	client.LogLine
}

// logs shows the last lines, and with follow those that come. A node that does not answer is an error, after the lines of the others.
func logs(ctx context.Context, a *cli.App, c *client.Client, f *logsFlags) error {
	seen := map[string]uint64{} // the last number of each node
	lines, failed := newLines(ctx, c, f, seen)
	if err := printLogs(a, lines[max(0, len(lines)-f.limit):]); err != nil {
		return err
	}
	if !f.follow {
		if len(lines) == 0 && failed == nil {
			a.Notef("no lines of this level since the nodes started")
		}
		return failed
	}
	for timing.Sleep(ctx, logsEvery) == nil {
		lines, failed := newLines(ctx, c, f, seen)
		if err := printLogs(a, lines); err != nil {
			return err
		}
		if failed != nil && ctx.Err() == nil {
			a.Notef("%v", failed)
		}
	}
	return nil
}

// newLines returns the lines of all nodes that are not seen yet, the oldest first, and the last error.
func newLines(ctx context.Context, c *client.Client, f *logsFlags, seen map[string]uint64) (all []logJSON, failed error) {
	ctx, cancel := context.WithTimeout(ctx, cli.DefaultTimeout)
	defer cancel()
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	if f.node != "" {
		n, err := api.FindNode(nodes, f.node)
		if err != nil {
			return nil, err
		}
		nodes = []client.NodeInfo{*n}
	}
	var mu sync.Mutex // guards all, failed and seen
	var requests sync.WaitGroup
	for i := range nodes {
		n := &nodes[i]
		if n.State != api.NodeAlive && f.node == "" {
			continue
		}
		requests.Go(func() {
			l, err := c.Nodes().LogLines(ctx, n.RPC, f.level)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("node %s: %w", health.NameOf(n), err)
				return
			}
			last := seen[n.ID]
			for _, x := range l.Lines {
				if x.Number > last {
					all, seen[n.ID] = append(all, logJSON{health.NameOf(n), x}), max(seen[n.ID], x.Number)
				}
			}
		})
	}
	requests.Wait()
	slices.SortFunc(all, func(x, y logJSON) int {
		return cmp.Or(cmp.Compare(x.TimeMS, y.TimeMS), strings.Compare(x.Node, y.Node), cmp.Compare(x.Number, y.Number))
	})
	return all, failed
}

// logStyles are the colours of levels.
var logStyles = map[string]cli.Style{"warn": cli.StyleHint, "error": cli.StyleError}

// printLogs prints a line for each line: they are of any length, so not in a table.
func printLogs(a *cli.App, lines []logJSON) error {
	for i := range lines {
		l := &lines[i]
		if a.JSON {
			if err := a.PrintJSON(l); err != nil {
				return err
			}
			continue
		}
		level := a.Paint(a.OutTTY, logStyles[l.Level], fmt.Sprintf("%-5s", strings.ToUpper(l.Level)))
		fmt.Fprintf(a.Out, "%s %s %s %s %s\n", time.UnixMilli(l.TimeMS).UTC().Format("2006-01-02T15:04:05.000Z"), level, cli.EscapeLines(l.Node), cli.EscapeLines(l.Message), cli.EscapeLines(l.Details))
	}
	return a.Out.Flush()
}
