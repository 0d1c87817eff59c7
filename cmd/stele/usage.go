package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

// usageJSON is the --json form of a table's usage.
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
	// What the sums lack: the number of tablets that no node reported (-1 if unknown), and the nodes
	// that did not answer.
	UnservedTablets int64    `json:"unserved_tablets"`
	SilentNodes     []string `json:"silent_nodes"`
}

type familyUsage struct {
	Family        string `json:"family"` // empty for dropped families
	Group         string `json:"group"`
	Files         int64  `json:"files"`
	DiskBytes     int64  `json:"disk_bytes"`
	MemtableBytes int64  `json:"memtable_bytes"`
	InMemoryBytes int64  `json:"in_memory_bytes"`
}

func (a *app) usageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "usage [TABLE]",
		Short: "Show disk and memory usage of tables, by family",
		Long: `Show the usage of tables by column family: on disk, without replicas; in memtables; and
in memory, for in-memory groups. The size of a file is divided among families in
proportion to their keys and values before compression. If tablets are not served or
nodes do not answer, the sums are incomplete: the command prints what is missing, and
exits with 5. The caller needs the right admin on the table, or read on the cluster.`,
		Example: `  stele usage
  stele usage webtable
  stele usage --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			var u *client.Usage
			err := a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) (err error) {
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
				a.hint(fmt.Sprintf("%s are in files without sizes by family, and are divided in proportion to the other files; "+
					`"stele table compact --major" rewrites them`, formatSize(undivided)))
			}
			return a.reportMissing(u)
		},
	}
}

// reportMissing prints what the sums lack. If they are incomplete, it returns exitUnhealthy.
func (a *app) reportMissing(u *client.Usage) error {
	missing := len(u.Silent) > 0
	if missing {
		a.notef("incomplete: no answer from %s", escapeText(strings.Join(u.Silent, ", ")))
	}
	for i := range u.Tables {
		t := &u.Tables[i]
		switch {
		case t.Unserved > 0:
			a.notef("incomplete: no node reports %s of table %s", plural(t.Unserved, "tablet"), escapeText(t.Name))
		case t.Unserved < 0:
			a.notef("possibly incomplete: METADATA of table %s cannot be read", escapeText(t.Name))
		}
		missing = missing || t.Unserved != 0
	}
	if missing {
		return silentExit(exitUnhealthy)
	}
	return nil
}

func (a *app) printUsage(u *client.Usage) error {
	g := newGrid("TABLE", "FAMILY", "GROUP", "DISK", "MEMTABLE", "IN MEMORY", "FILES")
	for i := range u.Tables {
		t := &u.Tables[i]
		j := usageJSON{
			Table: t.Name, Owner: t.Owner, Tablets: t.Tablets, Files: t.Files, DiskBytes: t.DiskBytes, UndividedBytes: t.UndividedBytes,
			MemtableBytes: t.MemtableBytes, InMemoryBytes: t.InMemoryBytes, Families: []familyUsage{},
			UnservedTablets: t.Unserved, SilentNodes: append([]string{}, u.Silent...),
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
