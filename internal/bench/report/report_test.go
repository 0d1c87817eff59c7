package report

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/bench"
)

var update = flag.Bool("update", false, "write the files in testdata")

// example is a report with all fields set.
func example() *Report {
	r := &Report{
		Format: Format, Version: Version, Time: time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC),
		Program:  Program{Version: "v1.2.3", Commit: "0123abcd", Go: "go1.26"},
		Machine:  Machine{OS: "linux", Arch: "amd64", Kernel: "6.1", CPU: "A Processor", CPUs: 2, MemoryBytes: 8 << 30, Load: 0.5},
		Cluster:  Cluster{Nodes: 1, Local: true, Versions: []string{"v1.2.3"}},
		Settings: Settings{Batch: 1, ValueBytes: 1000, Rate: 10, Family: "block=8KiB", Major: true, Connections: 1, Memory: "1GiB"},
	}
	for i, rows := range []int64{200_000, 1_000_000} {
		slower := time.Duration(i + 1)
		latency := bench.Latency{P50: 500 * slower * time.Microsecond, P99: 2 * slower * time.Millisecond, P999: 3 * slower * time.Millisecond, Max: 9 * slower * time.Millisecond}
		used := bench.Usage{CPU: 2 * slower * time.Second, Allocs: 300_000, AllocBytes: 1 << 20, LogCommits: 100_000, LogAppends: 10_000, LogAppendTime: time.Second}
		run := Run{Rows: rows, Operations: rows, Tablets: 1, Clients: 64}
		for _, v := range []bench.Result{
			{Workload: bench.YCSBA, Kinds: []bench.Kind{{Name: "read", Ops: 50_000, Latency: latency}, {Name: "update", Ops: 50_000, Bad: 1, Latency: latency}}, Bad: 1},
			{Workload: bench.RandomRead},
			{Workload: bench.Scan},
		} {
			v.Ops, v.Took, v.Latency, v.Rows, v.Client, v.Nodes = 100_000, slower*time.Second, latency, rows, used, used
			v.PerSecond = 100_000 / v.Took.Seconds()
			if paper := v.Workload.Paper(); paper > 0 {
				v.PaperRatio = v.PerSecond / paper
			}
			run.Results = append(run.Results, ResultOf(&v))
		}
		run.Sort()
		r.Runs = append(r.Runs, run)
	}
	return r
}

// TestFile: the file has the form described in doc.go, and round-trips.
func TestFile(t *testing.T) {
	r := example()
	r.Runs = r.Runs[:1]
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/report.json", b.Bytes())
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("read %+v, %v", got, err)
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has\n%s\nwant\n%s\nif that is meant: go test ./internal/bench/report -update", path, got, want)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"", "<svg/>", "[]", "{}", `{"format":"other","version":1}`, `{"format":"stele-bench"}`, `{"format":"stele-bench","version":1,"runs":[{"rows":"x"}]}`} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrNoReport) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := Read(strings.NewReader(`{"format":"stele-bench","version":2}`))
	if err == nil || errors.Is(err, ErrNoReport) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version: %v", err)
	}
	if _, err := Read(strings.NewReader(`{"format":"stele-bench","version":1,"later":[1]}`)); err != nil {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := Open("testdata/none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestPerOperation: usage is divided by operations; unknown node usage is omitted.
func TestPerOperation(t *testing.T) {
	v := ResultOf(&bench.Result{Workload: bench.RandomWrite, Ops: 1000, Took: time.Second, PerSecond: 1000, Client: bench.Usage{CPU: time.Millisecond, Allocs: 3000, AllocBytes: 500}})
	if v.Client != (Usage{CPU: 1, Allocs: 3, AllocBytes: 0.5}) || v.Nodes != nil {
		t.Errorf("%+v, %+v", v.Client, v.Nodes)
	}
	v = ResultOf(&bench.Result{Ops: 1000, Nodes: bench.Usage{CPU: time.Second, LogCommits: 1000, LogAppends: 100, LogAppendTime: 200 * time.Millisecond}})
	if v.Nodes == nil || v.Nodes.LogCommits != 10 || v.Nodes.LogAppend != 2000 || v.Nodes.CPU != 1000 {
		t.Errorf("%+v", v.Nodes)
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	if m.OS == "" || m.Arch == "" || m.CPUs < 1 {
		t.Errorf("%+v", m)
	}
	if m.OS == "linux" && (m.Kernel == "" || m.MemoryBytes < 1<<20) {
		t.Errorf("%+v", m)
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 999: "999", 1000: "1k", 1500: "1.5k", 1234: "1234", 200_000: "200k", 1_000_000: "1M", 2_500_000: "2.5M"} {
		if got := short(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 12.4: "12", 999.6: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := grouped(v); got != want {
			t.Errorf("%f is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{1: "1.00 µs", 9.999: "10 µs", 512.3: "512 µs", 999.9: "1.00 ms", 12_345: "12.35 ms", 123_456: "123 ms", 2_000_000: "2.00 s"} {
		if got := latency(v); got != want {
			t.Errorf("%f µs is %q, want %q", v, got, want)
		}
	}
}

// TestMarkdown: runs of one or several reports are columns, and bad rows are highlighted.
func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMarkdown(&b, example()); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/one.md", b.Bytes())
	b.Reset()
	later := example()
	later.Program.Version, later.Runs = "v1.3", later.Runs[1:]
	later.Runs[0].Results = later.Runs[0].Results[:1]
	if err := WriteMarkdown(&b, example(), later); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/two.md", b.Bytes())

	b.Reset()
	later.Cluster.Nodes = 3
	if err := WriteMarkdown(&b, example(), later); err != nil || !strings.HasPrefix(b.String(), "| per second, p50 / p99 | 1 node: 200k rows | 1 node: 1M rows | 3 nodes |\n") {
		t.Errorf("of one and three nodes: %v\n%s", err, b.String())
	}
}
