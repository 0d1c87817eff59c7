package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/table"
)

const tableCopyLong = `Create a table with the schema and the rows of another one. What is acknowledged before
the command is in it, and each row as it was at some moment until the command returned.
Both tables can be used meanwhile. It copies no data: the tables share files until
compactions replace them. Rights, owner and quota are those of a new table.

The command makes a backup, restores it and deletes it: it needs the right to administer
the cluster.`

// copyKeep is how long a backup for a copy is kept if the command is interrupted.
const copyKeep = time.Hour

func tableCopyCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:               "copy TABLE NEW",
		Short:             "Create a table with the rows of another one",
		Long:              tableCopyLong,
		Example:           "  stele table copy webtable webtable-test",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := (*table.Limits)(nil).CheckTableName(args[1]); err != nil {
				return err
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := copyTable(ctx, a, c, args[0], args[1])
				if err != nil {
					return err
				}
				return reportSchema(a, s, "copied table "+args[0]+" to "+s.Name)
			})
		},
	}
}

// copyTable copies a table by a backup.
func copyTable(ctx context.Context, a *cli.App, c *client.Client, from, to string) (s *table.Schema, err error) {
	switch _, err := c.Tables().Describe(ctx, to); {
	case err == nil:
		return nil, fmt.Errorf("table %q: %w", to, client.ErrTableExists)
	case !errors.Is(err, client.ErrNoTable):
		return nil, err
	}
	id, err := c.Backups().Create(ctx, copyKeep, from)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	stop := a.StartTicker(func() string { return fmt.Sprintf("backup %s, %s", id, text.Uptime(time.Since(began))) })
	_, err = c.Backups().Wait(ctx, id)
	if stop(); err == nil {
		s, err = c.Backups().Restore(ctx, id, from, to)
	}
	if deleteErr := c.Backups().Delete(ctx, id); deleteErr != nil && err == nil {
		a.Notef("backup %s is kept for an hour: %v", id, deleteErr)
	}
	return s, err
}
