package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

// listErrors lists the requests that failed lately on all nodes that are alive. A node that does not answer is an error, after the others were
// listed.
func listErrors(ctx context.Context, a *cli.App, c *client.Client, limit int) error {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return err
	}
	var all []health.NodeErrors
	var failed error
	for i := range nodes {
		if nodes[i].State != api.NodeAlive {
			continue
		}
		s, err := c.Nodes().SlowRequests(ctx, nodes[i].RPC)
		if err != nil {
			failed = fmt.Errorf("node %s: %w", health.NameOf(&nodes[i]), err)
			continue
		}
		all = append(all, health.ErrorsOf(&nodes[i], s)...)
	}
	health.SortErrors(all)
	if len(all) == 0 && failed != nil {
		return failed
	}
	if err := printErrors(a, all[:max(0, min(len(all), limit))]); err != nil {
		return err
	}
	return failed
}

func printErrors(a *cli.App, all []health.NodeErrors) error {
	if a.JSON {
		for i := range all {
			if err := a.PrintJSON(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		a.Notef("no request failed in the last %d minutes", api.ErrorMinutes)
		return nil
	}
	g := cli.NewGrid("ERRORS", "CODE", "METHOD", "TABLE", "USER", "NODE", "LAST", "MESSAGE OF THE LAST")
	for i := range all {
		e := &all[i]
		g.Add(cli.Count(e.N), e.Code, e.Method, cli.OrElse(e.Table, "-"), cli.OrElse(e.User, "-"), e.Node, time.UnixMilli(e.LastMS).UTC().Format(time.RFC3339), e.Message)
	}
	return a.Print(g)
}
