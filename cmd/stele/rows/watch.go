package rows

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const watchLong = `Print the changes of a table as they are committed, each as a JSON object on one line:
the row, the time of the commit in microseconds, a number that increases with each change
of the row, and the mutations. The table needs a change stream: see stele table stream.

Without --since and --from, changes are printed from now on. The command runs until it is
interrupted, or until --limit changes are printed. --token prints a token after each
batch of changes, as {"token": …}: --from continues there, without a change twice or
missing. --clears prints the ranges that stele table clear and truncate delete, too, as
{"cleared": {"start": …, "end": …}, "time": …, "seq": …}.`

func watchCommand(a *cli.App) *cobra.Command {
	var since, from string
	var limit int64
	var tokens, clears bool
	cmd := &cobra.Command{
		Use:   "watch TABLE",
		Short: "Print the changes of a table as they are made",
		Long:  watchLong,
		Example: `  stele watch webtable
  stele watch webtable --since 1h --limit 10 | jq -r .row`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return cli.Usagef("omit it for no limit", "--limit is %d, want at least 1", limit)
			}
			begin, _, err := timeRange(since, "")
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				changes, err := c.Table(args[0]).Changes(client.ChangesFrom{Since: begin, Token: from, Clears: clears})
				if errors.Is(err, client.ErrBadToken) {
					return cli.Usagef(`"stele watch --token" prints tokens; or begin at a time with --since`, "--from: %w", err)
				}
				if err != nil {
					return err
				}
				return watch(ctx, a, changes, limit, tokens)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "begin with the changes of this `time` in RFC 3339, microseconds, or an age such as 2h or 30d")
	cmd.Flags().StringVar(&from, "from", "", "continue after the changes before this `token`")
	cmd.Flags().Int64Var(&limit, "limit", 0, "stop after `N` changes (default: never)")
	cmd.Flags().BoolVar(&tokens, "token", false, "print a token after each batch of changes")
	cmd.Flags().BoolVar(&clears, "clears", false, "print deletions of row ranges, too")
	return cmd
}

// watch prints changes until limit are printed, if that is not 0.
func watch(ctx context.Context, a *cli.App, changes *client.Changes, limit int64, tokens bool) error {
	printed := int64(0)
	for {
		got, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		for i := range got {
			if _, err := a.Out.Write(append(appendChange(nil, &got[i]), '\n')); err != nil {
				return err
			}
			if printed++; printed == limit {
				return a.Out.Flush()
			}
		}
		if tokens && len(got) > 0 {
			if _, err := a.Out.WriteString(`{"token":"` + changes.Token() + "\"}\n"); err != nil {
				return err
			}
		}
		if err := a.Out.Flush(); err != nil {
			return err
		}
	}
}

// appendChange appends a change as a JSON object. Byte strings have the form of cli.AppendJSONField.
func appendChange(b []byte, c *client.Change) []byte {
	if x := c.Cleared; x != nil {
		b = cli.AppendJSONField(append(b, `{"cleared":{`...), "start", x.Start)
		b = append(cli.AppendJSONField(append(b, ','), "end", x.End), '}')
	} else {
		b = cli.AppendJSONField(append(b, '{'), "row", c.Row)
	}
	b = strconv.AppendInt(append(b, `,"time":`...), c.Time, 10)
	b = strconv.AppendUint(append(b, `,"seq":`...), c.Seq, 10)
	if c.Cleared != nil {
		return append(b, '}')
	}
	b = append(b, `,"mutations":[`...)
	for i := range c.Mutations {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMutation(b, &c.Mutations[i])
	}
	return append(b, "]}"...)
}

func appendMutation(b []byte, m *table.Mutation) []byte {
	b = append(append(append(b, `{"op":"`...), m.Op.String()...), '"')
	switch m.Op {
	case table.OpSet, table.OpAdd, table.OpMerge, table.OpDeleteColumn:
		column := append(append([]byte(m.Family), ':'), m.Qualifier...)
		b = cli.AppendJSONField(append(b, ','), "column", column)
	case table.OpDeleteFamily:
		b = cli.AppendJSONField(append(b, ','), "family", []byte(m.Family))
	}
	switch m.Op {
	case table.OpSet, table.OpAdd, table.OpMerge:
		b = strconv.AppendInt(append(b, `,"timestamp":`...), m.Timestamp, 10)
		b = cli.AppendJSONField(append(b, ','), "value", m.Value)
	case table.OpDeleteColumn:
		if m.Start != 0 {
			b = strconv.AppendInt(append(b, `,"start":`...), m.Start, 10)
		}
		if end, bounded := m.End.Bound(); bounded {
			b = strconv.AppendInt(append(b, `,"end":`...), end, 10)
		}
	}
	return append(b, '}')
}
