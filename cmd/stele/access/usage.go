package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
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

const usageLong = `Show the usage of tables by column family: on disk, without replicas; in memtables; and
in memory, for in-memory groups. The size of a file is divided among families in
proportion to their keys and values before compression. If tablets are not served or
nodes do not answer, the sums are incomplete: the command prints what is missing, and
exits with 5. The caller needs the right admin on the table, or read on the cluster.`

const usageExample = `  stele usage
  stele usage webtable
  stele usage --json`

func usageCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:               "usage [TABLE]",
		Short:             "Show disk and memory usage of tables, by family",
		Long:              usageLong,
		Example:           usageExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.Usage, error) {
				return c.Tables().Usage(ctx, strings.Join(args, ""))
			})
			if err != nil {
				return err
			}
			if err := printUsage(a, u); err != nil {
				return err
			}
			undivided := int64(0)
			for i := range u.Tables {
				undivided += u.Tables[i].UndividedBytes
			}
			if undivided > 0 {
				a.Hint(fmt.Sprintf("%s are in files without sizes by family, and are divided in proportion to the other files; "+
					`"stele table compact --major" rewrites them`, cli.FormatSize(undivided)))
			}
			return reportMissing(a, u)
		},
	}
}

// reportMissing prints what the sums lack. If they are incomplete, it returns exitUnhealthy.
func reportMissing(a *cli.App, u *client.Usage) error {
	missing := len(u.Silent) > 0
	if missing {
		a.Notef("incomplete: no answer from %s", cli.EscapeText(strings.Join(u.Silent, ", ")))
	}
	for i := range u.Tables {
		t := &u.Tables[i]
		switch {
		case t.Unserved > 0:
			a.Notef("incomplete: no node reports %s of table %s", cli.Plural(t.Unserved, "tablet"), cli.EscapeText(t.Name))
		case t.Unserved < 0:
			a.Notef("possibly incomplete: METADATA of table %s cannot be read", cli.EscapeText(t.Name))
		}
		missing = missing || t.Unserved != 0
	}
	if missing {
		return cli.SilentExit(cli.ExitUnhealthy)
	}
	return nil
}

func printUsage(a *cli.App, u *client.Usage) error {
	g := cli.NewGrid("TABLE", "FAMILY", "GROUP", "DISK", "MEMTABLE", "IN MEMORY", "FILES")
	for i := range u.Tables {
		t := &u.Tables[i]
		j := usageJSON{
			Table: t.Name, Owner: t.Owner, Tablets: t.Tablets, Files: t.Files, DiskBytes: t.DiskBytes, UndividedBytes: t.UndividedBytes,
			MemtableBytes: t.MemtableBytes, InMemoryBytes: t.InMemoryBytes, Families: []familyUsage{},
			UnservedTablets: t.Unserved, SilentNodes: append([]string{}, u.Silent...),
		}
		g.Add(t.Name, "(all)", "", cli.Size(t.DiskBytes), cli.Size(t.MemtableBytes), cli.Size(t.InMemoryBytes), cli.Count(t.Files))
		for _, f := range t.Families {
			j.Families = append(j.Families, familyUsage{f.Name, f.Group, f.Files, f.DiskBytes, f.MemtableBytes, f.InMemoryBytes})
			g.Add(t.Name, cli.OrElse(f.Name, "(dropped)"), cli.OrElse(f.Group, "-"), cli.Size(f.DiskBytes), cli.Size(f.MemtableBytes), cli.Size(f.InMemoryBytes), cli.Count(f.Files))
		}
		if a.JSON {
			if err := a.PrintJSON(j); err != nil {
				return err
			}
		}
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}
