package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

func (a *app) putCommand() *cobra.Command {
	timestamp := ""
	cmd := &cobra.Command{
		Use:     "put TABLE ROW FAMILY:QUALIFIER=VALUE...",
		Aliases: []string{"set"},
		Short:   "Write cells of a row",
		Long: `Write cells of a row atomically.

A value is the text after the first = of the qualifier. @FILE reads the value from a
file, - from standard input. With --escaped, \xNN stands for any byte, including an = in
a qualifier (\x3d) and an @ at the start of a value (\x40).

When the command returns, the cells are on disk.`,
		Example: `  stele put webtable com.cnn.www anchor:cnnsi.com=CNN anchor:my.look.ca=CNN.com
  stele put webtable com.cnn.www contents:=@index.html
  curl -s https://example.com | stele put webtable com.example contents:=-
  stele put -e counters 'user\x00\x07' 'log:\x3d=a value' --timestamp 1795254000000000`,
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.putMutation(args[1], args[2:], timestamp)
			if err != nil {
				return err
			}
			return a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
				return a.put(ctx, c.Table(args[0]), m)
			})
		},
	}
	cmd.Flags().StringVar(&timestamp, "timestamp", "", "`time` of the cells: microseconds since 1970, or RFC 3339 (default: set by the server)")
	a.escapesFlag(cmd)
	return cmd
}

func (a *app) putMutation(row string, assignments []string, timestamp string) (*client.RowMutation, error) {
	at := table.ServerTimestamp
	if timestamp != "" {
		t, err := parseMoment(timestamp, time.Now())
		if err != nil {
			return nil, fmt.Errorf("--timestamp: %w", err)
		}
		at = t.UnixMicro()
	}
	if err := a.texts(&row); err != nil {
		return nil, err
	}
	m := client.NewRowMutation(row)
	values := valueReader{a: a}
	for _, arg := range assignments {
		column, text, err := parseAssignment(arg)
		if err != nil {
			return nil, err
		}
		if err := a.texts(&column); err != nil {
			return nil, err
		}
		value, err := values.read(column, text)
		if err != nil {
			return nil, err
		}
		m.SetAt(column, at, value)
	}
	return m, nil
}

func (a *app) put(ctx context.Context, t *client.Table, m *client.RowMutation) error {
	var given int64
	if err := t.Apply(ctx, m, client.ReturnTimestamp(&given)); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			rowJSON
			Cells     int   `json:"cells"`
			Timestamp int64 `json:"timestamp,omitempty"` // set by the server
		}{rowOf(m.Row()), m.Len(), given})
	}
	return nil
}
