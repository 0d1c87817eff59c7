package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

func (a *app) deleteCommand() *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use:   "delete TABLE ROW [FAMILY[:QUALIFIER]...]",
		Short: "Delete a row, families of it, or columns",
		Long: `Delete a row, some families of it, or some columns, all together.

Of columns, --since and --until choose the versions. A delete covers what was
written before it, whatever the timestamps, and nothing that is written after.
To delete what is not there is no error.`,
		Example: `  stele delete webtable com.cnn.www anchor:www.abc.com
  stele delete webtable com.cnn.www anchor
  stele delete webtable com.cnn.www contents: --until 30d
  stele delete webtable com.cnn.www`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			for i := range args[1:] {
				if err := a.texts(&args[1+i]); err != nil {
					return err
				}
			}
			from, to, err := timeRange(since, until)
			if err != nil {
				return err
			}
			m, err := deleteMutation(args[1], args[2:], from, to)
			if err != nil {
				return err
			}
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				if err := c.Table(args[0]).Apply(ctx, m); err != nil || !a.json {
					return err
				}
				return a.printJSON(struct {
					rowJSON
					Deletions int `json:"deletions"`
				}{rowOf(args[1]), m.Len()})
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only versions of this `time` or later: RFC 3339, microseconds, or how long ago, such as 2h or 30d")
	cmd.Flags().StringVar(&until, "until", "", "only versions before this `time`")
	a.escapesFlag(cmd)
	return cmd
}

// deleteMutation deletes the columns of a row, or all of it if none is named. Zero
// times are no bounds.
func deleteMutation(row string, columns []string, since, until time.Time) (*client.RowMutation, error) {
	m := client.NewRowMutation(row)
	ranged := !since.IsZero() || !until.IsZero()
	if len(columns) == 0 {
		if ranged {
			return nil, usagef("name the columns, as in "+quoted("stele delete TABLE ROW contents: --until 30d"), "--since and --until need columns: a row is deleted as a whole")
		}
		return m.DeleteRow(), nil
	}
	for _, column := range columns {
		switch {
		case !strings.Contains(column, ":") && ranged:
			return nil, usagef("name the columns, as in "+quoted("stele delete TABLE ROW "+column+":QUALIFIER --until 30d"), "--since and --until need columns: family %s is deleted as a whole", column)
		case !strings.Contains(column, ":"):
			m.DeleteFamily(column)
		case ranged:
			deleteVersions(m, column, since, until)
		default:
			m.Delete(column)
		}
	}
	return m, nil
}

// deleteVersions deletes the versions of a column from since on and before until. A zero
// time is no bound; the first microsecond of 1970 is one, before which there is nothing.
func deleteVersions(m *client.RowMutation, column string, since, until time.Time) {
	var from int64
	if !since.IsZero() {
		from = since.UnixMicro()
	}
	if until.IsZero() {
		m.DeleteFrom(column, from)
	} else {
		m.DeleteRange(column, from, until.UnixMicro())
	}
}
