package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/migrate"
	"github.com/steledb/stele/internal/text"
)

const migrateLong = `Move a table to this cluster, in which it follows the one to move (stele replication
add). The source's table becomes read-only, this cluster makes its last changes, and its
table becomes an ordinary one. Changes are refused meanwhile, mostly for less than a
second: clients that then write to this cluster lose none. The source's table stays
read-only, until it is dropped.

If the last changes are not made within --pause-at-most, the source accepts changes
again. The command needs the right admin on this cluster, and on the source's table,
whose credential it takes from --from-credential. All nodes of both clusters must be of
this version.`

const migrateExample = `  stele replication add east users --from east1:7106 --token-file token
  stele table migrate users --from-credential east-admin.pem
  stele table migrate users --from east2:7106 --pause-at-most 3s`

func tableMigrateCommand(a *cli.App) *cobra.Command {
	from, credential := "", ""
	pause := cli.DurationFlag(10 * time.Second)
	cmd := &cobra.Command{
		Use:               "migrate TABLE",
		Short:             "Move a table from the cluster that it follows to this one",
		Long:              migrateLong,
		Example:           migrateExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return moveTable(a, cmd, args[0], from, credential, time.Duration(pause))
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "`host:port` of nodes of the source, separated by commas (default those of the replication)")
	f.StringVar(&credential, "from-credential", "", "`file` with the certificate and key, or the access token, for the source")
	f.Var(&pause, "pause-at-most", "give up after changes have been refused for this `time`")
	return cmd
}

// moveTable moves a table from its source, at addresses or at those of its replication.
func moveTable(a *cli.App, cmd *cobra.Command, name, from, credential string, pause time.Duration) error {
	if pause <= 0 {
		return cli.Usagef("", "--pause-at-most must be positive")
	}
	return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) (err error) {
		if from == "" {
			if from, err = sourceOf(ctx, c, name); err != nil {
				return err
			}
		}
		source, err := openSource(ctx, from, credential)
		if err != nil {
			return err
		}
		defer source.Close()
		return migrateTable(ctx, a, migrate.Config{Source: source, Target: c, Table: name, PauseMax: pause})
	})
}

// sourceOf returns the addresses of the source of a table.
func sourceOf(ctx context.Context, c *client.Client, name string) (string, error) {
	info, err := c.Tables().Describe(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := c.Replications().List(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		if all[i].Name == info.Schema.Follows {
			return strings.Join(all[i].Addrs, ","), nil
		}
	}
	return "", cli.WithHint(fmt.Errorf("table %q: %w", name, api.ErrNotFollower), `"stele replication add" lets it follow the one to move`)
}

func openSource(ctx context.Context, addrs, credential string) (*client.Client, error) {
	addrs, err := cli.WithPorts(addrs)
	if err != nil {
		return nil, err
	}
	var cfg client.Config
	if err := cli.SetCredentialFrom(&cfg, "--from-credential", credential); err != nil {
		return nil, err
	}
	source, err := client.Open(ctx, addrs, cfg)
	if err != nil {
		return nil, fmt.Errorf("the source: %w", err)
	}
	return source, nil
}

func migrateTable(ctx context.Context, a *cli.App, cfg migrate.Config) error {
	cfg.Report = func(step string) { a.Notef("%s", cli.EscapeText(step)) }
	refused, err := migrate.Run(ctx, cfg)
	var stuck *migrate.StuckError
	if errors.As(err, &stuck) {
		return cli.WithHint(err, `run the command again; docs/operating.md, "Replication across clusters", has what to do instead`)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(struct {
			Table     string `json:"table"`
			RefusedMS int64  `json:"refused_ms"`
		}{cfg.Table, refused.Milliseconds()})
	}
	a.Notef("table %s is moved to this cluster: changes were refused for %s; the source's table is read-only", cfg.Table, text.Duration(refused))
	return nil
}
