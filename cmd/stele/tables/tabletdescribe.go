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
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

const tabletDescribeLong = `Show the tablet that has a row, or that of --id: its placement, its files by locality
group, and its latest events, as recorded in METADATA. Memtables are not counted. A file
that tablets share since a split counts for each by the estimated size of its part.
Sizes are missing if the tablet's server does not answer.

The root tablet, the first of METADATA, is in the lock service: "stele lock get /root".`

const tabletDescribeExample = `  stele tablet describe webtable com.cnn.www
  stele tablet describe webtable --id 17 --json | jq .events`

func tabletDescribeCommand(a *cli.App) *cobra.Command {
	var f tabletFlags
	cmd := &cobra.Command{
		Use:               "describe TABLE [ROW]",
		Aliases:           []string{"show"},
		Short:             "Show a tablet's placement, files and events",
		Long:              tabletDescribeLong,
		Example:           tabletDescribeExample,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := f.ref(a, args[1:])
			if err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				d, err := findTablet(ctx, c, args[0], t)
				if err != nil {
					return err
				}
				return printTablet(a, d)
			})
		},
	}
	f.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// tabletRow is a tablet's row in METADATA, decoded, with its sizes.
type tabletRow struct {
	Table   string `json:"table"`
	TableID uint64 `json:"table_id"`
	ID      uint64 `json:"id"`
	cli.BoundsJSON
	Node       string        `json:"node"`
	Server     string        `json:"server"`
	Addr       string        `json:"addr"`
	Generation uint64        `json:"generation,string"`
	Recoveries []string      `json:"recoveries"`
	Splitting  bool          `json:"splitting"`
	LastMajor  time.Time     `json:"last_major_compaction"`
	Groups     []tabletGroup `json:"groups"`
	Events     []tabletEvent `json:"events"` // newest first
}

type tabletGroup struct {
	Name    string       `json:"name"`
	Bytes   *int64       `json:"bytes"`   // estimate for the tablet's part of its files; nil if no server reports it
	Entries *int64       `json:"entries"` // like Bytes
	Files   []tabletFile `json:"files"`
}

type tabletFile struct {
	Blob           string `json:"blob"`
	Bytes          int64  `json:"bytes"` // of the whole file, even if only a part belongs to the tablet
	RawBytes       int64  `json:"raw_bytes"`
	Entries        int64  `json:"entries"`
	cli.BoundsJSON        // of the part that belongs to the tablet
	Shared         bool   `json:"shared"`
}

type tabletEvent struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// findTablet reads a tablet's row in METADATA, and its sizes from its server.
func findTablet(ctx context.Context, c *client.Client, name string, t client.TabletRef) (*tabletRow, error) {
	id := metadata.TableID
	if name != metadata.Name {
		info, err := tableNamed(ctx, c, name)
		if err != nil {
			return nil, err
		}
		id = info.ID
	}
	start, end := metadata.TableRange(id)
	options := []client.ScanOption{client.End(string(end)), client.Filter(metadata.RowsWithEvents())}
	if t.ID == 0 {
		options = append(options, client.Start(string(metadata.SeekKey(nil, id, []byte(t.Row)))), client.Limit(1))
	} else {
		options = append(options, client.Start(string(start)))
	}
	s := c.Table(metadata.Name).Scan(ctx, options...)
	defer s.Close()
	for s.Next() {
		d, err := tabletOf(name, s.Row())
		if err != nil {
			return nil, err
		}
		if t.ID == 0 || d.ID == t.ID {
			if err := findStart(ctx, c, d); err != nil {
				return nil, err
			}
			nodes, err := c.Nodes().List(ctx)
			for i := range nodes {
				if nodes[i].ID == d.Node {
					d.Node = cli.NodeName(&nodes[i])
				}
			}
			d.addSizes(describeTablets(ctx, c, name))
			return d, err
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("table %q: %w", name, client.ErrNoTablet)
}

// findStart sets the start of a tablet to the end of the previous one, which splits may have changed
// since the tablet's row was written.
func findStart(ctx context.Context, c *client.Client, d *tabletRow) error {
	from, _ := metadata.TableRange(d.TableID)
	if len(d.StartBytes) > 0 {
		from = append(metadata.SeekKey(nil, d.TableID, d.StartBytes), 0)
	}
	s := c.Table(metadata.Name).Scan(ctx, client.Start(string(from)), client.End(string(metadata.Key(nil, d.TableID, d.EndBytes))), client.Filter(metadata.Locations()))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err != nil {
			return err
		}
		d.BoundsJSON = cli.BoundsOf(r.End, d.EndBytes)
	}
	return s.Err()
}

// tableNamed returns a table's schema.
func tableNamed(ctx context.Context, c *client.Client, name string) (*table.Schema, error) {
	schemas, err := c.Tables().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range schemas {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("table %q: %w", name, client.ErrNoTable)
}

// tabletOf decodes a row of METADATA.
func tabletOf(name string, row *table.Row) (*tabletRow, error) {
	r, err := metadata.Decode(row)
	if err != nil {
		return nil, err
	}
	m, err := tablet.DecodeMeta(r.Meta)
	if err != nil {
		return nil, err
	}
	node, _, _ := strings.Cut(r.Server, ".")
	d := &tabletRow{
		Table: name, TableID: r.Table, ID: m.ID, BoundsJSON: cli.BoundsOf(m.Start, r.End), Node: node, Server: r.Server, Addr: r.Addr,
		Generation: r.Generation, Recoveries: append([]string{}, r.Recoveries...), Splitting: r.Split != nil, LastMajor: m.LastMajor,
		Groups: []tabletGroup{}, Events: []tabletEvent{},
	}
	for _, g := range m.Groups {
		j := tabletGroup{Name: g.Name, Files: []tabletFile{}}
		for i := range g.Files {
			x := &g.Files[i]
			j.Files = append(j.Files, tabletFile{x.Handle.ID.String(), x.Handle.Length, x.RawBytes, x.Entries, cli.BoundsOf(x.Start, x.End), x.Shared})
		}
		d.Groups = append(d.Groups, j)
	}
	for _, e := range metadata.Events(row) {
		d.Events = append(d.Events, tabletEvent{time.UnixMicro(e.Time).UTC(), e.Text})
	}
	return d, nil
}

// addSizes sets the sizes that the tablet's server reports. METADATA has only sizes of whole files, of
// which a tablet may have a part since a split.
func (d *tabletRow) addSizes(info *client.TableInfo) {
	infos := info.Tablets
	at := slices.IndexFunc(infos, func(info client.TabletInfo) bool { return info.ID == d.ID })
	if at < 0 || info.SizesHidden {
		return
	}
	for i := range d.Groups {
		g := &d.Groups[i]
		g.Bytes, g.Entries = new(int64), new(int64)
		for _, x := range infos[at].Groups {
			if x.Name == g.Name {
				*g.Bytes, *g.Entries = x.Bytes, x.Entries
			}
		}
	}
}

func printTablet(a *cli.App, d *tabletRow) error {
	if a.JSON {
		return a.PrintJSON(d)
	}
	facts := cli.NewGrid("FACT", "VALUE")
	facts.Add("tablet", fmt.Sprintf("%d of table %s", d.ID, d.Table))
	facts.Add("after row", cli.OrElse(string(d.StartBytes), "(first)"))
	facts.Add("to row", cli.OrElse(string(d.EndBytes), "(last)"))
	where := "(none): the master is assigning the tablet"
	if d.Server != "" {
		where = fmt.Sprintf("%s at %s, as server %s", d.Node, d.Addr, d.Server)
	}
	facts.Add("node", where)
	facts.Add("generation", strconv.FormatUint(d.Generation, 10))
	if len(d.Recoveries) > 0 {
		facts.Add("recovering from logs of", strings.Join(d.Recoveries, " "))
	}
	if d.Splitting {
		facts.Add("split", "in progress, or its end is not recorded yet")
	}
	facts.Add("major compaction", d.LastMajor.UTC().Format(time.RFC3339))
	files := cli.NewGrid("LOCALITY GROUP", "FILES", "SHARED", "BYTES", "ENTRIES")
	for _, g := range d.Groups {
		shared := 0
		for _, x := range g.Files {
			if x.Shared {
				shared++
			}
		}
		bytes, entries := cli.Number("-"), cli.Number("-")
		if g.Bytes != nil {
			bytes, entries = cli.Size(*g.Bytes), cli.Count(*g.Entries)
		}
		files.Add(g.Name, cli.Count(len(g.Files)), cli.Count(shared), bytes, entries)
	}
	events := cli.NewGrid("TIME", "EVENT")
	for _, e := range d.Events {
		events.Add(e.Time.Format("2006-01-02T15:04:05.000Z"), e.Text)
	}
	return a.PrintAll(facts, files, events)
}
