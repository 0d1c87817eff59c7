package cluster

import (
	"context"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

// listErrors lists the requests that failed lately on all nodes that are alive. A node that does not answer is an error, after the others were
// listed.
func listErrors(ctx context.Context, a *cli.App, c *client.Client, limit int) error {
	var all []health.NodeErrors
	failed, err := eachSlow(ctx, c, func(n *client.NodeInfo, s *client.SlowRequests) { all = append(all, health.ErrorsOf(n, s)...) })
	if err != nil {
		return err
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
