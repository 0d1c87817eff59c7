package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/bench"
	"github.com/steledb/stele/internal/bench/report"
)

// printBench prints the results: the paper's workloads next to the paper's figures, then YCSB's by
// kind of operation.
func printBench(a *cli.App, r *report.Report) error {
	if a.JSON {
		return a.PrintJSON(r)
	}
	paper, ycsb := benchGrid(r), ycsbGrid(r)
	if err := a.Print(paper); err != nil {
		return err
	}
	if !paper.IsEmpty() && !ycsb.IsEmpty() {
		fmt.Fprintln(a.Out)
	}
	return a.Print(ycsb)
}

// A benchColumn is a column of a grid; cell returns its content for a run and a result.
type benchColumn struct {
	header string
	cell   func(run *report.Run, v *report.Result) any
}

// runColumns returns a column for each parameter in which the runs of a report differ.
func runColumns(r *report.Report) (columns []benchColumn) {
	for _, c := range []struct {
		header string
		of     func(*report.Run) int64
	}{
		{"ROWS", func(r *report.Run) int64 { return r.Rows }},
		{"TABLETS", func(r *report.Run) int64 { return int64(r.Tablets) }},
		{"CLIENTS", func(r *report.Run) int64 { return int64(r.Clients) }},
	} {
		if slices.ContainsFunc(r.Runs, func(run report.Run) bool { return c.of(&run) != c.of(&r.Runs[0]) }) {
			columns = append(columns, benchColumn{c.header, func(run *report.Run, _ *report.Result) any { return cli.Count(c.of(run)) }})
		}
	}
	return columns
}

// usageColumns returns the columns with the CPU time of client and nodes per operation. If the
// number of clients varies, they include the commits per append and the append time of the nodes'
// commit logs.
func usageColumns(r *report.Report, of string) []benchColumn {
	columns := []benchColumn{{"CLIENT CPU/" + of, func(_ *report.Run, v *report.Result) any { return processorTime(&v.Client) }}}
	known, logs := false, false
	for i := range r.Runs {
		for _, v := range r.Runs[i].Results {
			known = known || v.Nodes != nil
			logs = logs || v.Nodes != nil && v.Nodes.LogCommits > 0 && r.Runs[i].Clients != r.Runs[0].Clients
		}
	}
	if known {
		columns = append(columns, benchColumn{"NODE CPU/" + of, func(_ *report.Run, v *report.Result) any { return processorTime(v.Nodes) }})
	}
	if logs {
		columns = append(columns,
			benchColumn{"COMMITS/APPEND", func(_ *report.Run, v *report.Result) any {
				if v.Nodes == nil || v.Nodes.LogCommits == 0 {
					return cli.Number("")
				}
				return cli.Number(fmt.Sprintf("%.1f", v.Nodes.LogCommits))
			}},
			benchColumn{"LOG APPEND", func(_ *report.Run, v *report.Result) any {
				if v.Nodes == nil || v.Nodes.LogCommits == 0 {
					return cli.Number("")
				}
				return cli.Number(formatMicros(v.Nodes.LogAppend))
			}})
	}
	return columns
}

func processorTime(u *report.Usage) any {
	if u == nil {
		return cli.Number("")
	}
	return cli.Number(fmt.Sprintf("%.1f µs", u.CPU))
}

// columnsGrid returns an empty grid with these columns.
func columnsGrid(columns []benchColumn) *cli.Grid {
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = c.header
	}
	return cli.NewGrid(header...)
}

// addResult adds a row with the cells of columns.
func addResult(g *cli.Grid, columns []benchColumn, run *report.Run, v *report.Result) {
	cells := make([]any, len(columns))
	for i, c := range columns {
		cells[i] = c.cell(run, v)
	}
	g.Add(cells...)
}

// benchGrid returns the grid of the paper's workloads.
func benchGrid(r *report.Report) *cli.Grid {
	columns := []benchColumn{{"WORKLOAD", func(_ *report.Run, v *report.Result) any { return string(v.Workload) }}}
	columns = append(columns, runColumns(r)...)
	columns = append(columns, []benchColumn{
		{"ROWS/S", func(_ *report.Run, v *report.Result) any { return cli.Count(int64(v.OpsPerS)) }},
		{"P50", func(_ *report.Run, v *report.Result) any { return cli.Number(formatMicros(v.P50)) }},
		{"P99", func(_ *report.Run, v *report.Result) any { return cli.Number(formatMicros(v.P99)) }},
		{"PAPER", func(_ *report.Run, v *report.Result) any { return cli.Count(int64(v.Paper)) }},
		{"RATIO", func(_ *report.Run, v *report.Result) any { return cli.Number(fmt.Sprintf("%.1f×", v.Ratio)) }},
		{"BAD", func(_ *report.Run, v *report.Result) any { return cli.Count(v.Bad) }},
	}...)
	columns = append(columns, usageColumns(r, "ROW")...)
	g := columnsGrid(columns)
	for _, w := range bench.PaperWorkloads() {
		for i := range r.Runs {
			for j := range r.Runs[i].Results {
				if v := &r.Runs[i].Results[j]; v.Workload == w {
					addResult(g, columns, &r.Runs[i], v)
				}
			}
		}
	}
	return g
}

// ycsbGrid returns the grid of YCSB's workloads, each followed by its kinds of operations.
func ycsbGrid(r *report.Report) *cli.Grid {
	kind := "" // of the next line; empty for all kinds together
	columns := []benchColumn{
		{"WORKLOAD", func(_ *report.Run, v *report.Result) any { return string(v.Workload) }},
		{"OPERATION", func(*report.Run, *report.Result) any { return cli.OrElse(kind, "all") }},
	}
	columns = append(columns, runColumns(r)...)
	columns = append(columns, []benchColumn{
		{"OPS/S", func(_ *report.Run, v *report.Result) any { return cli.Count(int64(float64(v.Ops) / v.Seconds)) }},
		{"P50", func(_ *report.Run, v *report.Result) any { return cli.Number(formatMicros(v.P50)) }},
		{"P99", func(_ *report.Run, v *report.Result) any { return cli.Number(formatMicros(v.P99)) }},
		{"BAD", func(_ *report.Run, v *report.Result) any { return cli.Count(v.Bad) }},
	}...)
	for _, c := range usageColumns(r, "OP") {
		of := c.cell
		c.cell = func(run *report.Run, v *report.Result) any {
			if kind != "" { // usage is not measured by kind
				return cli.Number("")
			}
			return of(run, v)
		}
		columns = append(columns, c)
	}
	g := columnsGrid(columns)
	for _, w := range bench.YCSBWorkloads() {
		for i := range r.Runs {
			for j := range r.Runs[i].Results {
				v := &r.Runs[i].Results[j]
				if v.Workload != w {
					continue
				}
				kind = ""
				addResult(g, columns, &r.Runs[i], v)
				for _, k := range v.Kinds {
					if len(v.Kinds) > 1 {
						kind = k.Name
						addResult(g, columns, &r.Runs[i], &report.Result{Workload: w, Ops: k.Ops, Bad: k.Bad, Seconds: v.Seconds, Latency: k.Latency})
					}
				}
			}
		}
	}
	return g
}

func formatMicros(us float64) string {
	return formatLatency(time.Duration(us * float64(time.Microsecond)))
}

// formatLatency formats d with about three digits.
func formatLatency(d time.Duration) string {
	us := float64(d) / float64(time.Microsecond)
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", us)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", us)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", us/1000)
	}
	return fmt.Sprintf("%.0f ms", us/1000)
}
