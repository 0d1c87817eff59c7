package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

const requestsLong = `List the last requests of all nodes that took long, the newest first.

A request is listed if it took as long as the setting slow_request of its node, 200 ms
unless it is set. WAITED is the part of TOOK before the request began, for lack of
workers or memory. A node keeps 256 of them, in memory. "stele trace TRACE" shows what
a request did and waited for.

With --count, count those of the last 10 minutes instead, by method, table, user and
node, first those that took the most time together: a flood of requests displaces others
from the list, but not from the counts. TRACE is the longest's.

With --errors, list the requests that failed in the last 10 minutes instead, by code,
method, table, user and node, the most frequent first. Rows of mutate_rows and read_rows
that failed alone are not counted.`

const requestsExample = `  stele requests
  stele requests --limit 5
  stele requests --count
  stele requests --errors
  stele requests --json | jq -r 'select(.user == "loader") | .row'`

func requestsCommand(a *cli.App) *cobra.Command {
	limit, count, failures := 50, false, false
	cmd := &cobra.Command{
		Use:     "requests",
		Short:   "List requests that took long, or that failed",
		Long:    requestsLong,
		Example: requestsExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if count && failures {
				return cli.Usagef("use one of them", "--count and --errors are both given")
			}
			return a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				switch {
				case failures:
					return listErrors(ctx, a, c, limit)
				case count:
					return listSlow(ctx, a, c, limit)
				}
				return listRequests(ctx, a, c, limit)
			})
		},
	}
	cmd.Flags().BoolVar(&count, "count", false, "count requests that took long in the last 10 minutes, by kind")
	cmd.Flags().BoolVar(&failures, "errors", false, "list requests that failed in the last 10 minutes, by code")
	cmd.Flags().Var((*cli.LimitFlag)(&limit), "limit", "the number of requests to list")
	return cmd
}

// requestJSON is the --json form of a slow request.
type requestJSON struct {
	Node string `json:"node"`
	client.SlowRequest
	cli.RowJSON
	TookS   float64 `json:"took_s"`
	WaitedS float64 `json:"waited_s"`
}

func requestOf(n *client.NodeInfo, r client.SlowRequest) requestJSON {
	return requestJSON{health.NameOf(n), r, cli.RowOf(string(r.Row)), r.Took.Seconds(), r.Waited.Seconds()}
}

// eachSlow calls do with the slow and failed requests of each node that is alive. failed is the error of the last node that does not answer.
func eachSlow(ctx context.Context, c *client.Client, do func(n *client.NodeInfo, s *client.SlowRequests)) (failed, err error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		if n.State != api.NodeAlive {
			continue
		}
		if s, err := c.Nodes().SlowRequests(ctx, n.RPC); err != nil {
			failed = fmt.Errorf("node %s: %w", health.NameOf(n), err)
		} else {
			do(n, s)
		}
	}
	return failed, nil
}

// listRequests lists the slow requests of all nodes that are alive. A node that does not answer is an error, after the others were listed.
func listRequests(ctx context.Context, a *cli.App, c *client.Client, limit int) error {
	var all []requestJSON
	failed, err := eachSlow(ctx, c, func(n *client.NodeInfo, s *client.SlowRequests) {
		for _, r := range s.Requests {
			all = append(all, requestOf(n, r))
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(x, y requestJSON) int { return int(y.EndMS - x.EndMS) })
	if len(all) == 0 && failed != nil { // there may be some
		return failed
	}
	if err := printRequests(a, all[:min(len(all), limit)]); err != nil {
		return err
	}
	return failed
}

func printRequests(a *cli.App, all []requestJSON) error {
	if a.JSON {
		for i := range all {
			if err := a.PrintJSON(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		a.Notef("no request took long")
		return nil
	}
	g := cli.NewGrid("WHEN", "NODE", "METHOD", "TABLE", "ROW", "TOOK", "WAITED", "BYTES", "ERROR", "USER", "FROM", "TRACE")
	for i := range all {
		r := &all[i]
		g.Add(time.UnixMilli(r.EndMS).UTC().Format(time.RFC3339), r.Node, r.Method, r.Table, string(r.SlowRequest.Row), millis(r.Took), millis(r.Waited), cli.Size(r.Bytes), r.Error, r.User, r.From, r.Trace)
	}
	return a.Print(g)
}

// slowJSON is the --json form of a count of slow requests.
type slowJSON struct {
	health.NodeSlow
	cli.RowJSON
	TookS    float64 `json:"took_s"`
	LongestS float64 `json:"longest_s"`
}

// listSlow counts the slow requests of all nodes that are alive. A node that does not answer is an error, after the others were listed.
func listSlow(ctx context.Context, a *cli.App, c *client.Client, limit int) error {
	var all []health.NodeSlow
	failed, err := eachSlow(ctx, c, func(n *client.NodeInfo, s *client.SlowRequests) { all = append(all, health.SlowOf(n, s)...) })
	if err != nil {
		return err
	}
	health.SortSlow(all)
	if len(all) == 0 && failed != nil { // there may be some
		return failed
	}
	if err := printSlow(a, all[:min(len(all), limit)]); err != nil {
		return err
	}
	return failed
}

func printSlow(a *cli.App, all []health.NodeSlow) error {
	if a.JSON {
		for i := range all {
			k := &all[i]
			if err := a.PrintJSON(slowJSON{*k, cli.RowOf(string(k.Row)), k.Took.Seconds(), k.Longest.Seconds()}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		a.Notef("no request took long in the last %d minutes", api.ErrorMinutes)
		return nil
	}
	g := cli.NewGrid("REQUESTS", "METHOD", "TABLE", "USER", "NODE", "LAST", "TOGETHER", "LONGEST", "ROW OF THE LONGEST", "TRACE")
	for i := range all {
		k := &all[i]
		g.Add(cli.Count(k.N), k.Method, cli.OrElse(k.Table, "-"), cli.OrElse(k.User, "-"), k.Node, time.UnixMilli(k.LastMS).UTC().Format(time.RFC3339), millis(k.Took), millis(k.Longest), string(k.Row), k.Trace)
	}
	return a.Print(g)
}
