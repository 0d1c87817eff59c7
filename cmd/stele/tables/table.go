package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/table"
)

func tableCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Create, copy, rename, list, describe, clear, drop and compact tables; split, move and merge tablets",
		Example: `  stele table create webtable --family contents:versions=3 --family anchor
  stele table list
  stele table describe webtable`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(tableCreateCommand(a), tableListCommand(a), tableDescribeCommand(a), tableRenameCommand(a), tableDropCommand(a), tableUndropCommand(a), tablePurgeCommand(a), tableTruncateCommand(a), tableClearCommand(a), tableCompactCommand(a),
		tableSplitCommand(a), tableMoveCommand(a), tableMergeCommand(a), tableOwnerCommand(a), tableProtectCommand(a), tableReadOnlyCommand(a), tableStreamCommand(a), tableMigrateCommand(a), tableCopyCommand(a), tableViewCommand(a))
	return cmd
}

// familyHelp describes the syntax of a family.
const familyHelp = `A family is NAME, or NAME: followed by options separated by commas:

  versions=3          keep the newest 3 versions of a column
  age=30d             keep versions for 30 days
  gc="..."            a garbage-collection policy: versions=1 or (age=7d and versions=10)
  group=pages         the locality group that stores the family (default "default");
                      a group is removed with its last family

Options of the locality group apply to all its families:

  compression=zstd    none, s2 (default), zstd, or two-pass: for pages and other
                      data with long common parts
  block=8KiB          size of a block: 1KiB to 1MiB (default 64KiB, for scans)
  bloom=row           Bloom filters: none, row or rowcol (default)
  in-memory           keep the group in memory, and serve reads from there

With both versions= and age=, a version is collected as soon as either allows it.`

const tableCreateExample = `  stele table create webtable --family contents:versions=3,group=pages,compression=zstd --family anchor --family language:versions=1
  stele table create metrics --family 'cpu:age=30d,block=8KiB' --dry-run
  stele table create users --family profile --split-at g,n,t
  stele table create events --family e --split-hex 16
  stele table create readings --family r --granularity millis
  stele table create events --family e --stream 7d`

func tableCreateCommand(a *cli.App) *cobra.Command {
	var families []string
	var f splitFlags
	var granularity string
	var stream cli.DurationFlag
	dryRun := false
	cmd := &cobra.Command{
		Use:     "create TABLE --family NAME[:OPTION=VALUE,...]...",
		Short:   "Create a table",
		Long:    "Create a table with column families.\n\n" + familyHelp + "\n\n" + splitHelp,
		Example: tableCreateExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			specs, err := cli.ParseFamilies(families)
			if err != nil {
				return err
			}
			s, err := table.NewSchema(args[0], 0).Apply(specs...)
			if err != nil {
				return err
			}
			s.ChangeRetention = time.Duration(stream)
			if s.Granularity, err = table.ParseGranularity(granularity); err != nil {
				return cli.Usagef("", "--granularity: %q is neither micros nor millis", granularity)
			}
			splitAt, err := f.rows(a)
			if err != nil {
				return err
			}
			spec := client.TableSpec{Families: specs, SplitAt: splitAt, Granularity: s.Granularity, ChangeRetention: s.ChangeRetention}
			if dryRun {
				if err := checkAbsent(a, cmd, args[0]); err != nil {
					return err
				}
				a.Notef("would create a table%s:", inTablets(len(splitAt)))
				return printSchema(a, s)
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				began := time.Now()
				s, err := c.Tables().CreateFrom(ctx, args[0], &spec)
				if err != nil {
					return err
				}
				if time.Since(began) > createSlow {
					reportUnserved(ctx, a, c, s.Name)
				}
				if len(s.Families) == 0 {
					a.Notef("table %s has no families yet: add them with \"stele family set %s NAME\"", s.Name, s.Name)
				}
				return reportSchema(a, s, "created table "+s.Name+inTablets(len(splitAt)))
			})
		},
	}
	cmd.Flags().StringArrayVar(&families, "family", nil, "a column family, as `NAME[:OPTIONS]`; may be repeated")
	cmd.Flags().StringVar(&granularity, "granularity", "micros", "the `unit` of the table's timestamps, micros or millis; it cannot be changed later")
	cmd.Flags().Var(&stream, "stream", "keep changes for this `time`, from 1h to 30d, for stele watch")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the schema, and change nothing")
	f.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// checkAbsent returns an error if the table exists.
func checkAbsent(a *cli.App, cmd *cobra.Command, name string) error {
	_, err := describeTable(a, cmd, name)
	switch {
	case err == nil:
		return fmt.Errorf("table %q: %w", name, client.ErrTableExists)
	case errors.Is(err, client.ErrNoTable):
		return nil
	}
	return err
}

// reportSchema reports a change: with --json it prints the new schema, else the message what.
func reportSchema(a *cli.App, s *table.Schema, what string) error {
	if a.JSON {
		return a.PrintJSON(schemaOf(s))
	}
	a.Notef("%s", what)
	return nil
}

func tableListCommand(a *cli.App) *cobra.Command {
	dropped := false
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tables",
		Example: `  stele table list
  stele table list --json | jq -r .name
  stele table list --dropped`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if dropped {
					return listDropped(ctx, a, c)
				}
				schemas, err := c.Tables().List(ctx)
				if err != nil {
					return err
				}
				return listTables(a, schemas)
			})
		},
	}
	cmd.Flags().BoolVar(&dropped, "dropped", false, "list the dropped tables that can be restored")
	return cmd
}

func listTables(a *cli.App, schemas []*table.Schema) error {
	g := cli.NewGrid("TABLE", "FAMILIES", "LOCALITY GROUPS")
	for _, s := range schemas {
		if a.JSON {
			if err := a.PrintJSON(schemaOf(s)); err != nil {
				return err
			}
			continue
		}
		var families, groups []string
		for i := range s.Families {
			families = append(families, s.Families[i].Name)
		}
		for i := range s.Groups {
			groups = append(groups, s.Groups[i].Name)
		}
		g.Add(s.Name, strings.Join(families, " "), strings.Join(groups, " "))
	}
	if len(schemas) == 0 && !a.JSON {
		a.Notef(`no tables yet: create one by "stele table create"`)
	}
	return a.Print(g)
}

const tableDropExample = `  stele table drop webtable
  stele table drop webtable --dry-run
  stele table drop webtable --yes
  stele table drop webtable --now`

const tableDropLong = `Drop a table. No request finds it any more, and its name is free. It is kept for a week,
with its disk space: "stele table undrop" restores it, and "stele table purge" deletes
it before. With --now, delete it for good at once, and free its disk space.`

func tableDropCommand(a *cli.App) *cobra.Command {
	var yes, dryRun, now bool
	cmd := &cobra.Command{
		Use:               "drop TABLE",
		Short:             "Drop a table",
		Long:              tableDropLong,
		Example:           tableDropExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return dropTable(a, cmd, args[0], yes, dryRun, now)
		},
	}
	dropFlags(cmd, &yes, &dryRun)
	cmd.Flags().BoolVar(&now, "now", false, "delete the table for good, and free its disk space")
	return cmd
}

// dropTable drops a table after confirmation, or prints what it would drop.
func dropTable(a *cli.App, cmd *cobra.Command, name string, yes, dryRun, now bool) error {
	info, err := describeTable(a, cmd, name)
	if err != nil {
		return err
	}
	if err := info.Schema.CheckDrop(); err != nil {
		return err
	}
	what := fmt.Sprintf("table %s, with %s and %s on disk", name, cli.Plural(int64(len(info.Schema.Families)), "family"), cli.FormatSize(diskBytes(info, "")))
	if dryRun {
		return reportDryRun(a, name, "", "drop "+what, diskBytes(info, ""))
	}
	if err := a.Confirm(yes, "Drop "+what+"?"); err != nil {
		return err
	}
	return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		return drop(ctx, a, c, name, now)
	})
}

// dropFlags adds the flags of destructive commands.
func dropFlags(cmd *cobra.Command, yes, dryRun *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "print what would be deleted, and change nothing")
}

// describeTable returns the description of a table, by a call with its own timeout: a confirmation that
// follows must not count against it.
func describeTable(a *cli.App, cmd *cobra.Command, name string) (info *client.TableInfo, err error) {
	err = a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		info, err = c.Tables().Describe(ctx, name)
		return err
	})
	return info, err
}

// diskBytes returns the size of a table's SSTables, or of those of one locality group.
func diskBytes(info *client.TableInfo, group string) (n int64) {
	for i := range info.Tablets {
		for _, g := range info.Tablets[i].Groups {
			if group == "" || g.Name == group {
				n += g.Bytes
			}
		}
	}
	return n
}

// dropJSON is the --json form of a dropped table or family.
type dropJSON struct {
	Table   string `json:"table"`
	Family  string `json:"family,omitempty"`
	Dropped bool   `json:"dropped"`
	Bytes   *int64 `json:"bytes,omitempty"` // on disk; set for a dry run
}

// reportDryRun prints the result of a dry run.
func reportDryRun(a *cli.App, tableName, family, what string, bytes int64) error {
	if a.JSON {
		return a.PrintJSON(dropJSON{Table: tableName, Family: family, Bytes: &bytes})
	}
	a.Notef("would %s", what)
	return nil
}

func reportDropped(a *cli.App, tableName, family, what string) error {
	if a.JSON {
		return a.PrintJSON(dropJSON{Table: tableName, Family: family, Dropped: true})
	}
	a.Notef("%s", what)
	return nil
}

const tableCompactLong = `Run minor compactions of a table's tablets, which write their memtables to SSTables, and
wait for them. --row or --id selects one tablet.

With --major, run major compactions, which also rewrite the SSTables, without deleted,
overwritten and expired data. Nodes run both kinds on their own in time. While a node
serves reads, it limits major compactions to an eighth of a processor: some seconds for
each 300 MB.`

const tableCompactExample = `  stele table compact webtable
  stele table compact webtable --major --timeout 10m
  stele table compact webtable --row com.cnn.www --major`

func tableCompactCommand(a *cli.App) *cobra.Command {
	var f tabletFlags
	major, row := false, ""
	cmd := &cobra.Command{
		Use:               "compact TABLE [--major]",
		Short:             "Compact a table",
		Long:              tableCompactLong,
		Example:           tableCompactExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			one, err := f.one(a, cmd, row)
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return compactTable(ctx, a, c, args[0], one, major)
			})
		},
	}
	cmd.Flags().BoolVar(&major, "major", false, "run major compactions, which remove deleted and expired data")
	cmd.Flags().StringVar(&row, "row", "", "compact only the tablet that has this `row`")
	cli.AllowEmpty(cmd.Flags(), "row") // the table's first tablet contains the empty row
	f.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// one returns the tablet of --row or --id; nil if neither is given.
func (f *tabletFlags) one(a *cli.App, cmd *cobra.Command, row string) (*client.TabletRef, error) {
	var rows []string
	if cmd.Flags().Changed("row") {
		rows = []string{row}
	}
	if len(rows) == 0 && f.id == 0 {
		return nil, nil
	}
	t, err := f.ref(a, rows)
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// compactTable compacts a table, or the tablet one if it is not nil.
func compactTable(ctx context.Context, a *cli.App, c *client.Client, name string, one *client.TabletRef, major bool) error {
	start := time.Now()
	stop := a.StartTicker(func() string {
		return fmt.Sprintf("compacting %s, %s", name, text.Uptime(time.Since(start)))
	})
	defer stop()
	var err error
	if one == nil {
		err = c.Tables().Compact(ctx, name, major)
	} else {
		err = c.Tablets().Compact(ctx, name, *one, major)
	}
	if err != nil {
		return err
	}
	stop()
	if a.JSON {
		return a.PrintJSON(struct {
			Table   string  `json:"table"`
			Major   bool    `json:"major"`
			Seconds float64 `json:"seconds"`
		}{name, major, time.Since(start).Seconds()})
	}
	a.Notef("compacted %s in %s", name, text.Duration(time.Since(start)))
	return nil
}
