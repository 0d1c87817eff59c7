package tables

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

func tableDescribeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TABLE",
		Short: "Show a table's families, locality groups and tablets",
		Example: `  stele table describe webtable
  stele table describe webtable --json | jq '.tablets[].groups[]'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				info, err := c.Tables().Describe(ctx, args[0])
				if err != nil {
					return err
				}
				return printTable(a, info)
			})
		},
	}
}

// The --json form of a table has the bounds of tablets, and the prefixes and qualifiers of views, as text and in base64.
type (
	schemaJSON struct {
		*table.Schema
		Views []viewJSON `json:"views,omitempty"`
	}
	tableJSON struct {
		schemaJSON
		Tablets     []tabletJSON `json:"tablets"`
		SizesHidden bool         `json:"sizes_hidden,omitempty"`
	}
	tabletJSON struct {
		ID   uint64 `json:"id"`
		Node string `json:"node"`
		cli.BoundsJSON
		MemtableBytes int64              `json:"memtable_bytes"`
		Groups        []client.GroupInfo `json:"groups"`
	}
)

// effective returns the schema with the defaults of its groups filled in.
func effective(s *table.Schema) *table.Schema {
	c := s.Clone()
	for i := range c.Groups {
		c.Groups[i] = c.Groups[i].Effective()
	}
	if c.Families == nil {
		c.Families = []table.Family{} // [] in JSON
	}
	return c
}

// schemaOf returns the --json form of a schema, with the defaults of its groups filled in.
func schemaOf(s *table.Schema) schemaJSON {
	j := schemaJSON{Schema: effective(s)}
	for i := range s.Views {
		j.Views = append(j.Views, viewOf("", &s.Views[i]))
	}
	return j
}

func tableOf(info *client.TableInfo) tableJSON {
	j := tableJSON{schemaJSON: schemaOf(info.Schema), Tablets: []tabletJSON{}, SizesHidden: info.SizesHidden}
	for i := range info.Tablets {
		t := &info.Tablets[i]
		j.Tablets = append(j.Tablets, tabletJSON{t.ID, t.Node, cli.BoundsOf(t.Start, t.End), t.MemtableBytes, t.Groups})
	}
	return j
}

// printSchema prints families and locality groups.
func printSchema(a *cli.App, s *table.Schema) error {
	if a.JSON {
		return a.PrintJSON(schemaOf(s))
	}
	s = effective(s)
	families := familyGrid(s)
	groups := cli.NewGrid("GROUP", "BLOCK", "COMPRESSION", "BLOOM", "IN MEMORY")
	for _, g := range s.Groups {
		groups.Add(g.Name, cli.Size(int64(g.BlockBytes)), g.Compression.String(), g.Bloom.String(), cli.YesNo(g.InMemory))
	}
	grids := []*cli.Grid{families, groups}
	add := func(title, value string) {
		g := cli.NewGrid(title)
		g.Add(value)
		grids = append(grids, g)
	}
	if s.Granularity != table.GranularityMicros {
		add("TIMESTAMPS", s.Granularity.String())
	}
	if s.Protected {
		add("DELETION PROTECTION", cli.YesNo(true))
	}
	if s.ReadOnly != "" {
		add("READ-ONLY", s.ReadOnly)
	}
	if s.ChangeRetention > 0 {
		add("CHANGE STREAM", s.ChangeRetention.String())
	}
	return a.PrintAll(grids...)
}

// familyGrid lists the families, with their aggregates if any has one.
func familyGrid(s *table.Schema) *cli.Grid {
	titles := []string{"FAMILY", "GARBAGE COLLECTION", "GROUP"}
	aggregates := slices.ContainsFunc(s.Families, func(f table.Family) bool { return f.Aggregate != table.AggregateNone })
	if aggregates {
		titles = append(titles, "AGGREGATE")
	}
	families := cli.NewGrid(titles...)
	for i := range s.Families {
		f := &s.Families[i]
		fields := []any{f.Name, f.GC.String(), f.Group}
		if aggregates {
			fields = append(fields, f.Aggregate.String())
		}
		families.Add(fields...)
	}
	return families
}

func printTable(a *cli.App, info *client.TableInfo) error {
	if a.JSON {
		return a.PrintJSON(tableOf(info))
	}
	if info.SizesHidden {
		return printTableOnly(a, info)
	}
	var entries, bytes, memtables int64
	tablets := cli.NewGrid("TABLET", "GROUP", "FILES", "ON DISK", "RAW", "CELLS", "MEMTABLE", "NODE", "AFTER ROW", "TO ROW")
	for i := range info.Tablets {
		t := &info.Tablets[i]
		memtables += t.MemtableBytes
		start, end := cli.OrElse(string(t.Start), "(first)"), cli.OrElse(string(t.End), "(last)")
		memory := cli.Size(t.MemtableBytes)
		for _, g := range t.Groups {
			entries, bytes = entries+g.Entries, bytes+g.Bytes
			tablets.Add(cli.Count(t.ID), g.Name, cli.Count(g.Files), cli.Size(g.Bytes), cli.Size(g.RawBytes), cli.Count(g.Entries), memory, t.Node, start, end)
			memory = "" // print the tablet's memtable once, not for each group
		}
		if len(t.Groups) == 0 {
			tablets.Add(cli.Count(t.ID), "", cli.Count(0), cli.Size(0), cli.Size(0), cli.Count(0), memory, t.Node, start, end)
		}
	}
	fmt.Fprintf(a.Out, "table %s: %s, %s in SSTables, %s in memtables\n\n", info.Schema.Name,
		cli.Plural(int64(len(info.Tablets)), "tablet"), cli.FormatSize(bytes), cli.FormatSize(memtables))
	if err := printSchema(a, info.Schema); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return a.Print(tablets)
}

// printTableOnly is printTable for users who may not see the sizes.
func printTableOnly(a *cli.App, info *client.TableInfo) error {
	tablets := cli.NewGrid("TABLET", "NODE", "AFTER ROW", "TO ROW")
	for i := range info.Tablets {
		t := &info.Tablets[i]
		tablets.Add(cli.Count(t.ID), t.Node, cli.OrElse(string(t.Start), "(first)"), cli.OrElse(string(t.End), "(last)"))
	}
	fmt.Fprintf(a.Out, "table %s: %s; only administrators of the table and users with the right read on the cluster see sizes\n\n", info.Schema.Name, cli.Plural(int64(len(info.Tablets)), "tablet"))
	if err := printSchema(a, info.Schema); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	return a.Print(tablets)
}
