package replications

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/text"
)

// Commands returns the command replication.
func Commands(a *cli.App) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "replication",
		Short: "Let tables follow those of another cluster",
		Long: `Let tables follow those of another cluster, the source: its rows are copied, and then its
changes are made as they come. Tables that follow another one reject other changes, until
they are promoted.

The source's tables must have change streams. If the follower is away for longer than
they keep changes, the rows are copied again. "stele table migrate" moves a table to the
cluster in which it follows.`,
		Example: `  stele replication add east --from east1:7106,east2:7106 --token-file token users orders
  stele replication list
  stele replication promote users`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(addCommand(a), listCommand(a),
		changeCommand(a, "pause", "NAME", "Stop a replication for a while", "The tables stay as they are, and reject\nchanges. \"stele replication resume\" continues.",
			"stele replication pause east", "replication %s is paused", client.Replications.Pause),
		changeCommand(a, "resume", "NAME", "Continue a paused replication", "It continues where it was paused.",
			"stele replication resume east", "replication %s is resumed", client.Replications.Resume),
		changeCommand(a, "promote", "TABLE", "Make a table that follows another one an ordinary one",
			"The table keeps\nthe rows that it has, and accepts changes. No more changes of the source are made: if it\nis alive, stop its writers first, and wait until the table has all changes.",
			"stele replication promote users", "table %s is an ordinary table", client.Replications.Promote),
		changeCommand(a, "remove", "NAME", "End a replication",
			"Its tables keep their rows, and reject changes until they are\npromoted. The credential for the source is deleted.",
			"stele replication remove east", "replication %s is removed", client.Replications.Remove))
	return []*cobra.Command{cmd}
}

const addLong = `Let tables follow those of another cluster with the same names. The tables are created,
and must not exist. The addresses are those of some nodes of the source, which the nodes
of this cluster must reach.

--token-file is a file with an access token of the source ("stele user add --token"
there), or a certificate with its key. Its user needs the right to read the tables. It is
kept in this cluster's lock service, where its users cannot read it.`

func addCommand(a *cli.App) *cobra.Command {
	spec, file, rate := client.ReplicationSpec{}, "", ""
	cmd := &cobra.Command{
		Use:   "add NAME TABLE... --from ADDRESS",
		Short: "Let tables follow those of another cluster",
		Long:  addLong,
		Example: `  stele replication add east users orders --from east1:7106,east2:7106 --token-file token
  stele replication add east users --from 127.0.0.1:7206 --rate 10MiB`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			spec.Name, spec.Tables = args[0], args[1:]
			if rate != "" {
				if spec.Rate, err = cli.ParseSize(rate); err != nil {
					return err
				}
			}
			if len(spec.Addrs) == 0 {
				return cli.Usagef("give addresses of the source", "--from is missing")
			}
			if file != "" {
				if spec.Secret, err = secretfile.Read(file); err != nil {
					return fmt.Errorf("--token-file: %w", err)
				}
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.Replications().Create(ctx, &spec); err != nil {
					return err
				}
				a.Notef("replication %s is created: \"stele replication list\" shows how far it is", spec.Name)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&spec.Addrs, "from", nil, "`host:port` of nodes of the source, separated by commas")
	f.StringVar(&file, "token-file", "", "`file` with the access token, or the certificate and key, for the source")
	f.StringVar(&rate, "rate", "", "bound the `bytes` of rows and changes per second, such as 10MiB")
	return cmd
}

func listCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "status"},
		Short:   "List the replications, with the state of their tables",
		Long: `List the replications, with the state of their tables: "copying" while the rows of the
source are copied, "following", "paused" or "failed". The lag is the age of the last time
up to which all changes are made. The caller needs the right read on the cluster.`,
		Example: `  stele replication list
  stele replication list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Replication, error) {
				return c.Replications().List(ctx)
			})
			if err != nil {
				return err
			}
			return print(a, all)
		},
	}
}

func print(a *cli.App, all []client.Replication) error {
	g := cli.NewGrid("REPLICATION", "TABLE", "STATE", "LAG", "CHANGES", "COPIED", "FROM", "ERROR")
	for i := range all {
		r := &all[i]
		if a.JSON {
			if err := a.PrintJSON(r); err != nil {
				return err
			}
			continue
		}
		for _, t := range r.Tables {
			lag := "-"
			if t.LagMS >= 0 {
				lag = text.Duration(time.Duration(t.LagMS) * time.Millisecond)
			}
			g.Add(r.Name, t.Name, t.State, lag, cli.FormatCount(t.Changes), cli.FormatCount(t.Rows), strings.Join(r.Addrs, ","), cli.OrElse(t.Error, "-"))
		}
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}

// changeCommand returns a command that changes the replication, or the table, that its argument names.
func changeCommand(a *cli.App, use, arg, short, long, example, done string, change func(r client.Replications, ctx context.Context, name string) error) *cobra.Command {
	return &cobra.Command{
		Use:     use + " " + arg,
		Short:   short,
		Long:    short + ". " + long,
		Example: "  " + example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := change(c.Replications(), ctx, args[0]); err != nil {
					return err
				}
				a.Notef(done, cli.EscapeText(args[0]))
				return nil
			})
		},
	}
}
