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
		Long: `Add AMOUNT (default 1) to a counter atomically, and print its new value.

A counter is a column whose newest value is a big-endian integer of 8 bytes. A missing
value counts as 0. The sum wraps around at 2^63-1 and -2^63 without an error.`,
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
					return usagef("", "amount %q is not a 64-bit integer", args[3])
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
			return a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
				return a.increment(ctx, c.Table(args[0]), row, column, amount)
			})
		},
	}
	a.escapesFlag(cmd)
	return cmd
}

// guardAmount inserts "--" before a negative amount of incr, so that it is not parsed as a flag.
// Otherwise it returns args unchanged.
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
			// Move the amount to the end: flags may follow it.
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
		return fmt.Errorf("read the counter: the answer has no value of 8 bytes")
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
