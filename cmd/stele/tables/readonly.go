package tables

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const readOnlyLong = `Let a table accept no changes of rows and families: none begins once the command has
returned. Reads, change streams and backups go on, and the table can be dropped. Clients
get the error "read-only table" with the reason. Use it once all nodes are of this
version.`

func tableReadOnlyCommand(a *cli.App) *cobra.Command {
	off, reason := false, ""
	cmd := &cobra.Command{
		Use:   "read-only TABLE",
		Short: "Let a table accept no changes, or accept them again",
		Long:  readOnlyLong,
		Example: `  stele table read-only webtable --reason "audit until Friday"
  stele table read-only webtable --off`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return setReadOnly(a, cmd, args[0], reason, off)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "set by its administrator", "`text` that clients get with the error")
	cmd.Flags().BoolVar(&off, "off", false, "accept changes again")
	return cmd
}

func setReadOnly(a *cli.App, cmd *cobra.Command, name, reason string, off bool) error {
	done := " accepts no changes"
	switch {
	case off && cmd.Flags().Changed("reason"):
		return cli.Usagef("", "give either --reason or --off")
	case off:
		reason, done = "", " accepts changes"
	case reason == "":
		return cli.Usagef("", "--reason is empty")
	}
	return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		s, err := c.Tables().Alter(ctx, name, table.Change{Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{Reason: reason}})
		if err != nil {
			return err
		}
		return reportSchema(a, s, "table "+s.Name+done)
	})
}
