package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/test/simulation/workload"
)

// Violation is a broken invariant.
type Violation struct {
	// Invariant is the name in parentheses in the list of the package comment.
	Invariant string
	// Time is a time of the history at which the violation had occurred.
	Time int64
	Text string
	// Ops are operations that show it, in the order of their calls: at most opsMax.
	Ops []workload.Op
}

// opsMax bounds the operations of a violation.
const opsMax = 24

// String returns the violation with its operations.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %.6fs: %s", v.Invariant, float64(v.Time)/1e9, v.Text)
	for _, op := range v.Ops {
		fmt.Fprintf(&b, "\n  %v", op)
	}
	return b.String()
}

// Options bound the work of a judge.
type Options struct {
	// Steps bounds the steps of a model for one part of a history. Zero means 200,000.
	Steps int
	// PeaceFrom and PeaceTo are times of the history between which there were no faults and everything was served.
	PeaceFrom, PeaceTo int64
	// ClockLow and ClockHigh bound how far the clocks of servers were ahead of that of the history; low is negative if one was behind.
	ClockLow, ClockHigh time.Duration
	// FollowerLow is how far the clocks of a follower were ahead at least; negative if one was behind.
	FollowerLow time.Duration
}

// Report is the result of Judge.
type Report struct {
	// Violations are in the order of their times.
	Violations []Violation
	// Undecided describes parts of the history whose check was not finished.
	Undecided []string
	// Parts counts the checked parts by model.
	Rows, Files, Locks int
	// Outcomes counts operations by kind and outcome: "read ok".
	Outcomes map[string]int
}

// Judge checks a history.
func Judge(ops []workload.Op, o Options) *Report {
	if o.Steps == 0 {
		o.Steps = 200_000
	}
	r := &Report{Outcomes: map[string]int{}}
	for i := range ops {
		r.Outcomes[string(ops[i].Kind)+" "+string(ops[i].Outcome)]++
		if ops[i].Kind == workload.ReportFollow && ops[i].Outcome == workload.OK && ops[i].Lag >= 0 {
			r.Outcomes["list replications with a lag"]++
		}
	}
	ops = learned(ops)
	r.rows(ops, o)
	r.files(ops, o)
	r.locks(ops, o)
	for _, check := range []func([]workload.Op) []Violation{clients, timestamps, cellTimestamps, o.clocks, droppedTables, createdTables, tableNames, views, scans, finalReads, holds, rights, blobs, backups, streams, o.followers} {
		r.Violations = append(r.Violations, check(ops)...)
	}
	r.Violations = append(r.Violations, peace(ops, o)...)
	slices.SortStableFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.Time, b.Time) })
	return r
}

// violation returns a violation at the latest of its operations.
func violation(invariant, text string, ops ...workload.Op) Violation {
	v := Violation{Invariant: invariant, Text: text, Ops: ops}
	for _, op := range ops {
		v.Time = max(v.Time, op.Call)
		if op.Return != workload.Infinity {
			v.Time = max(v.Time, op.Return)
		}
	}
	if n := len(v.Ops); n > opsMax {
		v.Ops = v.Ops[n-opsMax:]
	}
	return v
}

// clients returns the violations that clients have found.
func clients(ops []workload.Op) (all []Violation) {
	for _, op := range ops {
		switch {
		case op.Bad != "":
			all = append(all, violation("clients", op.Bad, op))
		case op.Reason == workload.Wrong:
			all = append(all, violation("clients", op.Error, op))
		}
	}
	return all
}

// peaceLeast is how many operations of a kind must have been called in peace for one of them to have to succeed.
const peaceLeast = 10

// peace returns the kinds of operations of which none succeeded while there were no faults.
func peace(ops []workload.Op, o Options) (all []Violation) {
	called, done := map[workload.Kind][]workload.Op{}, map[workload.Kind]bool{}
	for i := range ops {
		op := &ops[i]
		if op.User != "" || op.Final || op.Call < o.PeaceFrom || op.Call >= o.PeaceTo || !isRow(op) && op.Kind != workload.ScanAll && op.Kind != workload.GetFile && op.Kind != workload.SetFile {
			continue
		}
		called[op.Kind] = append(called[op.Kind], *op)
		done[op.Kind] = done[op.Kind] || op.Outcome == workload.OK || op.Outcome == workload.Unknown
	}
	for _, kind := range slices.Sorted(maps.Keys(called)) {
		if n := len(called[kind]); n >= peaceLeast && !done[kind] {
			all = append(all, violation("peace", fmt.Sprintf("all %d operations %q failed while there were no faults", n, kind), called[kind]...))
		}
	}
	return all
}

// isRow reports whether an operation is on one row.
func isRow(op *workload.Op) bool {
	switch op.Kind {
	case workload.Read, workload.Write, workload.Check, workload.Modify:
		return true
	}
	return false
}

// isSchema reports whether an operation changes a table or its families.
func isSchema(op *workload.Op) bool {
	switch op.Kind {
	case workload.Create, workload.Drop, workload.Undrop, workload.SetFamily, workload.DropFamily:
		return true
	}
	return false
}
