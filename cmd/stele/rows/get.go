package rows

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// getFlags are the flags of get.
type getFlags struct {
	selection
	rowForm
	raw bool
}

const getLong = `Read a row, or some columns of it. Versions of a column are printed newest first.

On a terminal, long values are truncated and unprintable characters are escaped. --raw
writes the newest value of one column unchanged.

The exit code is 6 if the row has no such cell.`

const getExample = `  stele get webtable com.cnn.www
  stele get webtable com.cnn.www anchor language:
  stele get webtable com.cnn.www --column 'anchor:.*\.ca' --versions 1
  stele get webtable com.cnn.www contents: --raw > page.html`

func getCommand(a *cli.App) *cobra.Command {
	g := &getFlags{}
	var view viewFlag
	cmd := &cobra.Command{
		Use:               "get TABLE ROW [FAMILY[:QUALIFIER]...]",
		Aliases:           []string{"lookup"},
		Short:             "Read a row",
		Long:              getLong,
		Example:           getExample,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := unescapeAll(a, args[1:]); err != nil {
				return err
			}
			opts, err := g.options(cmd, args[2:])
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return getRow(ctx, a, view.of(c, args[0]), args[1], opts, g, func() error {
					return checkFamilies(ctx, c, args[0], slices.Concat(g.selection.families, familiesOf(args[2:])))
				})
			})
		},
	}
	g.selection.register(cmd)
	cmd.Flags().BoolVar(&g.raw, "raw", false, "write only the newest value, unchanged; needs one column")
	g.rowForm.register(cmd)
	view.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// unescapeAll replaces each argument by its text: see App.Texts.
func unescapeAll(a *cli.App, args []string) error {
	for i := range args {
		if err := a.Texts(&args[i]); err != nil {
			return err
		}
	}
	return nil
}

// options returns the read options of the flags and of the columns in the arguments.
func (g *getFlags) options(cmd *cobra.Command, columns []string) ([]client.ReadOption, error) {
	opts, err := g.selection.options(cmd)
	if err != nil {
		return nil, err
	}
	f, err := exactColumns(columns)
	if err != nil {
		return nil, err
	}
	if f != nil {
		opts = append(opts, client.Filter(f))
	}
	if g.raw {
		if len(columns) != 1 || !strings.Contains(columns[0], ":") {
			return nil, cli.Usagef("name it, as in "+cli.Quoted("stele get TABLE ROW contents: --raw"), "--raw needs one column")
		}
		opts = append(opts, client.Versions(1))
	}
	return opts, nil
}

// familiesOf returns the families of columns.
func familiesOf(columns []string) (families []string) {
	for _, c := range columns {
		family, _, _ := strings.Cut(c, ":")
		families = append(families, family)
	}
	return families
}

// getRow prints a row. If it does not exist, it returns the error of empty, if there is one.
func getRow(ctx context.Context, a *cli.App, t *client.Table, key string, opts []client.ReadOption, g *getFlags, empty func() error) error {
	row, err := t.Get(ctx, key, opts...)
	if err == nil && row == nil {
		err = empty()
	}
	switch {
	case err != nil:
		return err
	case row == nil && len(opts) > 0:
		return cli.NotFoundf("", "row %q of table %s has no such cell", key, t.Name())
	case row == nil:
		return cli.NotFoundf("", "table %s has no row %q", t.Name(), key)
	case g.raw:
		_, err := a.Out.Write(row.Cells[0].Value)
		return err
	}
	return newRowWriter(a, g.rowForm).write(row)
}
