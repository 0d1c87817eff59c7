package main

import (
	"testing"

	"github.com/steledb/stele/test/simulation/bigcluster"
)

// TestSmallCluster runs all phases with ten nodes, which may have no problems, and looks at what clusters of any size must reach.
func TestSmallCluster(t *testing.T) {
	if testing.Short() {
		t.Logf("skipped: only in longer runs")
		return
	}
	all, err := runAll(t.Context(), parse([]string{"-nodes", "10", "-lookups", "20"}))
	if err != nil {
		t.Fatal(err)
	}
	r := all[0]
	for _, p := range r.Problems {
		t.Error(p)
	}
	for _, aim := range []struct {
		key
		least, most float64
	}{
		{key{"cold lookups", "round trips of a client's lookups"}, 3, 3},
		{key{"loss of a rack", "share of nodes in the repair, %"}, 80, 100},
		{key{"growth by a tenth", "moves as a multiple of the least"}, 0, 1.2},
		{key{"all nodes", "virtual s"}, 0, 2},
	} {
		if x, ok := figure(r, aim.key); !ok || x < aim.least || x > aim.most {
			t.Errorf("%s, %s: %v, want %v to %v", aim.phase, aim.figure, x, aim.least, aim.most)
		}
	}
}

// figure returns a figure of a run, and whether it has that.
func figure(r bigcluster.Result, k key) (float64, bool) {
	for _, p := range r.Phases {
		for _, f := range p.Figures {
			if p.Name == k.phase && f.Name == k.figure {
				return f.Value, true
			}
		}
	}
	return 0, false
}
