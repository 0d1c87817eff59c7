package rows

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const deleteLong = `Delete a row, or families or columns of it, atomically.

--since and --until select versions of columns by timestamp. A delete affects only cells
written before it, whatever their timestamps. Deleting something that does not exist is
not an error.`

const deleteExample = `  stele delete webtable com.cnn.www anchor:www.abc.com
  stele delete webtable com.cnn.www anchor
  stele delete webtable com.cnn.www contents: --until 30d
  stele delete webtable com.cnn.www`

func deleteCommand(a *cli.App) *cobra.Command {
	var since, until string
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "delete TABLE ROW [FAMILY[:QUALIFIER]...]",
		Short:             "Delete a row, or families or columns of it",
		Long:              deleteLong,
		Example:           deleteExample,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := unescapeAll(a, args[1:]); err != nil {
				return err
			}
			m, err := deletion(args[1], args[2:], since, until)
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return applyDeletion(ctx, a, view.of(c, args[0]), args[1], m)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "delete only versions of this `time` or later: RFC 3339, microseconds, or an age such as 2h or 30d")
	cmd.Flags().StringVar(&until, "until", "", "delete only versions before this `time`, in the forms of --since")
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// deletion returns the mutation for the arguments, with --since and --until.
func deletion(row string, columns []string, since, until string) (*client.RowMutation, error) {
	from, to, err := timeRange(since, until)
	if err != nil {
		return nil, err
	}
	return deleteMutation(row, columns, from, to)
}

// applyDeletion deletes and, with --json, prints the number of deletions.
func applyDeletion(ctx context.Context, a *cli.App, t *client.Table, row string, m *client.RowMutation) error {
	if err := t.Apply(ctx, m); err != nil || !a.JSON {
		return err
	}
	return a.PrintJSON(struct {
		cli.RowJSON
		Deletions int `json:"deletions"`
	}{cli.RowOf(row), m.Len()})
}

// deleteMutation returns a mutation that deletes families and columns of a row, or the whole row if
// columns is empty. A zero time means no bound.
func deleteMutation(row string, columns []string, since, until time.Time) (*client.RowMutation, error) {
	m := client.NewRowMutation(row)
	ranged := !since.IsZero() || !until.IsZero()
	if len(columns) == 0 {
		if ranged {
			return nil, cli.Usagef("name the columns, as in "+cli.Quoted("stele delete TABLE ROW contents: --until 30d"), "--since and --until select versions of columns, not of a row")
		}
		return m.DeleteRow(), nil
	}
	for _, column := range columns {
		switch {
		case !strings.Contains(column, ":") && ranged:
			return nil, cli.Usagef("name the columns, as in "+cli.Quoted("stele delete TABLE ROW "+column+":QUALIFIER --until 30d"), "--since and --until select versions of columns, not of family %s", column)
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

// deleteVersions deletes the versions of a column from since up to but not including until. A zero
// time.Time means no bound; the Unix epoch is a bound, before which there are no versions.
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
