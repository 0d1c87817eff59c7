package rows

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const addLong = `Add AMOUNT to a cell of an aggregate family: to its sum, its minimum or its maximum,
or to the set of integers that it counts.

A family is created with an aggregate: "stele table create stats --family
visits:aggregate=sum --family peak:aggregate=max --family users:aggregate=hll".
Nothing is read, so many clients can add to the same cell at the same time. "stele
get --int" shows the result: a number, and with the aggregate hll about how many
distinct integers were added, with a standard error of 0.6%. The timestamp names the
cell: a column has one aggregate for each timestamp that is added to.`

const addExample = `  stele add stats com.cnn.www visits:total 1 peak:ms 78 users:ids 381645
  stele add stats com.cnn.www visits:daily 1 --timestamp 2026-11-28T00:00:00Z`

func addCommand(a *cli.App) *cobra.Command {
	timestamp := ""
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "add TABLE ROW FAMILY:QUALIFIER AMOUNT [FAMILY:QUALIFIER AMOUNT]...",
		Short:             "Add to cells of aggregate families",
		Long:              addLong,
		Example:           addExample,
		Args:              cobra.MinimumNArgs(4),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := addMutation(a, args[1], args[2:], timestamp)
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return putRow(ctx, a, view.of(c, args[0]), m)
			})
		},
	}
	cmd.Flags().StringVar(&timestamp, "timestamp", "", "`time` of the cells: microseconds since 1970, or RFC 3339 (default: 0)")
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// addMutation returns a mutation that adds amounts to columns, which alternate in operands.
func addMutation(a *cli.App, row string, operands []string, timestamp string) (*client.RowMutation, error) {
	at := int64(0)
	if timestamp != "" {
		t, err := cli.ParseMoment(timestamp, time.Now())
		if err != nil {
			return nil, fmt.Errorf("--timestamp: %w", err)
		}
		at = t.UnixMicro()
	}
	if len(operands)%2 != 0 {
		return nil, cli.Usagef("", "column %q has no amount", operands[len(operands)-1])
	}
	if err := a.Texts(&row); err != nil {
		return nil, err
	}
	m := client.NewRowMutation(row)
	for i := 0; i < len(operands); i += 2 {
		n, err := strconv.ParseInt(operands[i+1], 10, 64)
		if err != nil {
			return nil, cli.Usagef("", "amount %q is not a 64-bit integer", operands[i+1])
		}
		column := operands[i]
		if err := a.Texts(&column); err != nil {
			return nil, err
		}
		m.AddInt(column, at, n)
	}
	return m, nil
}
