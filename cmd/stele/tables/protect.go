package tables

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const tableProtectLong = `Protect a table and its column families, or a view and its table, from being dropped, by
this program and by clients of Cloud Bigtable's API. Rows can still be deleted.`

func tableProtectCommand(a *cli.App) *cobra.Command {
	off := false
	cmd := &cobra.Command{
		Use:   "protect TABLE[/VIEW]",
		Short: "Protect a table or a view from being dropped",
		Long:  tableProtectLong,
		Example: `  stele table protect webtable
  stele table protect webtable --off
  stele table protect webtable/links`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if name, view, ok := strings.Cut(args[0], "/"); ok {
					return protectView(ctx, a, c, name, view, !off)
				}
				s, err := c.Tables().Alter(ctx, args[0], table.Change{Op: table.ChangeProtect, Protect: !off})
				if err != nil {
					return err
				}
				return reportSchema(a, s, "table "+s.Name+canBeDropped(off))
			})
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "end the protection")
	return cmd
}

func canBeDropped(can bool) string {
	if can {
		return " can be dropped"
	}
	return " cannot be dropped"
}

// protectView sets or ends the protection of a view.
func protectView(ctx context.Context, a *cli.App, c *client.Client, name, view string, protect bool) error {
	info, err := c.Tables().Describe(ctx, name)
	if err != nil {
		return err
	}
	v := info.Schema.View(view)
	if v == nil {
		return &table.NoViewError{Table: name, View: view}
	}
	change := &table.ViewChange{View: *v, Etag: v.Etag()}
	change.View.Protected = protect
	s, err := c.Tables().Alter(ctx, name, table.Change{Op: table.ChangeView, View: change})
	if err != nil {
		return err
	}
	return reportView(a, s, view, "view "+view+" of table "+s.Name+canBeDropped(!protect))
}
