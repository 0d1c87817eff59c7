package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const undropLong = `Make a dropped table an ordinary one again, with all its rows and grants. A dropped
table is kept for a week: "stele table list --dropped" lists those that are. If another
table has its name meanwhile, use --as.`

func tableUndropCommand(a *cli.App) *cobra.Command {
	var ref client.DroppedRef
	as := ""
	cmd := &cobra.Command{
		Use:     "undrop TABLE",
		Short:   "Restore a dropped table",
		Long:    undropLong,
		Example: "  stele table undrop webtable\n  stele table undrop webtable --as webtable-old",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref.Name = args[0]
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Tables().Undrop(ctx, ref, as)
				if err != nil {
					return noneDropped(err)
				}
				return reportSchema(a, s, "restored table "+s.Name)
			})
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "give the table this `name`")
	droppedIDFlag(cmd, &ref)
	return cmd
}

func tablePurgeCommand(a *cli.App) *cobra.Command {
	var ref client.DroppedRef
	yes := false
	cmd := &cobra.Command{
		Use:   "purge TABLE",
		Short: "Delete a dropped table for good",
		Long: `Delete a dropped table before its time is over, and free its disk space. This cannot be
undone.`,
		Example: "  stele table purge webtable\n  stele table purge webtable --id 17 --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref.Name = args[0]
			if err := a.Confirm(yes, "Delete dropped table "+ref.Name+" for good?"); err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.Tables().Purge(ctx, ref); err != nil {
					return noneDropped(err)
				}
				return reportDropped(a, ref.Name, "", "deleted dropped table "+ref.Name)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	droppedIDFlag(cmd, &ref)
	return cmd
}

// noneDropped adds the next step to the error for a table that is not among the dropped ones.
func noneDropped(err error) error {
	if errors.Is(err, client.ErrNoTable) {
		return cli.WithHint(err, `"stele table list --dropped" shows the dropped tables that are kept`)
	}
	return err
}

func droppedIDFlag(cmd *cobra.Command, ref *client.DroppedRef) {
	cmd.Flags().Uint64Var(&ref.ID, "id", 0, "select one of several dropped tables of this name by its `id`")
}

// droppedJSON is the --json form of a dropped table.
type droppedJSON struct {
	Table   string    `json:"table"`
	ID      uint64    `json:"id"`
	Dropped time.Time `json:"dropped"`
	Gone    time.Time `json:"gone"`
	Tablets int64     `json:"tablets"`
	Bytes   int64     `json:"bytes"`
}

// listDropped lists the dropped tables that are kept.
func listDropped(ctx context.Context, a *cli.App, c *client.Client) error {
	all, err := c.Tables().Dropped(ctx)
	if err != nil {
		return err
	}
	g := cli.NewGrid("TABLE", "ID", "DROPPED", "GONE", "TABLETS", "ON DISK")
	for _, t := range all {
		dropped, gone := time.UnixMilli(t.DroppedMS).UTC(), time.UnixMilli(t.GoneMS).UTC()
		if a.JSON {
			if err := a.PrintJSON(droppedJSON{t.Name, t.ID, dropped, gone, t.Tablets, t.Bytes}); err != nil {
				return err
			}
			continue
		}
		g.Add(t.Name, fmt.Sprint(t.ID), dropped.Format(time.RFC3339), gone.Format(time.RFC3339), fmt.Sprint(t.Tablets), cli.FormatSize(t.Bytes))
	}
	if len(all) == 0 && !a.JSON {
		a.Notef("no dropped tables are kept")
	}
	return a.Print(g)
}

// drop drops a table, for good if now is set.
func drop(ctx context.Context, a *cli.App, c *client.Client, name string, now bool) error {
	if now {
		if err := c.Tables().DropNow(ctx, name); err != nil {
			return err
		}
		return reportDropped(a, name, "", "dropped table "+name)
	}
	if err := c.Tables().Drop(ctx, name); err != nil {
		return err
	}
	return reportDropped(a, name, "", fmt.Sprintf(`dropped table %s; "stele table undrop %s" restores it within a week`, name, name))
}
