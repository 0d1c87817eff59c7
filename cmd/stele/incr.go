package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

func (a *app) incrCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "incr TABLE ROW FAMILY:QUALIFIER [AMOUNT]",
		Short: "Add to a counter and print its new value",
		Long: `Add AMOUNT, or 1, to a counter in one step, and print its new value.

A counter is a column whose newest value is 8 bytes, a big-endian integer; one
that has no value counts as 0. A negative amount needs "--" before it.`,
		Example: `  stele incr webtable com.cnn.www stats:visits
  stele incr webtable com.cnn.www stats:visits 10
  stele incr webtable com.cnn.www stats:visits -- -10`,
		Args:              cobra.RangeArgs(3, 4),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			amount := int64(1)
			if len(args) == 4 {
				n, err := strconv.ParseInt(args[3], 10, 64)
				if err != nil {
					return usagef("", "amount %q is not a whole number of 64 bits", args[3])
				}
				amount = n
			}
			row, column := args[1], args[2]
			if err := a.texts(&row, &column); err != nil {
				return err
			}
			if _, _, err := client.ParseColumn(column); err != nil {
				return err
			}
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				return a.increment(ctx, c.Table(args[0]), row, column, amount)
			})
		},
	}
	a.escapesFlag(cmd)
	return cmd
}

func (a *app) increment(ctx context.Context, t *client.Table, row, column string, amount int64) error {
	result, err := t.ReadModifyWrite(ctx, row, client.IncrementRule(column, amount))
	if err != nil {
		return err
	}
	cell, ok := client.Latest(result, column)
	if !ok || len(cell.Value) != 8 {
		return fmt.Errorf("the node did not answer with the counter's value")
	}
	n := int64(binary.BigEndian.Uint64(cell.Value))
	if a.json {
		return a.printJSON(struct {
			Row       jsonBytes `json:"row"`
			Column    jsonBytes `json:"column"`
			Timestamp int64     `json:"timestamp"`
			Value     int64     `json:"value"`
		}{jsonBytes(row), jsonBytes(column), cell.Timestamp, n})
	}
	_, err = fmt.Fprintln(a.out, n)
	return err
}
