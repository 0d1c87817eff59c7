//go:build simulation

package main

import (
	"strings"
	"testing"
)

// TestSmallCluster runs all phases with ten nodes. None may have problems.
func TestSmallCluster(t *testing.T) {
	if testing.Short() {
		t.Logf("skipped: only in longer runs")
		return
	}
	var out strings.Builder
	err := run(t.Context(), parse([]string{"-nodes", "10"}), &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"five nodes", "all nodes", "table", "idle minute", "loss of a rack", "growth by a tenth", "gossip churn"} {
		if !strings.Contains(out.String(), "| "+p+" ") {
			t.Errorf("no figures of the phase %q", p)
		}
	}
}
