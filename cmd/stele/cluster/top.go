package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

const topLong = `Show what the nodes do now: rows read and changes made durable a second, the times of
requests, and memory. On a terminal the view is replaced every two seconds until Ctrl-C.

ROWS READ are those read by key, SCANS batches of scans, COMMITS changes made durable, a
second since the last view; those of the first view are of a second. P99 READ and
P99 WRITE are the 99th percentiles of the last quarter of a minute, rounded up to a
power of two. P99 LOG is that of the times in which the log replicas on the node made
appends durable, as the commit logs of all nodes saw it: writes to any node wait for
the slowest replica. WAITS are writes a second that waited for memory, or were
rejected for lack of it. ERRORS are failed requests a second of the last quarter of a
minute: "stele requests --errors" lists them. The console has the last hour as charts.

--hot adds the tablets with the most operations on rows since the minute before, of the
tables that you may read. SHARE is that of all operations on these tables.`

const topExample = `  stele top
  stele top --interval 5s
  stele top --hot 5
  stele top --count 1 --json | jq -s 'map(.commits_per_s) | add'`

// topTimeout bounds the requests of one view.
const topTimeout = 5 * time.Second

func topCommand(a *cli.App) *cobra.Command {
	every, views, hot := 2*time.Second, 0, 0
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Show what the nodes do now",
		Long:    topLong,
		Example: topExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if hot < 0 || hot > api.HotTabletsMax {
				return cli.Usagef("", "--hot is %d, want 0 to %d", hot, api.HotTabletsMax)
			}
			if views < 0 {
				return cli.Usagef("omit it to show views until Ctrl-C", "--count is %d, want at least 0", views)
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return top(ctx, a, c, every, views, hot)
			})
		},
	}
	cmd.Flags().Var((*cli.DurationFlag)(&every), "interval", "time between two views")
	cmd.Flags().IntVar(&hot, "hot", hot, "also show this number of tablets, the hottest first")
	cmd.Flags().IntVar(&views, "count", views, "end after this number of views; 0 means never")
	return cmd
}

// topJSON is the --json form of a node's line. A time of nil means that there were no such requests.
type topJSON struct {
	Node       string   `json:"node"`
	ID         string   `json:"id"`
	State      string   `json:"state"`
	Reads      float64  `json:"reads_per_s"`
	Scans      float64  `json:"scans_per_s"`
	Commits    float64  `json:"commits_per_s"`
	Waits      float64  `json:"waits_per_s"`
	Errors     float64  `json:"errors_per_s"` // of the last quarter of a minute
	ReadP99MS  *float64 `json:"read_p99_ms"`
	WriteP99MS *float64 `json:"write_p99_ms"`
	LogP99MS   *float64 `json:"log_p99_ms"` // of its log replicas, as all nodes saw them
	Tablets    int64    `json:"tablets"`
	Memtables  int64    `json:"memtable_bytes"`
	Cache      int64    `json:"cache_bytes"`
	Error      string   `json:"error,omitempty"` // why the node's figures are missing
}

// nodeView is what a node answered.
type nodeView struct {
	info     *client.NodeInfo
	at       time.Time
	status   *client.Status
	activity *client.Activity
	err      error
}

// top shows views of the nodes.
func top(ctx context.Context, a *cli.App, c *client.Client, every time.Duration, views, hot int) error {
	last, err := askNodes(ctx, c)
	if err != nil {
		return err
	}
	if err := sleepFirst(ctx); err != nil {
		return nil
	}
	return watch(ctx, a, every, views, func() error {
		now, err := askNodes(ctx, c)
		if err != nil {
			return err
		}
		lines := topLines(last, now)
		last = now
		if err := printTop(a, lines); err != nil || hot == 0 {
			return err
		}
		return topTablets(ctx, a, c, hot)
	})
}

// topTablets shows the hottest tablets.
func topTablets(ctx context.Context, a *cli.App, c *client.Client, most int) error {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	l, err := c.Tables().Hot(ctx, &client.HotTabletsRequest{Since: time.Minute, Most: most})
	if err != nil {
		return err
	}
	return printHot(a, l)
}

// sleepFirst waits until rates can be computed.
func sleepFirst(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askNodes asks all nodes that are alive.
func askNodes(ctx context.Context, c *client.Client) (map[string]*nodeView, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	views := map[string]*nodeView{}
	var requests sync.WaitGroup
	for i := range nodes {
		v := &nodeView{info: &nodes[i]}
		views[nodes[i].ID] = v
		if v.info.State != api.NodeAlive {
			continue
		}
		requests.Go(func() {
			if v.status, v.err = c.Nodes().Status(ctx, v.info.RPC); v.err == nil {
				v.activity, v.err = c.Nodes().Activity(ctx, v.info.RPC)
			}
			v.at = time.Now()
		})
	}
	requests.Wait()
	return views, nil
}

// topLines returns the lines of all nodes, by name.
func topLines(last, now map[string]*nodeView) (lines []topJSON) {
	var seen [][]client.ReplicaTimes
	for _, v := range now {
		if v.activity != nil {
			seen = append(seen, v.activity.LogReplicas)
		}
	}
	p99 := health.LogP99(seen...)
	for id, v := range now {
		l := topLine(last[id], v)
		if us, ok := p99[id]; ok {
			l.LogP99MS = lastMS([]int64{us})
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(x, y topJSON) int { return strings.Compare(x.Node+x.ID, y.Node+y.ID) })
	return lines
}

// topLine returns the line of a node. Without an earlier view, or after a restart, its rates are 0.
func topLine(last, now *nodeView) topJSON {
	l := topJSON{Node: health.NameOf(now.info), ID: now.info.ID, State: now.info.State}
	if now.err != nil {
		l.Error = now.err.Error()
	}
	if now.err != nil || now.status == nil {
		return l
	}
	s := now.status
	l.Tablets, l.Memtables, l.Cache = s.Tablets, s.MemtableBytes, s.CacheBytes
	l.Errors = errorRate(now.activity)
	l.ReadP99MS, l.WriteP99MS = lastMS(now.activity.ReadP99US), lastMS(now.activity.WriteP99US)
	if last == nil || last.status == nil || last.status.Uptime > s.Uptime {
		return l
	}
	seconds := now.at.Sub(last.at).Seconds()
	rate := func(now, last int64) float64 { return max(0, float64(now-last)/seconds) }
	l.Reads, l.Scans, l.Commits = rate(s.Reads, last.status.Reads), rate(s.Scans, last.status.Scans), rate(s.Commits, last.status.Commits)
	l.Waits = rate(s.Stalls+s.Overloads, last.status.Stalls+last.status.Overloads)
	return l
}

// errorRate returns the failed requests a second of the last interval.
func errorRate(a *client.Activity) float64 {
	if len(a.Errors) == 0 || a.IntervalMS == 0 {
		return 0
	}
	return 1000 * float64(a.Errors[len(a.Errors)-1]) / float64(a.IntervalMS)
}

// lastMS returns the last of some times in µs, in ms; nil if there is none.
func lastMS(us []int64) *float64 {
	if len(us) == 0 || us[len(us)-1] < 0 {
		return nil
	}
	ms := float64(us[len(us)-1]) / 1000
	return &ms
}

// printTop prints a view.
func printTop(a *cli.App, lines []topJSON) error {
	if a.JSON {
		for i := range lines {
			if err := a.PrintJSON(lines[i]); err != nil {
				return err
			}
		}
		return nil
	}
	g := cli.NewGrid("NODE", "STATE", "ROWS READ/S", "SCANS/S", "COMMITS/S", "P99 READ", "P99 WRITE", "P99 LOG", "WAITS/S", "ERRORS/S", "TABLETS", "MEMTABLES", "CACHES")
	var sum topJSON
	for i := range lines {
		l := &lines[i]
		addTop(g, l)
		sum.Reads, sum.Scans, sum.Commits, sum.Waits = sum.Reads+l.Reads, sum.Scans+l.Scans, sum.Commits+l.Commits, sum.Waits+l.Waits
		sum.Errors += l.Errors
		sum.Tablets, sum.Memtables, sum.Cache = sum.Tablets+l.Tablets, sum.Memtables+l.Memtables, sum.Cache+l.Cache
		sum.ReadP99MS, sum.WriteP99MS = slower(sum.ReadP99MS, l.ReadP99MS), slower(sum.WriteP99MS, l.WriteP99MS)
		sum.LogP99MS = slower(sum.LogP99MS, l.LogP99MS)
	}
	if len(lines) > 1 {
		sum.Node = "all"
		addTop(g, &sum)
	}
	return a.Print(g)
}

func addTop(g *cli.Grid, l *topJSON) {
	if l.Error != "" || l.State != api.NodeAlive && l.State != "" {
		state := l.State
		if l.Error != "" {
			state = "no answer"
		}
		none := cli.Number("?")
		g.Add(l.Node, state, none, none, none, none, none, msText(l.LogP99MS), none, none, none, none, none)
		return
	}
	rate := func(r float64) cli.Number { return cli.Count(int64(r + 0.5)) }
	g.Add(l.Node, l.State, rate(l.Reads), rate(l.Scans), rate(l.Commits), msText(l.ReadP99MS), msText(l.WriteP99MS), msText(l.LogP99MS), rate(l.Waits), rate(l.Errors), cli.Count(l.Tablets), cli.Size(l.Memtables), cli.Size(l.Cache))
}

func slower(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// usText returns a time in µs.
func usText(us *int64) cli.Number {
	if us == nil {
		return "-"
	}
	return msText(lastMS([]int64{*us}))
}

func msText(ms *float64) cli.Number {
	if ms == nil {
		return "-"
	}
	return cli.Number(text.Millis(*ms))
}
