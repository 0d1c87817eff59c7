package main

import (
	"math"
	"testing"
)

// The model of the paper's cluster has the paper's rates of random reads within 5%.
func TestPaper(t *testing.T) {
	for n, want := range paperRates {
		if got, _ := paper.perServer(&paperReads, n); math.Abs(got/want-1) > 0.05 {
			t.Errorf("%d servers: %.0f reads per second, the paper has %.0f", n, got, want)
		}
	}
}

// Without a limit at the root, no server loses a tenth of its rate between 3 servers and 500. With the paper's, all do, and it binds.
func TestFlat(t *testing.T) {
	for i := range workloads {
		w := &workloads[i]
		few, _ := today.perServer(w, 3)
		if many, binds := today.perServer(w, 500); many < 0.9*few {
			t.Errorf("%s: %.0f per second with 3 servers, %.0f with 500, where the %s binds", w.name, few, many, binds)
		}
		if _, binds := asPaper.perServer(w, 500); binds != root {
			t.Errorf("%s: in the paper's network, the %s binds", w.name, binds)
		}
	}
}
