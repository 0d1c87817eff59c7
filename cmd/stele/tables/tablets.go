package tables

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/cmd/stele/cli"
)

func tabletCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tablet",
		Short: "List and describe tablets",
		Example: `  stele tablet list webtable
  stele tablet describe webtable com.cnn.www`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(tabletListCommand(a), tabletDescribeCommand(a))
	return cmd
}

const tabletListLong = `List the tablets of a table, or of all tables, from METADATA. The list includes
METADATA's own tablets, except the root tablet, which is in the lock service.

A tablet has the rows after AFTER ROW, up to and including TO ROW. NODE is the node that
serves it, or (none) while the master assigns it. GENERATION increases with each change
of the tablet's row in METADATA. ID, ON DISK and MEMTABLE are reported by the node, and
are - if it does not answer. Sizes are - for users with neither admin on the table nor
read on the cluster. READS/S and WRITES/S are rows a second in the last one or two
minutes, of tables that you may read as a whole; of the 100 busiest tablets if there are
more.`

func tabletListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list [TABLE]",
		Aliases: []string{"ls"},
		Short:   "List the tablets of a table, or of all tables",
		Long:    tabletListLong,
		Example: `  stele tablet list
  stele tablet list webtable
  stele tablet list --json | jq -r 'select(.node == "") | .table'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				l := &tabletList{a: a, c: c, tables: map[uint64]string{metadata.TableID: metadata.Name}, nodes: map[string]string{}}
				if err := l.read(ctx, args); err != nil {
					return err
				}
				return l.print()
			})
		},
	}
}

// placedTablet is a tablet and its placement.
type placedTablet struct {
	Table   string `json:"table"`
	TableID uint64 `json:"table_id"`
	cli.BoundsJSON
	Node   string `json:"node"`
	Server string `json:"server"`
	Addr   string `json:"addr"`
	// Generation is a string: many JSON parsers round numbers above 2^53, which it reaches after two
	// recoveries of the lock service.
	Generation uint64   `json:"generation,string"`
	Recoveries []string `json:"recoveries"`      // servers whose commit logs it waits for
	Error      string   `json:"error,omitempty"` // why its row in METADATA cannot be decoded
	// Nil if the node that serves it has not reported them, or the user may not see sizes.
	ID            *uint64 `json:"id"`
	Bytes         *int64  `json:"bytes"`
	MemtableBytes *int64  `json:"memtable_bytes"`
	// Rows a second; nil if they are unknown.
	Reads  *float64 `json:"reads_per_s"`
	Writes *float64 `json:"writes_per_s"`
}

// tabletList is one listing of tablets.
type tabletList struct {
	a       *cli.App
	c       *client.Client
	tables  map[uint64]string // names by id
	nodes   map[string]string // names by id
	tablets []placedTablet
}

// read reads the tablets of the table in names, or of all tables if names is empty.
func (l *tabletList) read(ctx context.Context, names []string) error {
	schemas, err := l.c.Tables().List(ctx)
	if err != nil {
		return err
	}
	for _, s := range schemas {
		l.tables[s.ID] = s.Name
	}
	if dropped, err := l.c.Tables().Dropped(ctx); err == nil { // otherwise they have no names here
		for i := range dropped {
			l.tables[dropped[i].ID] = dropped[i].Name + " (dropped)"
		}
	}
	only, err := l.tableID(names)
	if err != nil {
		return err
	}
	nodes, err := l.c.Nodes().List(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		l.nodes[nodes[i].ID] = cli.NodeName(&nodes[i])
	}
	if err := l.scan(ctx, only); err != nil {
		return err
	}
	l.addSizes(ctx)
	l.addRates(ctx)
	return nil
}

// tableID returns the id of the table in names; 0 if names is empty.
func (l *tabletList) tableID(names []string) (uint64, error) {
	if len(names) == 0 {
		return 0, nil
	}
	for id, name := range l.tables {
		if name == names[0] {
			return id, nil
		}
	}
	return 0, fmt.Errorf("table %q: %w", names[0], api.ErrNoTable)
}

// scan reads METADATA: the rows of the table only, or all if it is 0.
func (l *tabletList) scan(ctx context.Context, only uint64) error {
	options := []client.ScanOption{client.Filter(metadata.Places())}
	if only != 0 {
		start, end := metadata.TableRange(only)
		options = append(options, client.Start(string(start)), client.End(string(end)))
	}
	s := l.c.Table(metadata.Name).Scan(ctx, options...)
	defer s.Close()
	before, start := uint64(0), []byte(nil)
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if r == nil {
			return err
		}
		if r.Table != before {
			before, start = r.Table, nil
			if r.IsRoot() { // METADATA does not contain its first tablet, the root tablet
				start = metadata.RootEnd()
			}
		}
		damage := ""
		if err != nil {
			damage = err.Error()
		}
		node, _, _ := strings.Cut(r.Server, ".")
		l.tablets = append(l.tablets, placedTablet{
			Table: l.tables[r.Table], TableID: r.Table, BoundsJSON: cli.BoundsOf(start, r.End),
			Node: cli.OrElse(l.nodes[node], node), Server: r.Server, Addr: r.Addr,
			Generation: r.Generation, Recoveries: append([]string{}, r.Recoveries...), Error: damage,
		})
		start = r.End
	}
	return s.Err()
}

// describeTimeout is the timeout of describeTablets. Sizes that do not arrive in time are omitted.
const describeTimeout = 3 * time.Second

// addSizes sets the ids and sizes of the tablets, as their servers report them.
func (l *tabletList) addSizes(ctx context.Context) {
	byTable := map[string]*client.TableInfo{}
	for i := range l.tablets {
		t := &l.tablets[i]
		if t.Table == "" || t.TableID == metadata.TableID || t.Node == "" {
			continue
		}
		if _, ok := byTable[t.Table]; !ok {
			byTable[t.Table] = describeTablets(ctx, l.c, t.Table)
		}
		infos := byTable[t.Table].Tablets
		at := slices.IndexFunc(infos, func(info client.TabletInfo) bool {
			return string(info.Start) == string(t.StartBytes) && string(info.End) == string(t.EndBytes)
		})
		if at < 0 {
			continue
		}
		t.ID = &infos[at].ID
		if byTable[t.Table].SizesHidden {
			continue
		}
		bytes := int64(0)
		for _, g := range infos[at].Groups {
			bytes += g.Bytes
		}
		t.Bytes, t.MemtableBytes = &bytes, &infos[at].MemtableBytes
	}
}

// describeTablets returns what the servers of a table's tablets report; nothing if they do
// not answer within describeTimeout.
func describeTablets(ctx context.Context, c *client.Client, name string) *client.TableInfo {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	info, err := c.Tables().Describe(ctx, name)
	if err != nil {
		return &client.TableInfo{}
	}
	return info
}

func (l *tabletList) print() error {
	g := cli.NewGrid("TABLE", "ID", "NODE", "ON DISK", "MEMTABLE", "READS/S", "WRITES/S", "GENERATION", "AFTER ROW", "TO ROW")
	unserved := int64(0)
	for i := range l.tablets {
		t := &l.tablets[i]
		if l.a.JSON {
			if err := l.a.PrintJSON(t); err != nil {
				return err
			}
			continue
		}
		if t.Node == "" {
			unserved++
		}
		g.Add(t.cells()...)
	}
	if l.a.JSON {
		return nil
	}
	if unserved > 0 {
		l.a.Notef("%s: %s of %s unassigned; the master is assigning them", l.a.Paint(l.a.ErrTTY, cli.StyleHint, "degraded"),
			cli.FormatCount(unserved), cli.Plural(int64(len(l.tablets)), "tablet"))
	}
	return l.a.Print(g)
}

// cells returns the cells of the tablet's row.
func (t *placedTablet) cells() []any {
	id, disk, memory := cli.Number("-"), cli.Number("-"), cli.Number("-")
	if t.ID != nil {
		id = cli.Number(strconv.FormatUint(*t.ID, 10))
	}
	if t.Bytes != nil {
		disk, memory = cli.Size(*t.Bytes), cli.Size(*t.MemtableBytes)
	}
	return []any{t.Table, id, cli.OrElse(t.Node, "(none)"), disk, memory, rateText(t.Reads), rateText(t.Writes), cli.Number(strconv.FormatUint(t.Generation, 10)),
		cli.OrElse(string(t.StartBytes), "(first)"), cli.OrElse(string(t.EndBytes), "(last)")}
}
