package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/steledb/stele/internal/bench"
)

// WriteMarkdown writes reports as one table, with a line for each workload or kind of operation,
// and a column for each run. Cells have the rate, and the p50 and p99 of latency. The columns of
// several reports follow each other.
func WriteMarkdown(w io.Writer, reports ...*Report) error {
	t := markdown{cells: map[string]map[int]string{}}
	for _, r := range reports {
		for i := range r.Runs {
			t.add(r, &r.Runs[i], nameAmong(r, reports))
		}
	}
	var b strings.Builder
	b.WriteString("| per second, p50 / p99 |")
	for _, c := range t.columns {
		b.WriteString(" " + c + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(t.columns)) + "\n")
	slices.SortStableFunc(t.lines, func(x, y line) int { return x.order - y.order })
	for _, l := range t.lines {
		b.WriteString("| " + l.name + " |")
		for i := range t.columns {
			b.WriteString(" " + t.cells[l.name][i] + " |")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type markdown struct {
	columns []string
	lines   []line
	cells   map[string]map[int]string // by line and column
}

type line struct {
	name  string
	order int // of the workload
}

// nameAmong returns a name that distinguishes r from the other reports: its number of nodes if that
// is unique, otherwise its Name. It is empty if there is only one report.
func nameAmong(r *Report, reports []*Report) string {
	if len(reports) == 1 {
		return ""
	}
	nodes := map[int]bool{}
	for _, other := range reports {
		nodes[other.Cluster.Nodes] = true
	}
	if len(nodes) < len(reports) {
		return r.Name()
	}
	if r.Cluster.Nodes == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", r.Cluster.Nodes)
}

// add adds the column of a run. report is the name of its report.
func (t *markdown) add(r *Report, run *Run, report string) {
	name := strings.TrimSuffix(strings.TrimPrefix(report+": "+run.label(r.varying()), ": "), ": ")
	if name == "" {
		name = "figures"
	}
	t.columns = append(t.columns, name)
	for i := range run.Results {
		v := &run.Results[i]
		order := slices.Index(bench.Workloads(), v.Workload)
		cell := grouped(v.OpsPerS)
		mixed := len(v.Kinds) > 1
		if v.Workload != bench.Scan && !mixed { // the latency of a scan is that of a thousand rows
			cell += ", " + latencies(v.Latency)
		}
		t.set(string(v.Workload), order, cell+badText(v.Bad))
		for _, k := range v.Kinds {
			if !mixed {
				break
			}
			t.set(string(v.Workload)+" "+k.Name, order, fmt.Sprintf("%s, %s", grouped(float64(k.Ops)/v.Seconds), latencies(k.Latency)))
		}
	}
}

func (t *markdown) set(name string, order int, cell string) {
	if t.cells[name] == nil {
		t.cells[name] = map[int]string{}
		t.lines = append(t.lines, line{name, order})
	}
	t.cells[name][len(t.columns)-1] = cell
}

func latencies(l Latency) string { return latency(l.P50) + " / " + latency(l.P99) }

func badText(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", **%d bad**", n)
}

// Name identifies the report: the program's version and the time of the measurement.
func (r *Report) Name() string {
	return strings.TrimSpace(r.Program.Version + " " + r.Time.UTC().Format("2006-01-02 15:04"))
}
