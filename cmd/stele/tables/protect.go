package tables

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const tableProtectLong = `Protect a table and its column families from being dropped, by this program and by
clients of Cloud Bigtable's API. Rows can still be deleted.`

func tableProtectCommand(a *cli.App) *cobra.Command {
	off := false
	cmd := &cobra.Command{
		Use:   "protect TABLE",
		Short: "Protect a table from being dropped",
		Long:  tableProtectLong,
		Example: `  stele table protect webtable
  stele table protect webtable --off`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Tables().Alter(ctx, args[0], table.Change{Op: table.ChangeProtect, Protect: !off})
				if err != nil {
					return err
				}
				what := "table " + s.Name + " cannot be dropped"
				if off {
					what = "table " + s.Name + " can be dropped"
				}
				return reportSchema(a, s, what)
			})
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "end the protection")
	return cmd
}
