package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const putLong = `Write cells of a row atomically.

A value is the text after the first = of the qualifier. @FILE reads the value from a
file, - from standard input. With --escaped, \xNN stands for any byte, including an = in
a qualifier (\x3d) and an @ at the start of a value (\x40).

When the command returns, the cells are on disk.`

const putExample = `  stele put webtable com.cnn.www anchor:cnnsi.com=CNN anchor:my.look.ca=CNN.com
  stele put webtable com.cnn.www contents:=@index.html
  curl -s https://example.com | stele put webtable com.example contents:=-
  stele put -e counters 'user\x00\x07' 'log:\x3d=a value' --timestamp 1795254000000000`

func putCommand(a *cli.App) *cobra.Command {
	timestamp := ""
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "put TABLE ROW FAMILY:QUALIFIER=VALUE...",
		Aliases:           []string{"set"},
		Short:             "Write cells of a row",
		Long:              putLong,
		Example:           putExample,
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := putMutation(a, args[1], args[2:], timestamp)
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return putRow(ctx, a, view.of(c, args[0]), m)
			})
		},
	}
	cmd.Flags().StringVar(&timestamp, "timestamp", "", "`time` of the cells: microseconds since 1970, or RFC 3339 (default: set by the server)")
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

func putMutation(a *cli.App, row string, assignments []string, timestamp string) (*client.RowMutation, error) {
	at := table.ServerTimestamp
	if timestamp != "" {
		t, err := cli.ParseMoment(timestamp, time.Now())
		if err != nil {
			return nil, fmt.Errorf("--timestamp: %w", err)
		}
		at = t.UnixMicro()
	}
	if err := a.Texts(&row); err != nil {
		return nil, err
	}
	m := client.NewRowMutation(row)
	values := cli.NewValueReader(a)
	for _, arg := range assignments {
		column, text, err := cli.ParseAssignment(arg)
		if err != nil {
			return nil, err
		}
		if err := a.Texts(&column); err != nil {
			return nil, err
		}
		value, err := values.Read(column, text)
		if err != nil {
			return nil, err
		}
		m.SetAt(column, at, value)
	}
	return m, nil
}

func putRow(ctx context.Context, a *cli.App, t *client.Table, m *client.RowMutation) error {
	var given int64
	if err := t.Apply(ctx, m, client.ReturnTimestamp(&given)); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(struct {
			cli.RowJSON
			Cells     int   `json:"cells"`
			Timestamp int64 `json:"timestamp,omitempty"` // set by the server
		}{cli.RowOf(m.Row()), m.Len(), given})
	}
	return nil
}
