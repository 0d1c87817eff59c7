package tables

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const tableStreamLong = `Keep the changes of a table for a time, so that stele watch and other readers can follow
them. Changes made before are not in the stream. Turn it on only when all nodes run a
version that has change streams. Turning it off deletes the changes that are kept.`

func tableStreamCommand(a *cli.App) *cobra.Command {
	var keep cli.DurationFlag
	off := false
	cmd := &cobra.Command{
		Use:   "stream TABLE",
		Short: "Turn the change stream of a table on or off",
		Long:  tableStreamLong,
		Example: `  stele table stream webtable --keep 7d
  stele table stream webtable --off`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if off == (keep > 0) {
				return cli.Usagef("", "give either --keep or --off")
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return setStream(ctx, a, c, args[0], time.Duration(keep))
			})
		},
	}
	cmd.Flags().Var(&keep, "keep", "keep changes for this `time`, from 1h to 30d")
	cmd.Flags().BoolVar(&off, "off", false, "end the change stream")
	return cmd
}

// setStream sets how long the changes of a table are kept; 0 ends its change stream.
func setStream(ctx context.Context, a *cli.App, c *client.Client, name string, keep time.Duration) error {
	s, err := c.Tables().Alter(ctx, name, table.Change{Op: table.ChangeStream, Retention: keep})
	if err != nil {
		return err
	}
	if keep == 0 {
		return reportSchema(a, s, "table "+s.Name+" has no change stream")
	}
	return reportSchema(a, s, "changes of table "+s.Name+" are kept for "+keep.String())
}
