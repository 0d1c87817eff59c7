package tables

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

const keysLong = `Show which row keys of a table are read and written most: the busiest ranges, hot
rows, large rows, and changes of its tablets. With --heat a map shows operations by
ranges of rows (down) and time (across); --png writes it as an image. Nodes keep two
weeks: by minutes for periods of up to 4 hours, by quarters of an hour up to 2 days, by
hours beyond. --show selects the quantity of the map, by which ranges are in order.

It requires the right to read the table, and names the users of hot rows to those with
the right to read on the cluster. Counts are exact by tablet; within a tablet they are
divided by a sample. With --prefix, of ranges that end outside of it only the share of
their data counts. Times are means on the nodes: from the arrival of a request until its
row is read, or its mutation is durable. The rows of a scan share its time.`

const keysExample = `  stele keys webtable
  stele keys webtable --heat --since 4h
  stele keys webtable --prefix com.cnn. --png heat.png
  stele keys webtable --heat --show write-time --since 30m --until "2h ago"
  stele keys webtable --above com.cnn --up-to com.e`

// keysFlags are the flags of stele keys.
type keysFlags struct {
	heat             bool
	png              string
	prefix, from, to string // of rows
	since            time.Duration
	until, show      string
}

func keysCommand(a *cli.App) *cobra.Command {
	f := keysFlags{since: time.Hour, show: health.HeatMeasures[0].Word}
	cmd := &cobra.Command{
		Use:               "keys TABLE",
		Short:             "Show which row keys of a table are read and written",
		Long:              keysLong,
		Example:           keysExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE:              func(cmd *cobra.Command, args []string) error { return showKeys(a, cmd, args[0], &f) },
	}
	cmd.Flags().BoolVar(&f.heat, "heat", false, "show a map by rows and time")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", `only rows that begin with this ("\x00" escapes as in the output)`)
	cmd.Flags().StringVar(&f.from, "above", "", "only rows after this `row`, in the form of --prefix")
	cmd.Flags().StringVar(&f.to, "up-to", "", "only rows up to this `row`, which is one of them")
	cmd.Flags().Var((*cli.DurationFlag)(&f.since), "since", "length of the period, at most 14d")
	cmd.Flags().StringVar(&f.until, "until", "", "end of the period: a `time` in RFC 3339, microseconds, or an age such as 2h (default now)")
	cmd.Flags().StringVar(&f.show, "show", f.show, "`quantity`: "+health.HeatWords())
	cmd.Flags().StringVar(&f.png, "png", "", "write the map as an image to this file")
	return cmd
}

func showKeys(a *cli.App, cmd *cobra.Command, name string, f *keysFlags) error {
	at := slices.IndexFunc(health.HeatMeasures, func(m health.HeatMeasure) bool { return m.Word == f.show })
	if at < 0 {
		return cli.Usagef("", "--show is %q, want %s", f.show, health.HeatWords())
	}
	show := &health.HeatMeasures[at]
	req, err := f.request(name, time.Now())
	if err != nil {
		return err
	}
	if f.heat && f.png == "" && !a.JSON {
		req.Rows = mapLines
	}
	k, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.KeyHeat, error) {
		return c.Tables().KeyHeat(ctx, req)
	})
	if err != nil {
		return err
	}
	if f.png != "" {
		if err := writeHeatPNG(f.png, k, show); err != nil {
			return err
		}
		a.Notef("map written to %s: %d ranges, %d intervals", cli.EscapeText(f.png), len(k.Ends), k.Columns)
	}
	if a.JSON {
		return a.PrintJSON(keysOf(k))
	}
	if f.heat && f.png == "" {
		printMap(a, k, show)
	}
	return printKeys(a, k, show)
}

// request returns the request for the part of the map that the flags select.
func (f *keysFlags) request(name string, now time.Time) (*client.KeyHeatRequest, error) {
	r := &client.KeyHeatRequest{Table: name, Since: f.since}
	for _, row := range []struct {
		text string
		to   *[]byte
	}{{f.prefix, &r.Prefix}, {f.from, &r.Start}, {f.to, &r.End}} {
		key, err := cli.Unescape(row.text)
		if err != nil {
			return nil, err
		}
		*row.to = []byte(key)
	}
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 {
		return nil, cli.Usagef("", "no row is above %s and up to %s", cli.EscapeText(f.from), cli.EscapeText(f.to))
	}
	if f.since < time.Minute || f.since > api.KeyHeatSinceMax {
		return nil, cli.Usagef("nodes keep two weeks", "--since is %v, want 1m to 14d", f.since)
	}
	if f.until == "" {
		return r, nil
	}
	until, err := cli.ParseMoment(f.until, now)
	if err != nil {
		return nil, err
	}
	if until.After(now) || until.Before(now.Add(-api.KeyHeatSinceMax)) {
		return nil, cli.Usagef("nodes keep two weeks", "--until is %s, want a time in the last two weeks", until.UTC().Format(time.RFC3339))
	}
	last := until.Add(-time.Millisecond) // of the last interval
	r.UntilMS, r.Since = last.UnixMilli(), f.since-time.Millisecond
	return r, nil
}

// writeHeatPNG writes the map to a new file, or replaces it.
func writeHeatPNG(name string, k *client.KeyHeat, show *health.HeatMeasure) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := drawHeat(file, k, show); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// namesMost is the number of entries of each list that is printed.
const namesMost = 10

// rangesOf returns the ranges with most of a quantity as a grid.
func rangesOf(k *client.KeyHeat, show *health.HeatMeasure) *cli.Grid {
	g := cli.NewGrid("ABOVE", "UP TO", "READS", "WRITES", "READ BYTES", "WRITTEN BYTES", "READ TIME", "WRITE TIME")
	for _, h := range k.Ranges(namesMost, show.Of) {
		g.Add(bound(h.Start), bound(h.End), cli.Count(h.Reads), cli.Count(h.Writes), cli.Number(cli.FormatSize(h.ReadBytes)), cli.Number(cli.FormatSize(h.WriteBytes)),
			meanTime(h.ReadMicros, h.Reads), meanTime(h.WriteMicros, h.Writes))
	}
	return g
}

// printKeys prints the hottest ranges, and the rows and changes that are named.
func printKeys(a *cli.App, k *client.KeyHeat, show *health.HeatMeasure) error {
	ranges := rangesOf(k, show)
	if ranges.IsEmpty() {
		a.Notef("no reads or writes of %s in this period", cli.EscapeText(k.Table))
	}
	rows := cli.NewGrid("ROW", "WHY")
	for _, h := range k.Hot[:min(len(k.Hot), namesMost)] {
		rows.Add(string(h.Row), fmt.Sprintf("hot: about %d reads, %d writes", h.Reads, h.Writes)+usersOf(&h))
	}
	for _, l := range k.Large[:min(len(k.Large), namesMost)] {
		rows.Add(string(l.Row), "large: "+cli.FormatSize(l.Bytes))
	}
	events := cli.NewGrid("TIME", "CHANGE", "NODE", "TABLET UP TO")
	for _, e := range k.Events[max(len(k.Events)-namesMost, 0):] {
		events.Add(time.UnixMilli(e.AtMS).Format(time.DateTime), e.Kind, e.Node, bound(e.Row))
	}
	for _, g := range []*cli.Grid{ranges, rows, events} {
		if err := a.Print(g); err != nil {
			return err
		}
	}
	if len(k.Silent) > 0 {
		a.Notef("incomplete: no answer from %s", cli.EscapeText(strings.Join(k.Silent, ", ")))
	}
	return nil
}

// meanTime returns the mean time of operations that took so many µs in all, or - if that is unknown.
func meanTime(micros, ops int64) cli.Number {
	if micros <= 0 || ops <= 0 {
		return "-"
	}
	return cli.Number(text.Millis(float64(micros) / float64(ops) / 1000))
}

// usersOf returns the users of a hot row as text.
func usersOf(h *api.HotRow) string {
	var all []string
	for _, u := range h.Users {
		all = append(all, fmt.Sprintf("%s (%d)", u.Name, u.Ops))
	}
	if len(all) == 0 {
		return ""
	}
	return "; most by " + strings.Join(all, ", ")
}

// bound returns a bound of a range for a grid, which escapes it.
func bound(row []byte) string { return cli.OrElse(string(row), "-") }

// heatJSON is a KeyHeat with its rows as other commands print them.
type heatJSON struct {
	*client.KeyHeat
	Ranges []cli.BoundsJSON `json:"ranges"`
	Hot    []hotJSON        `json:"hot"`
	Large  []largeJSON      `json:"large"`
	Events []eventJSON      `json:"events"`
}

type (
	hotJSON struct {
		cli.RowJSON
		api.HotRow
	}
	largeJSON struct {
		cli.RowJSON
		api.LargeRow
	}
	eventJSON struct {
		cli.RowJSON
		api.TabletEvent
	}
)

func keysOf(k *client.KeyHeat) *heatJSON {
	j := &heatJSON{KeyHeat: k, Ranges: []cli.BoundsJSON{}, Hot: []hotJSON{}, Large: []largeJSON{}, Events: []eventJSON{}}
	for i := range k.Ends {
		j.Ranges = append(j.Ranges, cli.BoundsOf(k.Starts[i], k.Ends[i]))
	}
	for _, h := range k.Hot {
		j.Hot = append(j.Hot, hotJSON{cli.RowOf(string(h.Row)), h})
	}
	for _, l := range k.Large {
		j.Large = append(j.Large, largeJSON{cli.RowOf(string(l.Row)), l})
	}
	for _, e := range k.Events {
		j.Events = append(j.Events, eventJSON{cli.RowOf(string(e.Row)), e})
	}
	return j
}
