package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

func (a *app) countCommand() *cobra.Command {
	s, rows := &selection{}, &span{}
	cmd := &cobra.Command{
		Use:   "count TABLE",
		Short: "Count the rows of a table, or of a range of it",
		Long: `Count the rows that have a cell that the flags select. The servers read all of them, but
send only their keys.`,
		Example: `  stele count webtable
  stele count webtable --prefix com.cnn. --family anchor`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := a.scanOptions(cmd, s, rows, 0)
			if err != nil {
				return err
			}
			opts = append(opts, oneCell(), client.BatchRows(10_000))
			return a.call(cmd, noTimeout, func(ctx context.Context, c *client.Client) error {
				return a.count(ctx, c.Table(args[0]), opts)
			})
		},
	}
	rows.register(cmd)
	s.register(cmd)
	a.escapesFlag(cmd)
	return cmd
}

func (a *app) count(ctx context.Context, t *client.Table, opts []client.ScanOption) error {
	var rows atomic.Int64
	stop := a.startTicker(func() string { return plural(rows.Load(), "row") + " so far" })
	defer stop()
	s := t.Scan(ctx, opts...)
	defer s.Close()
	for s.Next() {
		rows.Add(1)
	}
	stop()
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w (after %s)", err, plural(rows.Load(), "row"))
	}
	if a.json {
		return a.printJSON(struct {
			Table string `json:"table"`
			Rows  int64  `json:"rows"`
		}{t.Name(), rows.Load()})
	}
	_, err := fmt.Fprintln(a.out, rows.Load())
	return err
}
