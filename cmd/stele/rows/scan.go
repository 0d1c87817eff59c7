package rows

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const scanLong = `Read rows in the order of their keys. Rows are printed as they arrive, so a table of any
size can be read.

If output is not a terminal, each cell is a line: row, column, time and value, separated
by tabs, with unprintable characters escaped. With --json, each row is an object on one
line. The fields row, column and value are present if they are text; row_base64,
column_base64 and value_base64 are always present.

--filter is a filter of docs/rpc.md, as JSON. Several filters are combined: a cell must
pass all of them.`

const scanExample = `  stele scan webtable --prefix com.cnn. --family anchor
  stele scan webtable --start com.a --end com.b --rows-limit 10
  stele scan webtable --column 'anchor:.*\.cnn\.com' --versions 1 --since 2h
  stele scan webtable --filter '["chain", ["value", ".*CNN.*"], ["versions", 1]]'
  stele scan webtable --keys-only --limit 10
  stele scan webtable --prefix com.cnn. --reversed --limit 1
  stele scan webtable --json | jq -r .row`

func scanCommand(a *cli.App) *cobra.Command {
	s, rows := &selection{}, &span{}
	var limit int64
	var form rowForm
	var keysOnly bool
	var order scanOrder
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "scan TABLE",
		Aliases:           []string{"read"},
		Short:             "Read the rows of a table, or of a range of it",
		Long:              scanLong,
		Example:           scanExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := scanOptions(a, cmd, s, rows, limit)
			if err != nil {
				return err
			}
			opts = append(opts, order.options()...)
			out := newRowWriter(a, form)
			if keysOnly {
				opts, out = append(opts, oneCell()), newKeyWriter(a)
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return scanRows(ctx, a, view.of(c, args[0]), opts, out, func() error { return checkFamilies(ctx, c, args[0], s.families) })
			})
		},
	}
	rows.register(cmd)
	s.register(cmd)
	cmd.Flags().Int64Var(&limit, "rows-limit", 0, "stop after `N` rows (default: all); also --limit")
	cmd.Flags().SetNormalizeFunc(limitFlag)
	cmd.Flags().BoolVar(&keysOnly, "keys-only", false, "print only the keys of the rows; servers send only keys")
	order.register(cmd)
	form.register(cmd)
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// scanOrder are the flags of a scan that select no rows.
type scanOrder struct{ reversed, stats bool }

func (o *scanOrder) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.reversed, "reversed", false, "print the rows from the last to the first")
	cmd.Flags().BoolVar(&o.stats, "stats", false, "report how many rows and cells the servers have examined")
}

func (o *scanOrder) options() (opts []client.ScanOption) {
	if o.reversed {
		opts = append(opts, client.Reversed())
	}
	if o.stats {
		opts = append(opts, client.CountSeen())
	}
	return opts
}

func scanOptions(a *cli.App, cmd *cobra.Command, s *selection, rows *span, limit int64) ([]client.ScanOption, error) {
	opts, err := rows.options(a)
	if err != nil {
		return nil, err
	}
	cells, err := s.options(cmd)
	if err != nil {
		return nil, err
	}
	for _, o := range cells {
		opts = append(opts, o)
	}
	if cmd.Flags().Changed("rows-limit") {
		if limit < 1 {
			return nil, cli.Usagef("", "--rows-limit (--limit) is %d, must be at least 1", limit)
		}
		opts = append(opts, client.Limit(limit), client.BatchRows(int(min(limit, 1000))))
	}
	return opts, nil
}

// limitFlag makes --limit an alias of --rows-limit.
func limitFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "limit" {
		name = "rows-limit"
	}
	return pflag.NormalizedName(name)
}

// oneCell returns the option that reduces each row to one cell without its value.
func oneCell() client.ScanOption {
	return client.Filter(table.Chain{table.CellsPerRowLimit(1), table.StripValue{}})
}

// scanRows prints rows. If there are none, it returns the error of empty.
func scanRows(ctx context.Context, a *cli.App, t *client.Table, opts []client.ScanOption, out rowWriter, empty func() error) (err error) {
	s := t.Scan(ctx, opts...)
	defer s.Close()
	var rows, cells int64
	for s.Next() {
		row := s.Row()
		rows++
		cells += int64(len(row.Cells))
		if err := out.write(row); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		if rows == 0 {
			return err
		}
		_ = a.Out.Flush() // print the rows before the error
		return fmt.Errorf("%w (after %s rows)", err, cli.FormatCount(rows))
	}
	if rows == 0 {
		if err := empty(); err != nil {
			return err
		}
	}
	return reportScan(a, s, rows, cells)
}

// reportScan reports the counts of a finished scan.
func reportScan(a *cli.App, s *client.Scanner, rows, cells int64) error {
	seen := s.Stats()
	if tty := a.OutTTY && a.ErrTTY && !a.JSON; !tty && seen.RowsSeen == 0 {
		return nil
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	if seen.RowsSeen > 0 {
		a.Notef("examined %s and %s", cli.Plural(seen.RowsSeen, "row"), cli.Plural(seen.CellsSeen, "cell"))
		return nil
	}
	a.Notef("%s, %s", cli.Plural(rows, "row"), cli.Plural(cells, "cell"))
	return nil
}
