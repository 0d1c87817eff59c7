package rows

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

// casFlags are the flags of cas.
type casFlags struct {
	absent, remove bool
}

const casLong = `Write NEW to a column if its newest value is EXPECTED, byte for byte, in one atomic
operation.

  cas TABLE ROW COLUMN EXPECTED NEW        the newest value must be EXPECTED
  cas TABLE ROW COLUMN --absent NEW        the column must have no value
  cas TABLE ROW COLUMN EXPECTED --delete   delete all versions of the column

Exit codes: 0 the value was written, 11 the comparison failed and nothing was changed,
any other: error. Values may be @FILE or -, as in "stele put".`

const casExample = `  stele cas jobs 42 state:owner --absent worker-7
  stele cas jobs 42 state:phase running done
  stele cas jobs 42 state:owner worker-7 --delete`

func casCommand(a *cli.App) *cobra.Command {
	s := &casFlags{}
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "cas TABLE ROW FAMILY:QUALIFIER EXPECTED NEW",
		Short:             "Compare and set a value atomically",
		Long:              casLong,
		Example:           casExample,
		Args:              s.arguments,
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			row, column := args[1], args[2]
			if err := a.Texts(&row, &column); err != nil {
				return err
			}
			var values [][]byte
			reader := cli.NewValueReader(a)
			for i, arg := range args[3:] {
				v, err := reader.Read(fmt.Sprintf("value %d", i+1), arg)
				if err != nil {
					return err
				}
				values = append(values, v)
			}
			predicate, then, otherwise, err := s.check(row, column, values)
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				matched, err := view.of(c, args[0]).CheckAndMutate(ctx, row, predicate, then, otherwise)
				if err != nil {
					return err
				}
				return reportSwap(a, row, column, matched != s.absent, s)
			})
		},
	}
	cmd.Flags().BoolVar(&s.absent, "absent", false, "expect the column to have no value; omit EXPECTED")
	cmd.Flags().BoolVar(&s.remove, "delete", false, "delete the column; omit NEW")
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

func (s *casFlags) arguments(_ *cobra.Command, args []string) error {
	want := 5
	if s.absent {
		want--
	}
	if s.remove {
		want--
	}
	if len(args) != want || s.absent && s.remove {
		return fmt.Errorf("%d arguments, want %d", len(args), want)
	}
	return nil
}

// check returns a filter for the column's newest value, the mutation for the case that a cell
// passes it, and the one for the case that none does. Either mutation may be nil.
func (s *casFlags) check(row, column string, values [][]byte) (predicate table.Filter, then, otherwise *client.RowMutation, err error) {
	family, qualifier, err := client.ParseColumn(column)
	if err != nil {
		return nil, nil, nil, err
	}
	bound := table.Closed(qualifier)
	newest := table.Chain{
		table.ColumnRange{Family: family, Qualifiers: table.ByteRange{Start: bound, End: bound}},
		table.CellsPerColumnLimit(1),
	}
	m := client.NewRowMutation(row)
	if s.absent {
		return newest, nil, m.Set(column, values[0]), nil
	}
	if s.remove {
		m.Delete(column)
	} else {
		m.Set(column, values[1])
	}
	expected := table.Closed(values[0])
	return append(newest, table.ValueRange{Start: expected, End: expected}), m, nil, nil
}

// reportSwap prints the outcome. If nothing was written, it returns an error with exitConflict.
func reportSwap(a *cli.App, row, column string, done bool, s *casFlags) error {
	if a.JSON {
		err := a.PrintJSON(struct {
			cli.RowJSON
			cli.ColumnJSON
			Swapped bool `json:"swapped"`
		}{cli.RowOf(row), cli.ColumnOf(column), done})
		if err == nil && !done {
			err = cli.SilentExit(cli.ExitConflict)
		}
		return err
	}
	switch {
	case done:
		return nil
	case s.absent:
		return cli.Conflictf(`"stele get" shows it`, "not written: %s already has a value", column)
	}
	return cli.Conflictf(`"stele get" shows the current value`, "not written: the newest value of %s is not the expected one", column)
}
