package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/steledb/stele/internal/bench"
)

// The identification of a file.
const (
	Format  = "stele-bench"
	Version = 1
)

// A Report is a measurement.
type Report struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Time     time.Time `json:"time"`
	Program  Program   `json:"program"`
	Machine  Machine   `json:"machine"`
	Cluster  Cluster   `json:"cluster"`
	Settings Settings  `json:"settings"`
	Runs     []Run     `json:"runs"`
}

// Program is the measuring program.
type Program struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Cluster is the measured cluster.
type Cluster struct {
	Nodes    int      `json:"nodes"`
	Local    bool     `json:"local,omitempty"`
	Versions []string `json:"versions,omitempty"`
}

// Settings are common to all runs.
type Settings struct {
	Batch       int     `json:"batch"`
	ValueBytes  int     `json:"value_bytes"`
	Rate        float64 `json:"rate,omitempty"`
	ReadSeconds float64 `json:"read_s,omitempty"` // minimum duration of read workloads; 0 means 3
	Family      string  `json:"family,omitempty"`
	Major       bool    `json:"major,omitempty"`
	Warm        bool    `json:"warm,omitempty"` // all rows were read before read workloads, except YCSB's
	Connections int     `json:"connections"`
	Memory      string  `json:"memory,omitempty"`
}

// A Run is a combination of settings and its results.
type Run struct {
	Rows       int64    `json:"rows"`
	Operations int64    `json:"operations"`
	Tablets    int      `json:"tablets"`
	Clients    int      `json:"clients"`
	Results    []Result `json:"results"`
}

// A Result is the result of a workload.
type Result struct {
	Workload bench.Workload `json:"workload"`
	Rows     int64          `json:"rows"`
	Ops      int64          `json:"ops"`
	Bad      int64          `json:"bad"`
	Seconds  float64        `json:"seconds"`
	OpsPerS  float64        `json:"ops_per_s"`
	Latency
	Kinds  []Kind  `json:"kinds,omitempty"`
	Client Usage   `json:"client"`
	Nodes  *Usage  `json:"nodes,omitempty"`
	Paper  float64 `json:"paper_ops_per_s,omitempty"`
	Ratio  float64 `json:"paper_ratio,omitempty"`
}

// Latency is in microseconds.
type Latency struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

// A Kind is the result of one kind of operation.
type Kind struct {
	Name string `json:"name"`
	Ops  int64  `json:"ops"`
	Bad  int64  `json:"bad"`
	Latency
}

// Usage is per operation.
type Usage struct {
	CPU        float64 `json:"cpu_us"`
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"alloc_bytes"`

	LogCommits float64 `json:"log_commits_per_append,omitempty"`
	LogAppend  float64 `json:"log_append_us,omitempty"`
}

// Sort sorts the results in the order of bench.Workloads.
func (r *Run) Sort() {
	order := bench.Workloads()
	slices.SortFunc(r.Results, func(x, y Result) int { return slices.Index(order, x.Workload) - slices.Index(order, y.Workload) })
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func latencyOf(l bench.Latency) Latency {
	return Latency{micros(l.P50), micros(l.P99), micros(l.P999), micros(l.Max)}
}

func usageOf(u bench.Usage, ops int64) Usage {
	n := float64(max(ops, 1))
	r := Usage{CPU: micros(u.CPU) / n, Allocs: float64(u.Allocs) / n, AllocBytes: float64(u.AllocBytes) / n}
	if u.LogAppends > 0 {
		r.LogCommits, r.LogAppend = float64(u.LogCommits)/float64(u.LogAppends), micros(u.LogAppendTime)/float64(u.LogAppends)
	}
	return r
}

// ResultOf converts r to its form in a report.
func ResultOf(r *bench.Result) Result {
	v := Result{
		Workload: r.Workload, Rows: r.Rows, Ops: r.Ops, Bad: r.Bad, Seconds: r.Took.Seconds(), OpsPerS: r.PerSecond,
		Latency: latencyOf(r.Latency), Client: usageOf(r.Client, r.Ops), Paper: r.Workload.Paper(), Ratio: r.PaperRatio,
	}
	for _, k := range r.Kinds {
		v.Kinds = append(v.Kinds, Kind{k.Name, k.Ops, k.Bad, latencyOf(k.Latency)})
	}
	if r.Nodes.CPU > 0 {
		u := usageOf(r.Nodes, r.Ops)
		v.Nodes = &u
	}
	return v
}

// Write writes r, indented.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// fileMax bounds the size of a file. Thousands of runs fit.
const fileMax = 64 << 20

// ErrNoReport means that a file is not a report.
var ErrNoReport = errors.New(`not a report of "stele bench --report"`)

// Read reads a report. Errors: ErrNoReport, and one for a later version.
func Read(in io.Reader) (*Report, error) {
	b, err := io.ReadAll(io.LimitReader(in, fileMax))
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReport, err)
	}
	if r.Format != Format || r.Version < 1 {
		return nil, ErrNoReport
	}
	if r.Version > Version {
		return nil, fmt.Errorf("report version %d is newer than %d, the latest supported: use a later program", r.Version, Version)
	}
	return r, nil
}

// Open reads a report from a file.
func Open(path string) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}
