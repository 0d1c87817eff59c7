package tables

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

// tabletFlags are the flags that name a tablet, as an alternative to a row.
type tabletFlags struct{ id uint64 }

// tabletIDFlag is the id of a tablet, which is never 0.
type tabletIDFlag uint64

func (f *tabletIDFlag) Type() string { return "uint64" }

func (f *tabletIDFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*f), 10)
}

func (f *tabletIDFlag) Set(s string) error {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || id == 0 {
		return cli.Usagef("", "%q is not a tablet id: want a number above 0", s)
	}
	*f = tabletIDFlag(id)
	return nil
}

func (f *tabletFlags) register(cmd *cobra.Command) {
	cmd.Flags().Var((*tabletIDFlag)(&f.id), "id", "select the tablet by its `id`, from \"stele tablet list\", instead of a row")
}

// ref returns the selected tablet: that of the row in args, if there is one, or of --id.
func (f *tabletFlags) ref(a *cli.App, args []string) (t client.TabletRef, err error) {
	switch {
	case len(args) > 0 && f.id != 0:
		return t, cli.Usagef("use one of them", "a row and --id are both given")
	case len(args) > 0:
		t.Row = args[0]
		return t, a.Texts(&t.Row)
	case f.id == 0:
		return t, cli.Usagef(`name a row of the tablet, or use --id with an id from "stele tablet list"`, "no tablet given")
	}
	t.ID = f.id
	return t, nil
}

// tabletChangeJSON is the --json form of a change to a tablet. Unlike client.TabletChange it has the
// table and the duration, and the split point as text and in base64.
type tabletChangeJSON struct {
	Table string `json:"table"`
	ID    uint64 `json:"id"`
	Lower uint64 `json:"lower,omitempty"` // set for a split
	splitPointJSON
	Node    string  `json:"node"`
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
}

// splitPointJSON is the split point: the last row of the lower tablet. It is empty for other changes.
type splitPointJSON struct {
	At      *string `json:"at,omitempty"`
	AtBytes []byte  `json:"at_base64,omitempty"`
}

func splitPointOf(done *client.TabletChange) splitPointJSON {
	if len(done.At) == 0 {
		return splitPointJSON{}
	}
	return splitPointJSON{cli.TextOf(done.At), done.At}
}

// changeTablet runs a change to a tablet, shows its progress as doing, and prints its summary.
func changeTablet(a *cli.App, cmd *cobra.Command, doing, table string, do func(context.Context, *client.Client) (*client.TabletChange, error),
	summary func(*client.TabletChange) string) error {
	return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
		start := time.Now()
		stop := a.StartTicker(func() string { return fmt.Sprintf("%s, %s", doing, text.Uptime(time.Since(start))) })
		defer stop()
		done, err := do(ctx, c)
		if err != nil {
			return err
		}
		took := time.Since(start)
		stop()
		if a.JSON {
			return a.PrintJSON(tabletChangeJSON{table, done.ID, done.Lower, splitPointOf(done), done.Node, done.Server, took.Seconds()})
		}
		a.Notef("%s in %s", summary(done), text.Duration(took))
		return nil
	})
}

const tableSplitLong = `Split a tablet of a table in two. AT-ROW becomes the last row of the lower tablet.
Without it, the table's largest tablet, or that of --in or --id, is split into about
equal halves by size.

No data is copied: the new tablets share the files until they are compacted. Reads and
writes continue. Tablet servers split large and busy tablets on their own.`

const tableSplitExample = `  stele table split webtable com.google
  stele table split webtable
  stele table split webtable --in com.cnn.www`

func tableSplitCommand(a *cli.App) *cobra.Command {
	var f tabletFlags
	in := ""
	cmd := &cobra.Command{
		Use:               "split TABLE [AT-ROW]",
		Short:             "Split a tablet of a table in two",
		Long:              tableSplitLong,
		Example:           tableSplitExample,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			halve := cmd.Flags().Changed("in") || f.id != 0
			if halve && len(args) > 1 {
				return cli.Usagef("omit --in and --id: AT-ROW selects the tablet", "AT-ROW excludes --in and --id")
			}
			t, err := f.splitTarget(a, args[1:], in)
			if err != nil {
				return err
			}
			return changeTablet(a, cmd, "splitting a tablet of "+args[0], args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				if halve {
					return c.Tablets().Halve(ctx, args[0], t)
				}
				return c.Tablets().Split(ctx, args[0], t.Row)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("split tablet %d of %s after row %s; the lower tablet is %d", done.ID, args[0], cli.EscapeBytes(done.At), done.Lower)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&in, "in", "", "split the tablet that has this `row` in halves")
	cli.AllowEmpty(cmd.Flags(), "in") // the table's first tablet contains the empty row
	a.EscapesFlag(cmd)
	return cmd
}

// splitTarget returns the tablet to split: that of AT-ROW in args, of the row of --in, or of --id.
func (f *tabletFlags) splitTarget(a *cli.App, args []string, in string) (client.TabletRef, error) {
	t := client.TabletRef{ID: f.id, Row: in}
	if len(args) > 0 {
		t.Row = args[0]
	}
	if t.Row != "" && t.ID != 0 {
		return t, cli.Usagef("use one of them", "--in and --id are both given")
	}
	return t, a.Texts(&t.Row)
}

const tableMoveLong = `Move the tablet that has a row, or that of --id, to another node, and wait until it is
served there. For some milliseconds its rows are unavailable; clients retry meanwhile.

The master keeps the tablet there for ten minutes, unless the node drains or fails.
Later it may move the tablet to balance the load. Tablets of METADATA can be moved as
well.`

const tableMoveExample = `  stele table move webtable com.cnn.www --to n3
  stele table move webtable --id 17 --to n2 --json
  stele table move METADATA --id 2 --to n1`

func tableMoveCommand(a *cli.App) *cobra.Command {
	var f tabletFlags
	to := ""
	cmd := &cobra.Command{
		Use:               "move TABLE [ROW] --to NODE",
		Short:             "Move a tablet to another node",
		Long:              tableMoveLong,
		Example:           tableMoveExample,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.ref(a, args[1:])
			if err != nil {
				return err
			}
			if to == "" {
				return cli.Usagef(`name a node with --to; "stele node list" shows the nodes`, "--to is missing")
			}
			return changeTablet(a, cmd, "moving a tablet of "+args[0]+" to "+to, args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				return c.Tablets().Move(ctx, args[0], t, to)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("tablet %d of %s is on node %s", done.ID, args[0], to)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&to, "to", "", "name or id of the destination `node`")
	a.EscapesFlag(cmd)
	return cmd
}

func tableMergeCommand(a *cli.App) *cobra.Command {
	var f tabletFlags
	cmd := &cobra.Command{
		Use:   "merge TABLE [ROW]",
		Short: "Merge a tablet with its neighbour",
		Long: `Merge the tablet that has a row, or that of --id, with the next tablet; the last tablet
of a table is merged with the previous one. If they are on different nodes, the smaller
one is moved first. Writes to both wait while their memtables are compacted. The merged
tablet keeps the id of the upper one.`,
		Example: `  stele table merge webtable com.cnn.www
  stele table merge webtable --id 17`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.ref(a, args[1:])
			if err != nil {
				return err
			}
			return changeTablet(a, cmd, "merging tablets of "+args[0], args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				return c.Tablets().Merge(ctx, args[0], t)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("merged two tablets of %s: tablet %d has the rows of both", args[0], done.ID)
			})
		},
	}
	f.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}
