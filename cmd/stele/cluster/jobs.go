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

// jobCommand returns the command job.
func jobCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Show and control long work of the cluster",
		Long: `Show and control long work of the cluster: backups that are being made, replications,
drains of nodes, repairs, recoveries and replacements of the certificate authority. A job
goes on without the client that requested it, and the next master goes on with it.`,
		Example: `  stele job list
  stele job pause replication:east
  stele job cancel backup:20261127-194512-3f9a01`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(listJobsCommand(a), showJobCommand(a),
		jobActionCommand(a, health.JobPause, "Pause a job", "A replication can be paused: its tables stay as they are.", "stele job pause replication:east"),
		jobActionCommand(a, health.JobResume, "Resume a paused job", "It goes on where it was paused.", "stele job resume replication:east"),
		jobActionCommand(a, health.JobCancel, "Cancel a job", "A backup is deleted, and a node that is drained\nstays and may get tablets again.", "stele job cancel backup:20261127-194512-3f9a01"))
	return cmd
}

func listJobsCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List long work of the cluster",
		Long: `List long work of the cluster with its progress. A job whose last attempt failed is tried
again. The caller needs the right read on the cluster; with less, some kinds of jobs are
left out.`,
		Example: `  stele job list
  stele job list --json | jq -r 'select(.state == "failed") | .error'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := jobs(a, cmd)
			if err != nil {
				return err
			}
			return printJobs(a, x)
		},
	}
}

func jobs(a *cli.App, cmd *cobra.Command) (*health.Jobs, error) {
	return cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*health.Jobs, error) {
		if _, err := c.Ping(ctx); err != nil {
			return nil, err
		}
		return health.JobsOf(ctx, c), nil
	})
}

func printJobs(a *cli.App, x *health.Jobs) error {
	g := cli.NewGrid("JOB", "STATE", "SINCE", "BY", "WHAT", "PROGRESS")
	for i := range x.All {
		j := &x.All[i]
		if a.JSON {
			if err := a.PrintJSON(j); err != nil {
				return err
			}
			continue
		}
		g.Add(j.ID, j.State, since(j), cli.OrElse(j.By, "-"), j.What, cli.OrElse(j.Progress, "-"))
	}
	if !a.JSON {
		if err := a.Print(g); err != nil {
			return err
		}
		for i := range x.All {
			if j := &x.All[i]; j.Error != "" {
				a.Notef("%s: %s", cli.EscapeText(j.ID), cli.EscapeText(j.Error))
			}
		}
	}
	for _, u := range x.Unknown {
		a.Notef("unknown: %s", cli.EscapeText(u))
	}
	if len(x.Hidden) > 0 {
		a.Notef("left out for lack of a right: %s", strings.Join(x.Hidden, ", "))
	}
	return nil
}

func since(j *health.Job) string {
	if j.StartedMS == 0 {
		return "-"
	}
	return text.Uptime(time.Since(time.UnixMilli(j.StartedMS)))
}

func showJobCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show JOB",
		Short:   "Show a job",
		Long:    `Show a job, and what can be done with it.`,
		Example: `  stele job show replication:east`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := jobs(a, cmd)
			if err != nil {
				return err
			}
			j, err := x.Find(args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(j)
			}
			g := cli.NewGrid("FIGURE", "VALUE")
			for _, row := range [][2]string{{"job", j.ID}, {"what", j.What}, {"state", j.State}, {"since", since(j)}, {"by", cli.OrElse(j.By, "-")},
				{"progress", cli.OrElse(j.Progress, "-")}, {"error", cli.OrElse(j.Error, "-")}, {"can be", cli.OrElse(strings.Join(health.Done(j.Can), ", "), "-")}} {
				g.Add(row[0], row[1])
			}
			return a.Print(g)
		},
	}
}

// jobActionCommand returns a command that acts on a job.
func jobActionCommand(a *cli.App, do, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use:     do + " JOB",
		Short:   short,
		Long:    short + ". " + long,
		Example: "  " + example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				j, err := health.JobsOf(ctx, c).Find(args[0])
				if err != nil {
					return err
				}
				if err := j.Act(ctx, c, do); err != nil {
					return err
				}
				a.Notef("job %s is %s", cli.EscapeText(j.ID), health.Done([]string{do})[0])
				return nil
			})
		},
	}
}
