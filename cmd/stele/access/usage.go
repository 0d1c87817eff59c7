package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

// usageJSON is the --json form of a table's usage, with the nodes that did not answer.
type usageJSON struct {
	*client.TableUsage
	SilentNodes []string `json:"silent_nodes"`
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
			a.Notef("incomplete: no node reports %s of table %s", cli.Plural(t.Unserved, "tablet"), cli.EscapeText(table.ShownName(t.Name)))
		case t.Unserved < 0:
			a.Notef("possibly incomplete: METADATA of table %s cannot be read", cli.EscapeText(table.ShownName(t.Name)))
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
		if a.JSON {
			if err := a.PrintJSON(usageJSON{t, u.Silent}); err != nil {
				return err
			}
			continue
		}
		g.Add(table.ShownName(t.Name), "(all)", "", cli.Size(t.DiskBytes), cli.Size(t.MemtableBytes), cli.Size(t.InMemoryBytes), cli.Count(t.Files))
		for _, f := range t.Families {
			g.Add(table.ShownName(t.Name), cli.OrElse(f.Name, "(dropped)"), cli.OrElse(f.Group, "-"), cli.Size(f.DiskBytes), cli.Size(f.MemtableBytes), cli.Size(f.InMemoryBytes), cli.Count(f.Files))
		}
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}
