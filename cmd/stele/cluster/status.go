package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

const statusLong = `Show whether the node serves requests, the nodes of its cluster, and its own figures.

The first line begins with healthy, degraded (the node serves, and something needs
repair or attention) or unhealthy (the node does not serve). The next lines list
problems, such as unassigned tablets, nodes that are down, with what to do about them,
and tables whose quota of bytes is exhausted. Tablets that have not been served for 5
seconds are counted; the first of them are listed, each with the error of the last
attempt to load it.

TABLETS are the tablets that METADATA places on a node, REPLICAS the bytes of replicas
that it holds, UNDER the under-replicated extents that it has to repair. P99 LOG is
the 99th percentile of the times in which its log replicas made appends durable, as
the commit logs of all nodes saw it in the last quarter of a minute: writes wait for
the slowest. Values that do not arrive within 5 seconds, or are being counted after a
node has joined or left, are shown as ? and listed as unknown.

Exit codes: 0 the node serves; 5 it answers but does not serve, or tablets of the
cluster are not served; 3 it cannot be reached; 7 it did not answer in time. With
--strict the exit code for degraded is 5, too.`

const statusExample = `  stele status
  stele status --addr 10.0.0.5:7106 --timeout 3s
  stele status --watch
  stele status --strict && ./upgrade-next-host
  stele status --json | jq -r .state`

func statusCommand(a *cli.App) *cobra.Command {
	strict, watched, every := false, false, 2*time.Second
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the state of the cluster and of a node",
		Long:    statusLong,
		Example: statusExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !watched && cmd.Flags().Changed("interval") {
				return cli.Usagef("add --watch", "--interval is the time between two views of --watch")
			}
			if !watched {
				return a.Diagnose(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
					return showStatus(ctx, a, c, strict)
				})
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return watch(ctx, a, every, 0, func() error {
					if err := showStatus(ctx, a, c, false); err != nil && !cli.IsSilentExit(err) {
						return err
					}
					return nil // it is not healthy, which is what is watched
				})
			})
		},
	}
	cmd.Flags().BoolVar(&watched, "watch", false, "show it again and again, until Ctrl-C or while the node cannot be reached")
	cmd.Flags().Var((*cli.DurationFlag)(&every), "interval", "time between two views of --watch")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 5 unless the state is healthy")
	return cmd
}

// showStatus prints the status. It returns ExitUnhealthy if the node is not ready, tablets are unserved, or, if
// strict, the state is not healthy.
func showStatus(ctx context.Context, a *cli.App, c *client.Client, strict bool) error {
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	whole := health.Of(ctx, c)
	if err := printStatus(a, s, whole); err != nil {
		return err
	}
	if whole.NotServed() > 0 {
		a.Hint(unservedHint)
	}
	state, _ := health.State(s, whole)
	if s.Ready && whole.NotServed() == 0 && (!strict || state == health.Healthy) {
		return nil
	}
	return cli.SilentExit(cli.ExitUnhealthy)
}

// statusJSON is the --json form of the status, with the field names of the data API. Unlike in
// client.Status, times are in seconds and an unknown number is nil, and the fields are in another order.
type statusJSON struct {
	State              string              `json:"state,omitempty"` // healthy, degraded or unhealthy; empty in a status without the cluster's state
	Ready              bool                `json:"ready"`
	Reason             string              `json:"reason,omitempty"`
	Node               string              `json:"node"`
	NodeID             string              `json:"node_id"`
	Cluster            string              `json:"cluster"`
	Version            string              `json:"version"`
	UptimeS            float64             `json:"uptime_s"`
	Voter              bool                `json:"voter"`
	Leader             bool                `json:"leader"`
	Master             bool                `json:"master"`
	Nodes              int64               `json:"nodes"`
	NodesAlive         int64               `json:"nodes_alive"`
	Tables             int64               `json:"tables"`
	Tablets            int64               `json:"tablets"`
	MemtableBytes      int64               `json:"memtable_bytes"`
	MemtableBytesMax   int64               `json:"memtable_bytes_max"`
	CacheBytes         int64               `json:"cache_bytes"`
	CacheHits          int64               `json:"cache_hits"`
	CacheMisses        int64               `json:"cache_misses"`
	ScanCacheHits      int64               `json:"scan_cache_hits"`
	ScanCacheMisses    int64               `json:"scan_cache_misses"`
	OpenFileBytes      int64               `json:"open_file_bytes"`
	PinnedBytes        int64               `json:"pinned_bytes"`
	UnpinnedBytes      int64               `json:"unpinned_bytes"`
	LogBytes           int64               `json:"log_bytes"`
	Replicas           int64               `json:"replicas"`
	LogReplicas        int64               `json:"log_replicas"`
	UnderReplicated    *int64              `json:"under_replicated"` // nil while extents are being counted
	Reads              int64               `json:"reads"`
	Scans              int64               `json:"scans"`
	Commits            int64               `json:"commits"`
	Stalls             int64               `json:"stalls"`
	Overloads          int64               `json:"overloads"`
	MinorCompactions   int64               `json:"minor_compactions"`
	MergingCompactions int64               `json:"merging_compactions"`
	MajorCompactions   int64               `json:"major_compactions"`
	Disks              []client.DiskStatus `json:"disks"`

	Whole *clusterJSON `json:"whole"`
}

func statusOf(s *client.Status) statusJSON {
	j := statusJSON{
		Ready: s.Ready, Reason: s.Reason, Node: s.Node, NodeID: s.NodeID, Cluster: s.Cluster, Version: s.Version, UptimeS: s.Uptime.Seconds(),
		Voter: s.Voter, Leader: s.Leader, Master: s.Master, Nodes: s.Nodes, NodesAlive: s.NodesAlive,
		Tables: s.Tables, Tablets: s.Tablets, MemtableBytes: s.MemtableBytes, MemtableBytesMax: s.MemtableBytesMax,
		CacheBytes: s.CacheBytes, CacheHits: s.CacheHits, CacheMisses: s.CacheMisses, LogBytes: s.LogBytes,
		ScanCacheHits: s.ScanCacheHits, ScanCacheMisses: s.ScanCacheMisses, OpenFileBytes: s.OpenFileBytes, PinnedBytes: s.PinnedBytes, UnpinnedBytes: s.UnpinnedBytes,
		Replicas: s.Replicas, LogReplicas: s.LogReplicas,
		Reads: s.Reads, Scans: s.Scans, Commits: s.Commits, Stalls: s.Stalls, Overloads: s.Overloads,
		MinorCompactions: s.MinorCompactions, MergingCompactions: s.MergingCompactions, MajorCompactions: s.MajorCompactions,
		Disks: s.Disks,
	}
	if !s.Counting {
		j.UnderReplicated = &s.UnderReplicated
	}
	return j
}

func printStatus(a *cli.App, s *client.Status, whole *health.Cluster) error {
	if a.JSON {
		j := statusOf(s)
		j.Whole = jsonOf(whole)
		j.State, _ = health.State(s, whole)
		return a.PrintJSON(j)
	}
	fmt.Fprintf(a.Out, "%s\n", statusSentence(a, s, whole))
	for _, t := range whole.Problems() {
		fmt.Fprintf(a.Out, "%s\n", cli.EscapeLines(t))
	}
	for _, h := range whole.Hidden {
		fmt.Fprintf(a.Out, "not shown: %s\n", h)
	}
	fmt.Fprintln(a.Out)
	figures := cli.NewGrid("FIGURE", "VALUE")
	figures.Add("node", named(s.Node, s.NodeID))
	figures.Add("role", strings.ReplaceAll(health.Role(&client.NodeInfo{Voter: s.Voter, Leader: s.Leader, Master: s.Master}), ",", ", "))
	figures.Add("cluster", s.Cluster+ofNodes(s))
	figures.Add("version", s.Version)
	figures.Add("up", text.Uptime(s.Uptime))
	figures.Add("memtables", cli.FormatSize(s.MemtableBytes)+" of "+cli.FormatSize(s.MemtableBytesMax))
	figures.Add("caches", cli.FormatSize(s.CacheBytes))
	figures.Add("block cache", hitRate(s.CacheHits, s.CacheMisses))
	figures.Add("scan cache", hitRate(s.ScanCacheHits, s.ScanCacheMisses))
	figures.Add("in-memory groups", cli.FormatSize(s.PinnedBytes)+unpinnedText(s))
	figures.Add("indexes and filters", cli.FormatSize(s.OpenFileBytes))
	figures.Add("commit log to replay", cli.FormatSize(s.LogBytes))
	figures.Add("commit log replicas", fmt.Sprintf("%d of %d", s.LogReplicas, s.Replicas))
	under := "?"
	if !s.Counting {
		under = cli.FormatCount(s.UnderReplicated)
	}
	figures.Add("under-replicated extents", under)
	figures.Add("reads", text.Plural(s.Reads, "row")+" by key, "+cli.FormatCount(s.Scans)+" batches of scans")
	figures.Add("writes", fmt.Sprintf("%s commits, %s stalled, %s rejected", cli.FormatCount(s.Commits), cli.FormatCount(s.Stalls), cli.FormatCount(s.Overloads)))
	figures.Add("compactions", fmt.Sprintf("%s minor, %s merging, %s major", cli.FormatCount(s.MinorCompactions), cli.FormatCount(s.MergingCompactions), cli.FormatCount(s.MajorCompactions)))
	if whole.Space != nil {
		figures.Add("disks of the cluster", diskText(whole.Space))
	}
	disks := cli.NewGrid("STATE", "USED", "FREE", "OF", "DATA FOLDER")
	for _, d := range s.Disks {
		state := "ok"
		if d.Retired {
			state = "failed"
		}
		disks.Add(state, cli.Size(d.UsedBytes), cli.Size(d.FreeBytes), cli.Size(d.TotalBytes), d.Path)
	}
	return a.PrintAll(gridOf(whole), figures, disks)
}

func diskText(x *health.Space) string {
	t := cli.FormatSize(x.Free) + " free of " + cli.FormatSize(x.Total)
	if f := x.Forecast(); f != "" {
		t += "; " + f
	}
	return t
}

// stateStyles are the colours of the states.
var stateStyles = map[string]cli.Style{health.Healthy: cli.StyleGood, health.Degraded: cli.StyleHint, health.Unhealthy: cli.StyleError}

// statusSentence returns the first line of a status.
func statusSentence(a *cli.App, s *client.Status, whole *health.Cluster) string {
	state, rest := health.State(s, whole)
	return a.Paint(a.OutTTY, stateStyles[state], state) + cli.EscapeText(rest)
}

// ofNodes returns ", N nodes"; empty if the number is unknown.
func ofNodes(s *client.Status) string {
	if s.Nodes == 0 {
		return ""
	}
	return ", " + cli.Plural(s.Nodes, "node")
}

// unpinnedText returns the size of in-memory groups that do not fit into memory; empty if all do.
func unpinnedText(s *client.Status) string {
	if s.UnpinnedBytes == 0 {
		return ""
	}
	return fmt.Sprintf("; %s more do not fit: increase the setting memory", cli.FormatSize(s.UnpinnedBytes))
}

func hitRate(hits, misses int64) string {
	if hits+misses == 0 {
		return "no requests yet"
	}
	return fmt.Sprintf("%.1f%% hits", 100*float64(hits)/float64(hits+misses))
}
