package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

// tabletFlags name a tablet beside the row that may be an argument.
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
		return usagef("", "%q is no id of a tablet: want a number above 0", s)
	}
	*f = tabletIDFlag(id)
	return nil
}

func (f *tabletFlags) register(cmd *cobra.Command) {
	cmd.Flags().Var((*tabletIDFlag)(&f.id), "id", "the tablet of this `id` instead, as \"stele tablet list\" shows it")
}

// ref returns the tablet that is meant: of the row that is an argument, if there is one.
func (f *tabletFlags) ref(a *app, args []string) (t client.TabletRef, err error) {
	switch {
	case len(args) > 0 && f.id != 0:
		return t, usagef("", "a tablet is named by a row or by --id, not by both")
	case len(args) > 0:
		t.Row = args[0]
		return t, a.texts(&t.Row)
	case f.id == 0:
		return t, usagef(`name a row that the tablet has, or its --id from "stele tablet list"`, "which tablet?")
	}
	t.ID = f.id
	return t, nil
}

// tabletChangeJSON is what --json tells of a tablet that was changed.
type tabletChangeJSON struct {
	Table string `json:"table"`
	ID    uint64 `json:"id"`
	Lower uint64 `json:"lower,omitempty"` // of a split
	splitPointJSON
	Node    string  `json:"node"`
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
}

// splitPointJSON is the last row of the lower part of a split, left out of other changes.
type splitPointJSON struct {
	At      *string `json:"at,omitempty"`
	AtBytes []byte  `json:"at_base64,omitempty"`
}

func splitPointOf(done *client.TabletChange) splitPointJSON {
	if len(done.At) == 0 {
		return splitPointJSON{}
	}
	return splitPointJSON{textOf(done.At), done.At}
}

// changeTablet makes a change of a tablet that may take its time, and tells what came of it.
func (a *app) changeTablet(cmd *cobra.Command, doing, table string, do func(context.Context, *client.Client) (*client.TabletChange, error),
	told func(*client.TabletChange) string) error {
	return a.call(cmd, patient, func(ctx context.Context, c *client.Client) error {
		start := time.Now()
		stop := a.startTicker(func() string { return fmt.Sprintf("%s, %v", doing, time.Since(start).Round(time.Second)) })
		defer stop()
		done, err := do(ctx, c)
		if err != nil {
			return err
		}
		took := time.Since(start)
		stop()
		if a.json {
			return a.printJSON(tabletChangeJSON{table, done.ID, done.Lower, splitPointOf(done), done.Node, done.Server, took.Seconds()})
		}
		a.talk("%s in %v", told(done), took.Round(time.Millisecond))
		return nil
	})
}

func (a *app) tableSplitCommand() *cobra.Command {
	var f tabletFlags
	in := ""
	cmd := &cobra.Command{
		Use:   "split TABLE [AT-ROW]",
		Short: "Split a tablet of a table in two",
		Long: `Split a tablet of a table in two: the lower part ends with AT-ROW. Without it the table's
largest tablet, or the one that --in or --id names, is parted where its bytes are about
even.

Nothing is copied: the parts share the tablet's files until compactions part them. Reads
and writes go on. Tablet servers split by themselves what has grown large or busy.`,
		Example: `  stele table split webtable com.google
  stele table split webtable
  stele table split webtable --in com.cnn.www`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			halve := cmd.Flags().Changed("in") || f.id != 0
			if halve && len(args) > 1 {
				return usagef("", "a row to split at tells the tablet: leave out --in and --id")
			}
			t := client.TabletRef{ID: f.id}
			switch {
			case len(args) > 1:
				t.Row = args[1]
			case cmd.Flags().Changed("in"):
				t.Row = in
			}
			if t.Row != "" && t.ID != 0 {
				return usagef("", "a tablet is named by --in or by --id, not by both")
			}
			if err := a.texts(&t.Row); err != nil {
				return err
			}
			return a.changeTablet(cmd, "splitting a tablet of "+args[0], args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				if halve {
					return c.HalveTablet(ctx, args[0], t)
				}
				return c.SplitTablet(ctx, args[0], t.Row)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("split tablet %d of %s after row %s; the lower part is tablet %d", done.ID, args[0], escapeBytes(done.At), done.Lower)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&in, "in", "", "part the tablet that has this `row`")
	allowEmpty(cmd.Flags(), "in") // the table's first tablet begins there
	a.escapesFlag(cmd)
	return cmd
}

func (a *app) tableMoveCommand() *cobra.Command {
	var f tabletFlags
	to := ""
	cmd := &cobra.Command{
		Use:   "move TABLE [ROW] --to NODE",
		Short: "Move the tablet that has a row to another node",
		Long: `Move the tablet that has a row, or the one of an --id, to another node, and wait until
it is served there. Its rows cannot be read or written for some milliseconds, in which
clients wait.

The master leaves it there for ten minutes, unless the node drains or fails; later it may
move it again to balance the nodes. METADATA's tablets can be moved as well.`,
		Example: `  stele table move webtable com.cnn.www --to n3
  stele table move webtable --id 17 --to n2 --json
  stele table move METADATA --id 2 --to n1`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.ref(a, args[1:])
			if err != nil {
				return err
			}
			if to == "" {
				return usagef(`"stele node list" shows the nodes`, "where to? name a node with --to")
			}
			return a.changeTablet(cmd, "moving a tablet of "+args[0]+" to "+to, args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				return c.MoveTablet(ctx, args[0], t, to)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("tablet %d of %s is on node %s", done.ID, args[0], to)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the id or name of the `node`")
	a.escapesFlag(cmd)
	return cmd
}

func (a *app) tableMergeCommand() *cobra.Command {
	var f tabletFlags
	cmd := &cobra.Command{
		Use:   "merge TABLE [ROW]",
		Short: "Merge the tablet that has a row with its neighbour",
		Long: `Merge the tablet that has a row, or the one of an --id, with the one after it; the last
tablet of a table with the one before it. If they are on two nodes the smaller one moves
first.
Writers of both wait while what is in memory is written out. The upper one's id stays.`,
		Example: `  stele table merge webtable com.cnn.www
  stele table merge webtable --id 17`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.ref(a, args[1:])
			if err != nil {
				return err
			}
			return a.changeTablet(cmd, "merging tablets of "+args[0], args[0], func(ctx context.Context, c *client.Client) (*client.TabletChange, error) {
				return c.MergeTablets(ctx, args[0], t)
			}, func(done *client.TabletChange) string {
				return fmt.Sprintf("merged two tablets of %s: tablet %d has the rows of both", args[0], done.ID)
			})
		},
	}
	f.register(cmd)
	a.escapesFlag(cmd)
	return cmd
}
