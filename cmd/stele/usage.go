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
	// What is missing: tablets of which nobody told (-1: that is not known), and nodes that did not answer.
	UnservedTablets int64    `json:"unserved_tablets"`
	SilentNodes     []string `json:"silent_nodes"`
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
values come to before compression. What nobody serves, or a node that does not answer,
is missing: then it says so, and ends with exit code 5. It takes the right to administer
the table, or to read the cluster.`,
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
			return a.tellMissing(u)
		},
	}
}

// tellMissing tells what is missing in the figures.
func (a *app) tellMissing(u *client.Usage) error {
	missing := len(u.Silent) > 0
	if missing {
		a.talk("without what these nodes serve, which did not answer: %s", escapeText(strings.Join(u.Silent, ", ")))
	}
	for i := range u.Tables {
		t := &u.Tables[i]
		switch {
		case t.Unserved > 0:
			a.talk("without %d tablets of table %s, which nobody serves or has told of", t.Unserved, escapeText(t.Name))
		case t.Unserved < 0:
			a.talk("perhaps without some tablets of table %s: METADATA cannot be read", escapeText(t.Name))
		}
		missing = missing || t.Unserved != 0
	}
	if missing {
		return quietly(exitUnhealthy)
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
