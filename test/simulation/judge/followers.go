package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/test/simulation/workload"
)

// followers checks the tables of a follower. The changes of a source's table, in the order in which its stream has them, give the states of each row.
func (o Options) followers(ops []workload.Op) (all []Violation) {
	sent := streamJudge{ops: ops, sent: map[mutation]*sentMutation{}}
	for i := range ops {
		sent.addSent(&ops[i])
	}
	for i := range ops {
		if op := &ops[i]; op.Kind == workload.SourceStream && op.Outcome == workload.OK {
			j := followerJudge{table: op.Table, rows: map[string]*followedRow{}, begun: workload.Infinity, slack: o.lagSlack(), loose: droppedFamilies(ops, op.Table)}
			j.build(op, &sent)
			var about []*workload.Op
			for k := range ops {
				if x := &ops[k]; x.Table == op.Table {
					about = append(about, x)
					if x.Kind == workload.EndFollow {
						j.ends = append(j.ends, x)
					}
				}
			}
			for _, x := range about {
				j.see(x)
			}
			all = append(all, j.bad...)
		}
	}
	return all
}

// lagSlack returns how much more recent a lag may seem, in ns: it is measured by clocks of both clusters.
func (o Options) lagSlack() int64 {
	return int64(max(o.ClockHigh, 0) - min(o.FollowerLow, 0) + 2*time.Millisecond)
}

// droppedFamilies returns the families of a table that were dropped. Their cells are not in the order of the changes.
func droppedFamilies(ops []workload.Op, table string) map[string]bool {
	families := map[string]bool{}
	for i := range ops {
		if op := &ops[i]; op.Kind == workload.DropFamily && op.Table == table && op.Outcome != workload.Failed {
			families[op.Families[0]] = true
		}
	}
	return families
}

// followedRow is a row of a source, and how far its follower is.
type followedRow struct {
	states []rowState // before the first change, and after each
	known  []int64    // of each state: when its change was acknowledged; workload.Infinity if that is not known
	pos    int        // the earliest state that the follower can have; -1 if it may lack the row, which it has not copied
}

// followerJudge checks a table of a follower.
type followerJudge struct {
	table string
	rows  map[string]*followedRow
	loose map[string]bool // families without an order
	slack int64
	begun int64          // the call that created the replication
	ends  []*workload.Op // removals
	upTo  int64          // all changes that were acknowledged before are made; 0: not known
	bad   []Violation
}

// build makes the states of all rows.
func (j *followerJudge) build(stream *workload.Op, sent *streamJudge) {
	var families []string
	for _, x := range stream.Stream.Changes {
		if x.Cleared == nil {
			j.rowOf(x.Row)
		}
		for _, c := range x.Changes {
			families = append(families, familyOf(c.Column))
		}
	}
	for _, x := range stream.Stream.Changes {
		if x.Cleared != nil {
			for row, r := range j.rows {
				if row >= x.Cleared.Start && (x.Cleared.End == "" || row < x.Cleared.End) {
					r.add(families, []workload.Change{{Kind: workload.DeleteRow}}, workload.Infinity)
				}
			}
			continue
		}
		known := workload.Infinity
		if s := sent.sent[mutation{stream.Table, x.Row, textOf(x.Changes)}]; s != nil && s.only() != nil {
			known = s.only().Return
		}
		j.rows[x.Row].add(families, x.Changes, known)
	}
}

// rowOf returns a row. One of which the stream has no change may have had cells of dropped families.
func (j *followerJudge) rowOf(row string) *followedRow {
	r := j.rows[row]
	if r == nil {
		r = &followedRow{states: []rowState{{table: true}}, known: []int64{0}, pos: -1}
		j.rows[row] = r
	}
	return r
}

func (r *followedRow) add(families []string, changes []workload.Change, known int64) {
	last := r.states[len(r.states)-1]
	last.families = families
	next, _ := last.change(changes, 0) // has all families
	r.states, r.known = append(r.states, next), append(r.known, known)
}

// floor returns the first state that has all changes that were acknowledged before a time.
func (r *followedRow) floor(at int64) int {
	for i := len(r.known) - 1; i > 0; i-- {
		if r.known[i] < at {
			return i
		}
	}
	return 0
}

// see checks the next operation on the table.
func (j *followerJudge) see(op *workload.Op) {
	switch {
	case op.Kind == workload.EndFollow:
		j.begun, j.upTo = workload.Infinity, 0
		for _, r := range j.rows {
			r.pos = -1
		}
	case slices.ContainsFunc(j.ends, func(end *workload.Op) bool { return end.Call < op.Return && op.Call < end.Return }): // beside it
	case op.Kind == workload.BeginFollow:
		j.begun = min(j.begun, op.Call)
	case op.Kind == workload.ReportFollow && op.Outcome == workload.OK && op.Lag >= 0:
		j.upTo = max(j.upTo, op.Call-op.Lag*int64(time.Millisecond)-j.slack, 1)
	case op.Kind == workload.ScanFollower && op.Return != workload.Infinity:
		known := make([]string, 0, len(j.rows))
		for row := range j.rows {
			known = append(known, row)
		}
		slices.Sort(known)
		for _, read := range readsOf(op, known) {
			j.seeRow(&read)
		}
	case op.Kind == workload.ScanAll && op.Final && op.Outcome == workload.OK && op.View == "":
		j.seeSource(op)
	}
}

// seeRow checks what was read of a row.
func (j *followerJudge) seeRow(read *workload.Op) {
	r := j.rowOf(read.Row)
	if r.pos < 0 && len(read.Cells) == 0 && j.upTo == 0 {
		return
	}
	first, cells := max(r.pos, r.floor(min(j.begun, read.Call)), r.floor(j.upTo)), j.ordered(read.Cells)
	for i := first; i < len(r.states); i++ {
		if shows(j.ordered(r.states[i].cells), cells) {
			r.pos = i
			return
		}
	}
	why := "is none of its states"
	for i := range first {
		if shows(j.ordered(r.states[i].cells), cells) {
			why = fmt.Sprintf("is its state after %d of %d changes", i, len(r.states)-1)
		}
	}
	j.fail(read, fmt.Sprintf("%s, and %d are made by then: %s", why, first, j.history(r)))
}

// historyMax bounds the states in the text of a violation.
const historyMax = 12

func (j *followerJudge) history(r *followedRow) string {
	var b strings.Builder
	for i := max(0, len(r.states)-historyMax); i < len(r.states); i++ {
		fmt.Fprintf(&b, "%d: %v; ", i, j.ordered(r.states[i].cells))
	}
	return b.String()
}

// seeSource checks that the stream explains the rows of the source.
func (j *followerJudge) seeSource(op *workload.Op) {
	for _, row := range op.Scan.Rows {
		r := j.rowOf(row.Row)
		if !shows(j.ordered(r.states[len(r.states)-1].cells), j.ordered(row.Cells)) {
			text := fmt.Sprintf("row %s of table %s is not what all changes of the stream make: %v, not %s", row.Row, op.Table, row.Cells, j.history(r))
			j.bad = append(j.bad, Violation{Invariant: "followers", Time: op.Return, Text: text})
			return
		}
	}
}

// ordered returns the cells whose order of changes is known.
func (j *followerJudge) ordered(cells []workload.Cell) []workload.Cell {
	if len(j.loose) == 0 {
		return cells
	}
	return slices.DeleteFunc(slices.Clone(cells), func(c workload.Cell) bool { return j.loose[familyOf(c.Column)] })
}

// fail records the first violations of a table.
func (j *followerJudge) fail(read *workload.Op, why string) {
	if len(j.bad) < 3 {
		j.bad = append(j.bad, violation("followers", fmt.Sprintf("row %s of table %s of the follower %s", read.Row, read.Table, why), *read))
	}
}
