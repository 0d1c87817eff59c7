package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/test/simulation/workload"
	"github.com/steledb/stele/test/simulation/world"
)

// describe returns what happened in a seed, which took some real time, for people: faults, operations by their outcome, and states that were reached.
func describe(r world.Result, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %.1f virtual seconds, %d events, history %016x, in %.1f s\n", r.Seed, r.Virtual, r.Events, r.Hash, took.Seconds())
	faults, states, kinds, outcomes := []string{}, []string{}, []string{}, map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		n := r.Counts[name]
		if fault, ok := strings.CutPrefix(name, "fault "); ok {
			faults = append(faults, fmt.Sprintf("%s %d", fault, n))
		} else if op, ok := strings.CutPrefix(name, "op "); ok {
			outcomes[op] = n
			if kind := op[:strings.LastIndexByte(op, ' ')]; !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		} else if n > 0 && name != "events" {
			states = append(states, fmt.Sprintf("%s %d", name, n))
		}
	}
	fmt.Fprintf(&b, "%s", wrapped("faults", faults))
	fmt.Fprintf(&b, "%-28s %10s %10s %10s\n", "operations", workload.OK, workload.Failed, workload.Unknown)
	for _, kind := range kinds {
		count := func(o workload.Outcome) int64 { return outcomes[kind+" "+string(o)] }
		fmt.Fprintf(&b, "  %-26s %10d %10d %10d\n", kind, count(workload.OK), count(workload.Failed), count(workload.Unknown))
	}
	return b.String() + wrapped("reached", states)
}

// lineMax is the length after which wrapped begins another line, in bytes.
const lineMax = 110

// wrapped returns a heading with a list, in lines that are not too long.
func wrapped(heading string, all []string) string {
	var b strings.Builder
	line := heading + ":"
	for i, text := range all {
		if i < len(all)-1 {
			text += ","
		}
		if len(line)+1+len(text) > lineMax {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + text
	}
	return b.String() + line + "\n"
}
