package rows

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

func countCommand(a *cli.App) *cobra.Command {
	s, rows := &selection{}, &span{}
	var view viewFlag
	cmd := &cobra.Command{
		Use:   "count TABLE",
		Short: "Count the rows of a table, or of a range of it",
		Long: `Count the rows that have a cell that the flags select. The servers read all of them, but
send only their keys.`,
		Example: `  stele count webtable
  stele count webtable --prefix com.cnn. --family anchor`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := scanOptions(a, cmd, s, rows, 0)
			if err != nil {
				return err
			}
			opts = append(opts, oneCell(), client.BatchRows(10_000))
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return countRows(ctx, a, view.of(c, args[0]), opts, func() error { return checkFamilies(ctx, c, args[0], s.families) })
			})
		},
	}
	rows.register(cmd)
	s.register(cmd)
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// countRows prints the number of rows. If there are none, it returns the error of empty.
func countRows(ctx context.Context, a *cli.App, t *client.Table, opts []client.ScanOption, empty func() error) error {
	var rows atomic.Int64
	stop := a.StartTicker(func() string { return cli.Plural(rows.Load(), "row") + " so far" })
	defer stop()
	s := t.Scan(ctx, opts...)
	defer s.Close()
	for s.Next() {
		rows.Add(1)
	}
	stop()
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w (after %s)", err, cli.Plural(rows.Load(), "row"))
	}
	if rows.Load() == 0 {
		if err := empty(); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(struct {
			Table string `json:"table"`
			Rows  int64  `json:"rows"`
		}{t.Name(), rows.Load()})
	}
	_, err := fmt.Fprintln(a.Out, rows.Load())
	return err
}
