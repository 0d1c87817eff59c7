package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

// clientCommand returns the command client.
func clientCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "client",
		Short:   "Show what client processes report about themselves",
		Example: `  stele client list`,
		Args:    cli.UnknownCommand,
		RunE:    cli.RequireSubcommand,
	}
	cmd.AddCommand(listClientsCommand(a))
	return cmd
}

const listClientsLong = `List client processes that report to the cluster, with what each counted in its last
report: calls a second, how many failed and were retried, how often the location of a
tablet had to be looked up, and the times of reads and writes as the client measured
them. Calls include those of administration; times do not.

A process reports if its Go client is opened with ReportEvery. Nodes keep a report for 5
minutes, in memory. It requires the right to read on the cluster.`

func listClientsCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List client processes that report to the cluster",
		Long:    listClientsLong,
		Example: `  stele client list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*health.Clients, error) {
				return health.ReadClients(ctx, c)
			})
			if err != nil {
				return err
			}
			return printClients(a, l)
		},
	}
}

func printClients(a *cli.App, l *health.Clients) error {
	if a.JSON {
		for i := range l.All {
			if err := a.PrintJSON(&l.All[i]); err != nil {
				return err
			}
		}
		return nil
	}
	g := cli.NewGrid("NAME", "USER", "FROM", "CALLS/S", "FAILED", "RETRIES", "LOOKUPS", "P50", "P99", "LONGEST", "REPORTED")
	for i := range l.All {
		p := &l.All[i]
		g.Add(cli.OrElse(p.Name, "-"), cli.OrElse(p.User, "-"), p.From, cli.Count(p.Calls*1000/max(p.IntervalMS, 1)), cli.Count(p.Errors), cli.Count(p.Retries), cli.Count(p.Lookups),
			timeOf(p.P50US), timeOf(p.P99US), timeOf(p.MaxUS), text.Uptime(time.Since(time.UnixMilli(p.AtMS)).Round(time.Second))+" ago")
	}
	if g.IsEmpty() {
		a.Notef("no client process has reported in the last 5 minutes")
	}
	if err := a.Print(g); err != nil {
		return err
	}
	if len(l.Unknown) > 0 {
		a.Notef("incomplete: %s", cli.EscapeText(strings.Join(l.Unknown, "; ")))
	}
	return nil
}

// timeOf returns a time in µs; - if there is none.
func timeOf(micros int64) cli.Number {
	if micros <= 0 {
		return "-"
	}
	return cli.Number(text.Millis(float64(micros) / 1000))
}
