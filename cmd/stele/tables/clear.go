package tables

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

const clearHelp = `Rows that are written after the command has succeeded are kept. Each tablet is cleared
at a moment of its own. After an error some tablets may be cleared: repeat the command.
This cannot be undone, but by a backup.`

const truncateLong = `Delete all rows of a table, and keep the table, its families and its grants. The time
that this takes depends on the number of tablets, not on that of rows. The disk space is
freed at once, except for files that backups or other tablets share: garbage collection
removes those.

`

const clearLong = `Delete the rows whose keys begin with --prefix, or those from --start up to but not
including --end. The time that this takes depends on the number of tablets, not on that
of rows. Major compactions free the disk space within a day, or at once by "stele table
compact --major".

`

const clearExample = `  stele table clear webtable --prefix com.cnn.
  stele table clear events --end 2026-01-01 --yes
  stele table clear events --start 2026-01-01 --end 2026-02-01 --yes`

// clearedRows are the rows that a command deletes.
type clearedRows struct{ start, end, prefix string }

// clearJSON is the --json form of cleared rows.
type clearJSON struct {
	Table string `json:"table"`
	cli.BoundsJSON
	Cleared bool `json:"cleared"`
}

func tableTruncateCommand(a *cli.App) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:               "truncate TABLE",
		Short:             "Delete all rows of a table",
		Long:              truncateLong + clearHelp,
		Example:           "  stele table truncate webtable\n  stele table truncate webtable --yes",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return clearRows(a, cmd, args[0], clearedRows{}, "all rows of table "+args[0], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func tableClearCommand(a *cli.App) *cobra.Command {
	yes, rows := false, clearedRows{}
	cmd := &cobra.Command{
		Use:               "clear TABLE --prefix PREFIX | --start ROW --end ROW",
		Short:             "Delete the rows of a key range",
		Long:              clearLong + clearHelp,
		Example:           clearExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := rows.resolve(a)
			if err != nil {
				return err
			}
			return clearRows(a, cmd, args[0], rows, what+" of table "+args[0], yes)
		},
	}
	rows.register(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	a.EscapesFlag(cmd)
	return cmd
}

func (r *clearedRows) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.start, "start", "", "delete from this `row` on")
	f.StringVar(&r.end, "end", "", "delete up to this `row`, which is kept")
	f.StringVar(&r.prefix, "prefix", "", "delete the rows whose keys begin with this `prefix`")
}

// resolve sets the bounds of the rows from the flags, and returns what they are.
func (r *clearedRows) resolve(a *cli.App) (what string, err error) {
	if err := a.Texts(&r.start, &r.end, &r.prefix); err != nil {
		return "", err
	}
	switch {
	case r.prefix != "" && r.start+r.end != "":
		return "", cli.Usagef("use --prefix, or --start and --end", "both --prefix and a range are given")
	case r.prefix != "":
		r.start, r.end = r.prefix, string(api.PrefixEnd([]byte(r.prefix)))
		return "the rows that begin with " + cli.EscapeText(r.prefix), nil
	case r.start+r.end == "":
		return "", cli.Usagef(`for all rows, use "stele table truncate"`, "no rows given: want --prefix, --start or --end")
	case r.end != "" && r.start >= r.end:
		return "", cli.Usagef("", "--start %s is not before --end %s", cli.EscapeText(r.start), cli.EscapeText(r.end))
	case r.end == "":
		return fmt.Sprintf("the rows from %s on", cli.EscapeText(r.start)), nil
	case r.start == "":
		return fmt.Sprintf("the rows before %s", cli.EscapeText(r.end)), nil
	}
	return fmt.Sprintf("the rows from %s to %s", cli.EscapeText(r.start), cli.EscapeText(r.end)), nil
}

// clearRows deletes rows after confirmation.
func clearRows(a *cli.App, cmd *cobra.Command, name string, rows clearedRows, what string, yes bool) error {
	if _, err := describeTable(a, cmd, name); err != nil {
		return err
	}
	if err := a.Confirm(yes, "Delete "+what+"?"); err != nil {
		return err
	}
	return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
		if err := c.Tables().ClearRows(ctx, name, rows.start, rows.end); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(clearJSON{Table: name, BoundsJSON: cli.BoundsOf([]byte(rows.start), []byte(rows.end)), Cleared: true})
		}
		a.Notef("deleted %s", what)
		return nil
	})
}
