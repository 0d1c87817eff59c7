package bench

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/bench"
	"github.com/steledb/stele/internal/bench/report"
	"github.com/steledb/stele/node"
)

// newReport returns a report without runs.
func (f *benchFlags) newReport(cfg *bench.Config) *report.Report {
	return &report.Report{
		Format: report.Format, Version: report.Version, Time: time.Now().UTC().Truncate(time.Second),
		Program: report.Program{Version: node.Version(), Commit: cli.Commit(), Go: runtime.Version()},
		Machine: report.ThisMachine(),
		Settings: report.Settings{
			Batch: cfg.Batch, ValueBytes: cfg.ValueBytes, Rate: cfg.Rate, ReadSeconds: cfg.ReadTimeMin.Seconds(), Family: cfg.Options, Major: cfg.Major, Warm: cfg.Warm,
			Connections: f.connections, Memory: f.memory,
		},
		Runs: []report.Run{},
	}
}

// measuredCluster describes the nodes that are alive.
func measuredCluster(nodes []client.NodeInfo, local bool) report.Cluster {
	c := report.Cluster{Local: local}
	for i := range nodes {
		if n := &nodes[i]; n.State == api.NodeAlive {
			c.Nodes++
			if !slices.Contains(c.Versions, n.Version) {
				c.Versions = append(c.Versions, n.Version)
			}
		}
	}
	return c
}

func writeReport(r *report.Report, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.Write(file), file.Close())
}

func tableCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "table REPORT...",
		Short: "Print reports as a Markdown table",
		Long: `Print reports of "stele bench --report" as one Markdown table: a line for each workload,
a column for each run, with rows or operations per second, p50 and p99.`,
		Example: `  stele bench --local --workloads random-write --rows 200k,1M --report rows.json
  stele bench table rows.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := openReports(args)
			if err != nil {
				return err
			}
			return report.WriteMarkdown(a.Out, reports...)
		},
	}
}

func openReports(paths []string) (reports []*report.Report, err error) {
	for _, path := range paths {
		r, err := report.Open(path)
		if errors.Is(err, report.ErrNoReport) {
			return nil, cli.Usagef("", "%w", err)
		}
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}
