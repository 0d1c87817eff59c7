package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/bench"
)

func TestCountsFlag(t *testing.T) {
	for text, want := range map[string][]int64{
		"5": {5}, "1,16, 256": {1, 16, 256}, "200k": {200_000}, "0.2M,1M,5M": {200_000, 1_000_000, 5_000_000}, "7,7": {7}, "1K": {1000},
	} {
		var c countsFlag
		if err := c.Set(text); err != nil || !slices.Equal(c, want) {
			t.Errorf("%q is %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "x", "0", "-1", "1,", "1.5", "0.0001k", "1e30", "NaN", "k"} {
		c := countsFlag{3}
		if err := c.Set(text); err == nil || !slices.Equal(c, []int64{3}) {
			t.Errorf("%q was accepted: %v", text, c)
		}
	}
}

// TestRunsAreCombinations checks that the runs are all combinations of rows, tablets and clients.
func TestRunsAreCombinations(t *testing.T) {
	f := benchFlags{rows: countsFlag{10, 20}, tablets: countsFlag{1, 2, 3}, clients: countsFlag{4, 5}}
	seen := map[[3]int64]bool{}
	for _, c := range f.runs(&bench.Config{Batch: 9}) {
		seen[[3]int64{c.Rows, int64(c.Tablets), int64(c.Clients)}] = c.Batch == 9
	}
	if len(seen) != 12 || !seen[[3]int64{20, 3, 5}] || !seen[[3]int64{10, 1, 4}] {
		t.Errorf("%v", seen)
	}
}

func TestParseUsage(t *testing.T) {
	const text = `# HELP process_cpu_seconds_total Total.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
go_memstats_mallocs_total 1.2e+06
go_memstats_alloc_bytes_total 3e+09
other_total{kind="minor"} 4
stele_commit_log_commits_total 100
stele_commit_log_batches_total 10
stele_commit_log_append_seconds_total 0.25
`
	u, err := parseUsage(strings.NewReader(text))
	want := bench.Usage{
		CPU: 1500 * time.Millisecond, Allocs: 1_200_000, AllocBytes: 3_000_000_000, LogCommits: 100, LogAppends: 10, LogAppendTime: 250 * time.Millisecond,
	}
	if err != nil || u != want {
		t.Errorf("%+v, %v", u, err)
	}
	for _, bad := range []string{"", "<html>", strings.Replace(text, "stele_commit_log_batches_total 10\n", "", 1), strings.Replace(text, "1.5", "x", 1)} {
		if u, err := parseUsage(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was accepted: %+v", bad, u)
		}
	}
}
