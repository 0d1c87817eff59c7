package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

const viewLong = `Create, list, describe and drop views of a table. A view is a part of the table: rows
with some prefixes, and of these some columns. A user with a right on the view, and none
on the table, reads and writes only that: "stele acl grant ann read webtable/links", then
"stele get webtable com.cnn.www --view links".`

func tableViewCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "view",
		Short: "Create, list, describe and drop views of a table",
		Long:  viewLong,
		Example: `  stele table view create webtable links --column anchor
  stele table view list webtable
  stele table view drop webtable links`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(viewCreateCommand(a), viewListCommand(a), viewDescribeCommand(a), viewDropCommand(a))
	return cmd
}

const viewCreateLong = `Create a view of a table. It has the rows that begin with a PREFIX of --rows, or all
rows, and of these the columns of --column and --column-prefix. A column family that is
dropped leaves its views, and a family that is created later is in none.`

const viewCreateExample = `  stele table view create webtable links --column anchor
  stele table view create webtable cnn --rows com.cnn. --column contents: --column language
  stele table view create metrics cpu --column-prefix host:cpu. --protect
  stele table view create users tenant7 -e --rows 'tenant\x00\x07' --column profile`

// viewFlags are the flags of table view create.
type viewFlags struct {
	rows, columns, prefixes []string
	protect                 bool
}

func viewCreateCommand(a *cli.App) *cobra.Command {
	f := &viewFlags{}
	cmd := &cobra.Command{
		Use:               "create TABLE VIEW --column FAMILY[:QUALIFIER]...",
		Short:             "Create a view of a table",
		Long:              viewCreateLong,
		Example:           viewCreateExample,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := f.view(a, args[1])
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Tables().Alter(ctx, args[0], table.Change{Op: table.ChangeAddView, View: &table.ViewChange{View: *v}})
				if err != nil {
					return err
				}
				return reportView(a, s, v.Name, "created view "+v.Name+" of table "+s.Name)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.rows, "rows", nil, "rows that begin with `PREFIX` (default: all rows); may be repeated")
	flags.StringArrayVar(&f.columns, "column", nil, "a column, or a family with all its columns: `FAMILY[:QUALIFIER]`; may be repeated")
	flags.StringArrayVar(&f.prefixes, "column-prefix", nil, "columns of a family whose qualifiers begin with a prefix: `FAMILY:PREFIX`; may be repeated")
	flags.BoolVar(&f.protect, "protect", false, "protect the view, and so its table, from being dropped")
	a.EscapesFlag(cmd)
	return cmd
}

// view returns the view that the flags describe.
func (f *viewFlags) view(a *cli.App, name string) (*table.View, error) {
	if len(f.columns)+len(f.prefixes) == 0 {
		return nil, cli.Usagef(`such as --column anchor for all columns of a family, or --column-prefix anchor:com.`, "the view has no columns: --column or --column-prefix is missing")
	}
	rows, err := f.rowPrefixes(a)
	if err != nil {
		return nil, err
	}
	families := map[string]*table.ViewFamily{}
	for _, column := range f.columns {
		family, qualifier, one, err := viewColumn(a, families, column)
		if err != nil {
			return nil, err
		}
		if one {
			family.Qualifiers = append(family.Qualifiers, qualifier)
		} else {
			family.Prefixes = append(family.Prefixes, []byte{})
		}
	}
	for _, column := range f.prefixes {
		family, prefix, ok, err := viewColumn(a, families, column)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, cli.Usagef(`such as --column-prefix anchor:com. or, for all columns of a family, --column anchor`, "--column-prefix %q is not FAMILY:PREFIX", column)
		}
		family.Prefixes = append(family.Prefixes, prefix)
	}
	var list []table.ViewFamily
	for _, family := range families {
		list = append(list, *family)
	}
	v := table.NewView(name, rows, list...)
	v.Protected = f.protect
	return v, nil
}

// rowPrefixes returns the prefixes of the rows; without any it is the empty one, of all rows.
func (f *viewFlags) rowPrefixes(a *cli.App) (rows [][]byte, err error) {
	for _, prefix := range f.rows {
		if err := a.Texts(&prefix); err != nil {
			return nil, err
		}
		rows = append(rows, []byte(prefix))
	}
	if rows == nil {
		rows = [][]byte{{}}
	}
	return rows, nil
}

// viewColumn returns the part of a view with the family of a column, which it adds if it is new, and the text after the colon. ok is false if there
// is none.
func viewColumn(a *cli.App, families map[string]*table.ViewFamily, column string) (family *table.ViewFamily, qualifier []byte, ok bool, err error) {
	if err := a.Texts(&column); err != nil {
		return nil, nil, false, err
	}
	name, text, ok := strings.Cut(column, ":")
	if families[name] == nil {
		families[name] = &table.ViewFamily{Name: name}
	}
	return families[name], []byte(text), ok, nil
}

func viewListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list TABLE",
		Aliases: []string{"ls"},
		Short:   "List the views of a table",
		Example: `  stele table view list webtable
  stele table view list webtable --json | jq -r .name`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := describeTable(a, cmd, args[0])
			if err != nil {
				return err
			}
			return listViews(a, info.Schema)
		},
	}
}

func listViews(a *cli.App, s *table.Schema) error {
	if len(s.Views) == 0 && !a.JSON {
		a.Notef("table %s has no views", s.Name)
		return nil
	}
	grid := cli.NewGrid("VIEW", "ROWS", "COLUMNS", "PROTECTED")
	for i := range s.Views {
		v := &s.Views[i]
		if a.JSON {
			if err := a.PrintJSON(viewOf(s.Name, v)); err != nil {
				return err
			}
			continue
		}
		grid.Add(v.Name, shortList(rowsOf(v)), shortList(columnsOf(v)), cli.YesNo(v.Protected))
	}
	return a.Print(grid)
}

// listedMax is how many prefixes or columns of a view its line in a list has.
const listedMax = 3

func shortList(all []string) string {
	if n := len(all); n > listedMax {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:listedMax], ", "), n-listedMax)
	}
	return cli.OrElse(strings.Join(all, ", "), "(none)")
}

// rowsOf returns the prefixes of the view's rows. Grids escape them.
func rowsOf(v *table.View) (all []string) {
	for _, p := range v.Rows {
		if len(p) == 0 {
			return []string{"(all)"}
		}
		all = append(all, string(p)+"*")
	}
	return all
}

// columnsOf returns the columns of the view. A star stands for all qualifiers that begin with what is before it.
func columnsOf(v *table.View) (all []string) {
	for i := range v.Families {
		f := &v.Families[i]
		for _, p := range f.Prefixes {
			all = append(all, f.Name+":"+string(p)+"*")
		}
		for _, q := range f.Qualifiers {
			if !f.Whole() {
				all = append(all, f.Name+":"+string(q))
			}
		}
	}
	return all
}

func viewDescribeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TABLE VIEW",
		Short: "Show the rows and columns of a view",
		Example: `  stele table view describe webtable links
  stele table view describe webtable links --json | jq -r .etag`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteView,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, v, err := describeView(a, cmd, args[0], args[1])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(viewOf(s.Name, v))
			}
			return printView(a, s, v)
		},
	}
}

// describeView returns a view, and the schema of its table.
func describeView(a *cli.App, cmd *cobra.Command, name, view string) (*table.Schema, *table.View, error) {
	info, err := describeTable(a, cmd, name)
	if err != nil {
		return nil, nil, err
	}
	v := info.Schema.View(view)
	if v == nil {
		return nil, nil, &table.NoViewError{Table: name, View: view}
	}
	return info.Schema, v, nil
}

func printView(a *cli.App, s *table.Schema, v *table.View) error {
	state := ""
	if v.Protected {
		state = ", protected from deletion"
	}
	fmt.Fprintf(a.Out, "view %s of table %s%s\n\n", v.Name, s.Name, state)
	rows, columns := cli.NewGrid("ROWS"), cli.NewGrid("COLUMNS")
	for _, r := range rowsOf(v) {
		rows.Add(r)
	}
	for _, c := range columnsOf(v) {
		columns.Add(c)
	}
	return a.PrintAll(rows, columns)
}

// reportView reports a change: with --json it prints the view, else the message what.
func reportView(a *cli.App, s *table.Schema, name, what string) error {
	if v := s.View(name); a.JSON && v != nil {
		return a.PrintJSON(viewOf(s.Name, v))
	}
	a.Notef("%s", what)
	return nil
}

func reportDroppedView(a *cli.App, tableName, name string) error {
	if a.JSON {
		return a.PrintJSON(struct {
			Table   string `json:"table"`
			View    string `json:"view"`
			Dropped bool   `json:"dropped"`
		}{tableName, name, true})
	}
	a.Notef("dropped view %s of table %s", name, tableName)
	return nil
}

func viewDropCommand(a *cli.App) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "drop TABLE VIEW",
		Short: "Delete a view, and the grants on it",
		Long:  "Delete a view of a table, and the grants on it. The rows and columns of the table stay.",
		Example: `  stele table view drop webtable links
  stele table view drop webtable links --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteView,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, v, err := describeView(a, cmd, args[0], args[1])
			if err != nil {
				return err
			}
			if v.Protected { // before the confirmation
				return fmt.Errorf("view %q of table %q: %w", v.Name, s.Name, table.ErrProtected)
			}
			if err := a.Confirm(yes, "Drop view "+v.Name+" of table "+s.Name+", and all grants on it?"); err != nil {
				return err
			}
			drop := table.Change{Op: table.ChangeDropView, View: &table.ViewChange{View: table.View{Name: v.Name}, Etag: v.Etag()}}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if _, err := c.Tables().Alter(ctx, s.Name, drop); err != nil {
					return err
				}
				return reportDroppedView(a, s.Name, v.Name)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// The --json form of a view has prefixes and qualifiers as text, if they are text, and in base64.
type (
	viewJSON struct {
		Table     string           `json:"table,omitempty"` // not in the form of the table itself
		Name      string           `json:"name"`
		Etag      string           `json:"etag"`
		Protected bool             `json:"deletion_protection,omitempty"`
		Rows      []prefixJSON     `json:"rows"`
		Families  []viewFamilyJSON `json:"families"`
	}
	viewFamilyJSON struct {
		Name     string          `json:"name"`
		Columns  []qualifierJSON `json:"columns,omitempty"`
		Prefixes []prefixJSON    `json:"column_prefixes,omitempty"`
	}
	prefixJSON struct {
		Prefix      *string `json:"prefix,omitempty"`
		PrefixBytes []byte  `json:"prefix_base64"`
	}
	qualifierJSON struct {
		Qualifier      *string `json:"qualifier,omitempty"`
		QualifierBytes []byte  `json:"qualifier_base64"`
	}
)

func prefixesOf(keys [][]byte) (all []prefixJSON) {
	for _, k := range keys {
		all = append(all, prefixJSON{cli.TextOf(k), cli.BytesOf(k)})
	}
	return all
}

func viewOf(tableName string, v *table.View) viewJSON {
	j := viewJSON{Table: tableName, Name: v.Name, Etag: v.Etag(), Protected: v.Protected, Rows: prefixesOf(v.Rows), Families: []viewFamilyJSON{}}
	for i := range v.Families {
		f := viewFamilyJSON{Name: v.Families[i].Name, Prefixes: prefixesOf(v.Families[i].Prefixes)}
		for _, q := range v.Families[i].Qualifiers {
			f.Columns = append(f.Columns, qualifierJSON{cli.TextOf(q), cli.BytesOf(q)})
		}
		j.Families = append(j.Families, f)
	}
	return j
}
