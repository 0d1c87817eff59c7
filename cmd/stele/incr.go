package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

func (a *app) incrCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "incr TABLE ROW FAMILY:QUALIFIER [AMOUNT]",
		Short: "Add to a counter and print its new value",
		Long: `Add AMOUNT, or 1, to a counter in one step, and print its new value.

A counter is a column whose newest value is 8 bytes, a big-endian integer; one
that has no value counts as 0. A sum over 2^63-1 goes on at -2^63, and one below
-2^63 at 2^63-1, without an error.`,
		Example: `  stele incr webtable com.cnn.www stats:visits
  stele incr webtable com.cnn.www stats:visits 10
  stele incr webtable com.cnn.www stats:visits -10`,
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

// guardAmount writes "--" before a negative amount of incr, so that it is not taken for a flag. Other arguments stay
// as they are.
func guardAmount(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Name() != "incr" || !cmd.HasParent() {
		return args
	}
	positional := 0
	for i := 0; i < len(rest); i++ {
		arg := rest[i]
		switch name, isFlag := strings.CutPrefix(arg, "--"); {
		case arg == "--":
			return args
		case isFlag:
			f := cmd.Flag(name) // nil also for --name=value
			if f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
		case positional == 3 && len(arg) > 1 && arg[0] == '-' && strings.Trim(arg[1:], "0123456789") == "":
			// Flags may follow the amount: it goes behind them.
			before := args[:len(args)-len(rest)]
			return slices.Concat(before, rest[:i], rest[i+1:], []string{"--", arg})
		case arg[:min(1, len(arg))] != "-":
			positional++
		}
	}
	return args
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
			rowJSON
			columnJSON
			Timestamp int64 `json:"timestamp"`
			Value     int64 `json:"value"`
		}{rowOf(row), columnOf(column), cell.Timestamp, n})
	}
	_, err = fmt.Fprintln(a.out, n)
	return err
}
