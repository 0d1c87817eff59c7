package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

func (a *app) tableDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe TABLE",
		Short: "Show a table's families, locality groups and tablets",
		Example: `  stele table describe webtable
  stele table describe webtable --json | jq '.tablets[].groups[]'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
				info, err := c.Describe(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printTable(info)
			})
		},
	}
}

// The --json forms of a table.
type (
	schemaJSON struct {
		Name     string       `json:"name"`
		ID       uint64       `json:"id"`
		Families []familyJSON `json:"families"`
		Groups   []groupJSON  `json:"groups"`
	}
	familyJSON struct {
		Name  string `json:"name"`
		GC    string `json:"gc"`
		Group string `json:"group"`
	}
	groupJSON struct {
		Name        string `json:"name"`
		BlockBytes  int    `json:"block_bytes"`
		Compression string `json:"compression"`
		Bloom       string `json:"bloom"`
		InMemory    bool   `json:"in_memory"`
	}
	tableJSON struct {
		schemaJSON
		Tablets     []tabletJSON `json:"tablets"`
		SizesHidden bool         `json:"sizes_hidden,omitempty"`
	}
	tabletJSON struct {
		ID   uint64 `json:"id"`
		Node string `json:"node"`
		boundsJSON
		MemtableBytes int64           `json:"memtable_bytes"`
		Groups        []groupSizeJSON `json:"groups"`
	}
	groupSizeJSON struct {
		Name     string `json:"name"`
		Files    int64  `json:"files"`
		Bytes    int64  `json:"bytes"`
		RawBytes int64  `json:"raw_bytes"`
		Entries  int64  `json:"entries"`
	}
)

func schemaOf(s *table.Schema) schemaJSON {
	j := schemaJSON{Name: s.Name, ID: s.ID, Families: []familyJSON{}, Groups: []groupJSON{}}
	for i := range s.Families {
		f := &s.Families[i]
		j.Families = append(j.Families, familyJSON{f.Name, f.GC.String(), f.Group})
	}
	for i := range s.Groups {
		g := s.Groups[i].Effective()
		j.Groups = append(j.Groups, groupJSON{g.Name, g.BlockBytes, g.Compression.String(), g.Bloom.String(), g.InMemory})
	}
	return j
}

func tableOf(info *client.TableInfo) tableJSON {
	j := tableJSON{schemaJSON: schemaOf(info.Schema), Tablets: []tabletJSON{}, SizesHidden: info.SizesHidden}
	for i := range info.Tablets {
		t := &info.Tablets[i]
		tj := tabletJSON{t.ID, t.Node, boundsOf(t.Start, t.End), t.MemtableBytes, []groupSizeJSON{}}
		for _, g := range t.Groups {
			tj.Groups = append(tj.Groups, groupSizeJSON(g))
		}
		j.Tablets = append(j.Tablets, tj)
	}
	return j
}

// printSchema prints families and locality groups.
func (a *app) printSchema(s *table.Schema) error {
	j := schemaOf(s)
	if a.json {
		return a.printJSON(j)
	}
	families := newGrid("FAMILY", "GARBAGE COLLECTION", "GROUP")
	for _, f := range j.Families {
		families.add(f.Name, f.GC, f.Group)
	}
	groups := newGrid("GROUP", "BLOCK", "COMPRESSION", "BLOOM", "IN MEMORY")
	for _, g := range j.Groups {
		groups.add(g.Name, size(int64(g.BlockBytes)), g.Compression, g.Bloom, yesNo(g.InMemory))
	}
	return a.printAll(families, groups)
}

// printAll prints grids with an empty line between them.
func (a *app) printAll(grids ...*grid) error {
	first := true
	for _, g := range grids {
		if len(g.rows) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(a.out)
		}
		first = false
		if err := a.print(g); err != nil {
			return err
		}
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) printTable(info *client.TableInfo) error {
	if a.json {
		return a.printJSON(tableOf(info))
	}
	if info.SizesHidden {
		return a.printTableOnly(info)
	}
	var entries, bytes, memtables int64
	tablets := newGrid("TABLET", "GROUP", "FILES", "ON DISK", "RAW", "CELLS", "MEMTABLE", "NODE", "AFTER ROW", "TO ROW")
	for i := range info.Tablets {
		t := &info.Tablets[i]
		memtables += t.MemtableBytes
		start, end := orElse(string(t.Start), "(first)"), orElse(string(t.End), "(last)")
		memory := size(t.MemtableBytes)
		for _, g := range t.Groups {
			entries, bytes = entries+g.Entries, bytes+g.Bytes
			tablets.add(count(t.ID), g.Name, count(g.Files), size(g.Bytes), size(g.RawBytes), count(g.Entries), memory, t.Node, start, end)
			memory = "" // print the tablet's memtable once, not for each group
		}
		if len(t.Groups) == 0 {
			tablets.add(count(t.ID), "", count(0), size(0), size(0), count(0), memory, t.Node, start, end)
		}
	}
	fmt.Fprintf(a.out, "table %s: %s, %s in SSTables, %s in memtables\n\n", info.Schema.Name,
		plural(int64(len(info.Tablets)), "tablet"), formatSize(bytes), formatSize(memtables))
	if err := a.printSchema(info.Schema); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return a.print(tablets)
}

// printTableOnly is printTable for users who may not see the sizes.
func (a *app) printTableOnly(info *client.TableInfo) error {
	tablets := newGrid("TABLET", "NODE", "AFTER ROW", "TO ROW")
	for i := range info.Tablets {
		t := &info.Tablets[i]
		tablets.add(count(t.ID), t.Node, orElse(string(t.Start), "(first)"), orElse(string(t.End), "(last)"))
	}
	fmt.Fprintf(a.out, "table %s: %s; only administrators of the table see sizes\n\n", info.Schema.Name, plural(int64(len(info.Tablets)), "tablet"))
	if err := a.printSchema(info.Schema); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return a.print(tablets)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
