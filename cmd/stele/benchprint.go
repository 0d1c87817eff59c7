package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/bench"
)

// benchJSON is a result as --json prints it, in an array.
type benchJSON struct {
	Workload   bench.Workload `json:"workload"`
	OpsPerS    float64        `json:"ops_per_s"`
	P50        float64        `json:"p50_us"`
	P99        float64        `json:"p99_us"`
	P999       float64        `json:"p999_us"`
	Max        float64        `json:"max_us"`
	Ops        int64          `json:"ops"`
	Bad        int64          `json:"bad"`
	Seconds    float64        `json:"seconds"`
	Rows       int64          `json:"rows"`
	Clients    int            `json:"clients"`
	Batch      int            `json:"batch"`
	ValueBytes int            `json:"value_bytes"`
	Paper      float64        `json:"paper_ops_per_s"`
	Ratio      float64        `json:"paper_ratio"`
	ClientCPU  float64        `json:"client_cpu_us_per_op"`
	NodeCPU    float64        `json:"node_cpu_us_per_op,omitempty"`
}

func inMicros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// perOp is processor time in microseconds an operation.
func perOp(d time.Duration, r *bench.Result) float64 { return inMicros(d) / float64(max(r.Ops, 1)) }

// printBench prints results in the order of the paper's table.
func (a *app) printBench(cfg *bench.Config, results []bench.Result) error {
	order := bench.Workloads()
	slices.SortFunc(results, func(x, y bench.Result) int {
		return slices.Index(order, x.Workload) - slices.Index(order, y.Workload)
	})
	if a.json {
		all := []benchJSON{}
		for i := range results {
			r := &results[i]
			batch := cfg.Batch
			if r.Workload == bench.Scan {
				batch = 0
			}
			all = append(all, benchJSON{
				Workload: r.Workload, OpsPerS: r.PerSecond, P50: inMicros(r.P50), P99: inMicros(r.P99), P999: inMicros(r.P999), Max: inMicros(r.Max),
				Ops: r.Ops, Bad: r.Bad, Seconds: r.Took.Seconds(), Rows: r.Rows, Clients: cfg.Clients, Batch: batch, ValueBytes: cfg.ValueBytes,
				Paper: r.Workload.Paper(), Ratio: r.PaperRatio, ClientCPU: perOp(r.ClientCPU, r), NodeCPU: perOp(r.NodeCPU, r),
			})
		}
		return a.printJSON(all)
	}
	if len(results) == 0 {
		return nil
	}
	header := []string{"WORKLOAD", "ROWS/S", "P50", "P99", "PAPER", "RATIO", "BAD", "CLIENT CPU/ROW"}
	local := slices.ContainsFunc(results, func(r bench.Result) bool { return r.NodeCPU > 0 })
	if local {
		header = append(header, "NODE CPU/ROW")
	}
	g := newGrid(header...)
	for i := range results {
		r := &results[i]
		cells := []any{
			string(r.Workload), count(int64(r.PerSecond)), number(formatLatency(r.P50)), number(formatLatency(r.P99)), count(int64(r.Workload.Paper())),
			number(fmt.Sprintf("%.1f×", r.PaperRatio)), count(r.Bad), number(fmt.Sprintf("%.1f µs", perOp(r.ClientCPU, r))),
		}
		if local {
			cells = append(cells, number(fmt.Sprintf("%.1f µs", perOp(r.NodeCPU, r))))
		}
		g.add(cells...)
	}
	return a.print(g)
}

// formatLatency returns d at about three digits.
func formatLatency(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", inMicros(d))
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", inMicros(d))
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", inMicros(d)/1000)
	}
	return fmt.Sprintf("%.0f ms", inMicros(d)/1000)
}
