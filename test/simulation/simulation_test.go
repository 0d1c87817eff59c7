//go:build simulation

package main

import (
	"testing"
	"time"
)

// short options are those of tests: seeds of little virtual time, one at a time, since other tests run
// beside them.
func shortOptions(t *testing.T) options {
	o := parse(nil)
	o.jobs, o.virtual = 1, 10*time.Second
	return o
}

// TestSameHistory runs seeds twice. Their histories must be equal in every event (SM6).
func TestSameHistory(t *testing.T) {
	o := shortOptions(t)
	o.seeds, o.twice, o.virtual = 50, true, 2*time.Second
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestSeeds runs the first 200 seeds, which must have no violation. Soaks run others.
func TestSeeds(t *testing.T) {
	o := shortOptions(t)
	o.seeds = 200
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
