package rows

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const incrLong = `Add AMOUNT (default 1) to a counter atomically, and print its new value.

A counter is a column whose newest value is a big-endian integer of 8 bytes. A missing
value counts as 0. The sum wraps around at 2^63-1 and -2^63 without an error.`

const incrExample = `  stele incr webtable com.cnn.www stats:visits
  stele incr webtable com.cnn.www stats:visits 10
  stele incr webtable com.cnn.www stats:visits -10`

func incrCommand(a *cli.App) *cobra.Command {
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "incr TABLE ROW FAMILY:QUALIFIER [AMOUNT]",
		Short:             "Add to a counter and print its new value",
		Long:              incrLong,
		Example:           incrExample,
		Args:              cobra.RangeArgs(3, 4),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := amountOf(args)
			if err != nil {
				return err
			}
			row, column := args[1], args[2]
			if err := a.Texts(&row, &column); err != nil {
				return err
			}
			if _, _, err := client.ParseColumn(column); err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return increment(ctx, a, view.of(c, args[0]), row, column, amount)
			})
		},
	}
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// amountOf returns the amount in the arguments: 1 if it is omitted.
func amountOf(args []string) (int64, error) {
	if len(args) < 4 {
		return 1, nil
	}
	n, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return 0, cli.Usagef("", "amount %q is not a 64-bit integer", args[3])
	}
	return n, nil
}

func increment(ctx context.Context, a *cli.App, t *client.Table, row, column string, amount int64) error {
	result, err := t.ReadModifyWrite(ctx, row, client.IncrementRule(column, amount))
	if err != nil {
		return err
	}
	cell, ok := client.Latest(result, column)
	if !ok || len(cell.Value) != 8 {
		return fmt.Errorf("read the counter: the answer has no value of 8 bytes")
	}
	n := int64(binary.BigEndian.Uint64(cell.Value))
	if a.JSON {
		return a.PrintJSON(struct {
			cli.RowJSON
			cli.ColumnJSON
			Timestamp int64 `json:"timestamp"`
			Value     int64 `json:"value"`
		}{cli.RowOf(row), cli.ColumnOf(column), cell.Timestamp, n})
	}
	_, err = fmt.Fprintln(a.Out, n)
	return err
}
