package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

// usageJSON is what a table takes, as --json prints it.
type usageJSON struct {
	Table          string        `json:"table"`
	Owner          string        `json:"owner,omitempty"`
	Tablets        int64         `json:"tablets"`
	Files          int64         `json:"files"`
	DiskBytes      int64         `json:"disk_bytes"`
	UndividedBytes int64         `json:"undivided_bytes"`
	MemtableBytes  int64         `json:"memtable_bytes"`
	InMemoryBytes  int64         `json:"in_memory_bytes"`
	Families       []familyUsage `json:"families"`
}

type familyUsage struct {
	Family        string `json:"family"` // empty: dropped ones
	Group         string `json:"group"`
	Files         int64  `json:"files"`
	DiskBytes     int64  `json:"disk_bytes"`
	MemtableBytes int64  `json:"memtable_bytes"`
	InMemoryBytes int64  `json:"in_memory_bytes"`
}

func (a *app) usageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "usage [TABLE]",
		Short: "Show what tables take on disk and in memory, by family",
		Long: `Show what tables take, by column family: on disk, without replicas, in memtables, and of
in-memory groups in memory. Files are divided among families by what their keys and
values come to before compression. It takes the right to administer the table, or to
read the cluster.`,
		Example: `  stele usage
  stele usage webtable
  stele usage --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			var u *client.Usage
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				u, err = c.Usage(ctx, strings.Join(args, ""))
				return err
			})
			if err != nil {
				return err
			}
			if err := a.printUsage(u); err != nil {
				return err
			}
			undivided := int64(0)
			for i := range u.Tables {
				undivided += u.Tables[i].UndividedBytes
			}
			if undivided > 0 {
				a.hint(fmt.Sprintf("%s are in files that do not say what they have of each family, and are divided as the rest is: "+
					`"stele table compact --major" writes them anew`, formatSize(undivided)))
			}
			if len(u.Silent) > 0 {
				a.talk("without what these nodes serve, which did not answer: %s", escapeText(strings.Join(u.Silent, ", ")))
				return quietly(exitUnhealthy)
			}
			return nil
		},
	}
}

func (a *app) printUsage(u *client.Usage) error {
	g := newGrid("TABLE", "FAMILY", "GROUP", "DISK", "MEMTABLE", "IN MEMORY", "FILES")
	for i := range u.Tables {
		t := &u.Tables[i]
		j := usageJSON{
			Table: t.Name, Owner: t.Owner, Tablets: t.Tablets, Files: t.Files, DiskBytes: t.DiskBytes, UndividedBytes: t.UndividedBytes,
			MemtableBytes: t.MemtableBytes, InMemoryBytes: t.InMemoryBytes, Families: []familyUsage{},
		}
		g.add(t.Name, "(all)", "", size(t.DiskBytes), size(t.MemtableBytes), size(t.InMemoryBytes), count(t.Files))
		for _, f := range t.Families {
			j.Families = append(j.Families, familyUsage{f.Name, f.Group, f.Files, f.DiskBytes, f.MemtableBytes, f.InMemoryBytes})
			g.add(t.Name, orElse(f.Name, "(dropped)"), orElse(f.Group, "-"), size(f.DiskBytes), size(f.MemtableBytes), size(f.InMemoryBytes), count(f.Files))
		}
		if a.json {
			if err := a.printJSON(j); err != nil {
				return err
			}
		}
	}
	if a.json {
		return nil
	}
	return a.print(g)
}
