package tables

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const renameLong = `Give a table another name, at once and for all clients. The table keeps its rows, rights,
owner, quota, change stream and protection. Requests by the old name fail when the
command has returned: change the clients first to try both names, or pause them.

Backups keep the name that the table had when they were made: "stele backup restore"
takes that name, and --as another one. The caller needs the right admin on the cluster.`

func tableRenameCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:               "rename TABLE NAME",
		Aliases:           []string{"mv"},
		Short:             "Give a table another name",
		Long:              renameLong,
		Example:           "  stele table rename webtable webtable-2026",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Tables().Rename(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return reportSchema(a, s, "renamed table "+args[0]+" to "+s.Name)
			})
		},
	}
}
