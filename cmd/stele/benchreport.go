package main

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/bench"
	"github.com/steledb/stele/internal/bench/report"
	"github.com/steledb/stele/node"
)

// newReport begins the report of a measurement.
func (f *benchFlags) newReport(cfg *bench.Config) *report.Report {
	return &report.Report{
		Format: report.Format, Version: report.Version, Time: time.Now().UTC().Truncate(time.Second),
		Program: report.Program{Version: node.Version(), Commit: commit(), Go: runtime.Version()},
		Machine: report.ThisMachine(),
		Settings: report.Settings{
			Batch: cfg.Batch, ValueBytes: cfg.ValueBytes, Rate: cfg.Rate, Family: cfg.Options, Major: cfg.Major,
			Connections: f.connections, Memory: f.memory,
		},
		Runs: []report.Run{},
	}
}

// measuredCluster describes nodes that are alive.
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
