package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// stampSlack is how far a server's timestamp may be beyond the bounds of its clock, in µs. Timestamps of one tablet rise by 1 µs at least, also when
// many are assigned in an instant of virtual time.
const stampSlack = 100_000

// eachCell calls f for each column that an operation has read, with its row.
func eachCell(op *workload.Op, f func(row string, c *workload.Cell)) {
	if op.Return == workload.Infinity {
		return
	}
	for i := range op.Cells {
		f(op.Row, &op.Cells[i])
	}
	if op.Scan == nil {
		return
	}
	for i := range op.Scan.Rows {
		row := &op.Scan.Rows[i]
		for i := range row.Cells {
			f(row.Row, &row.Cells[i])
		}
	}
}

// tableOf returns the table that an operation reads, or the one that it was restored from.
func tableOf(op *workload.Op) string {
	if op.Backup != nil {
		return op.Backup.Source
	}
	return op.Table
}

// learned returns the history with the timestamps of writes that only reads have shown: those of batches and checks, and of writes of
// unknown outcome.
func learned(ops []workload.Op) []workload.Op {
	ops, writers := slices.Clone(ops), map[string]int{}
	for i := range ops {
		for _, x := range slices.Concat(ops[i].Changes, ops[i].Otherwise) {
			if x.Kind == workload.Set && x.At == 0 {
				writers[x.Value] = i
			}
		}
	}
	for i := range ops {
		eachCell(&ops[i], func(_ string, c *workload.Cell) {
			for n, stamp := range c.Stamps {
				if w, known := writers[c.Values[n]]; known && ops[w].Stamp == 0 {
					ops[w].Stamp = stamp
				}
			}
		})
	}
	return ops
}

// timestamps returns server timestamps of a row that do not grow, in one life of its table.
func timestamps(ops []workload.Op) (all []Violation) {
	last, drops := map[place][]workload.Op{}, dropsOf(ops)
	for _, op := range ops {
		if op.Stamp == 0 || op.Outcome == workload.Failed {
			continue
		}
		p := place{op.Table, op.Row}
		for _, before := range last[p] {
			if before.Return < op.Call && before.Stamp >= op.Stamp && !drops.during(op.Table, before.Call, op.Return) {
				all = append(all, violation("timestamps", fmt.Sprintf("row %s of table %s: timestamp %d is assigned after %d", op.Row, op.Table, op.Stamp, before.Stamp), before, op))
				break
			}
		}
		last[p] = append(last[p], op)
	}
	return all
}

// clocks returns timestamps that no clock of a server can have shown between the call of the write and its answer, or the read.
func (o Options) clocks(ops []workload.Op) (all []Violation) {
	from := func(at int64) int64 { return at/1000 + o.ClockLow.Microseconds() - stampSlack }
	to := func(at int64) int64 { return at/1000 + o.ClockHigh.Microseconds() + stampSlack }
	for _, op := range ops {
		if op.Stamp != 0 && (op.Stamp < from(op.Call) || op.Return != workload.Infinity && op.Stamp > to(op.Return)) {
			all = append(all, violation("clocks", fmt.Sprintf("timestamp %d of row %s of table %s is none that a server's clock showed during the write", op.Stamp, op.Row, op.Table), op))
		}
		eachCell(&op, func(row string, c *workload.Cell) {
			for i, stamp := range c.Stamps {
				if !workload.Explicit(stamp) && stamp > to(op.Return) {
					all = append(all, violation("clocks", fmt.Sprintf("value %s of row %s of table %s is from the future: timestamp %d", c.Values[i], row, op.Table, stamp), op))
				}
			}
		})
	}
	return all
}

// cellTimestamps returns values whose timestamp is not the same in each read, and columns whose versions are not ordered by theirs.
func cellTimestamps(ops []workload.Op) (all []Violation) {
	type version struct {
		place
		column, value string
	}
	type reading struct {
		stamp int64
		op    int
	}
	seen := map[version]reading{}
	for i := range ops {
		for _, x := range slices.Concat(ops[i].Changes, ops[i].Otherwise) {
			if stamp := cmp.Or(x.At, ops[i].Stamp); x.Kind == workload.Set && stamp != 0 {
				seen[version{place{ops[i].Table, ops[i].Row}, x.Column, x.Value}] = reading{stamp, i}
			}
		}
	}
	for i := range ops {
		op := &ops[i]
		eachCell(op, func(row string, c *workload.Cell) {
			for n, stamp := range c.Stamps {
				if n > 0 && stamp >= c.Stamps[n-1] {
					all = append(all, violation("cell timestamps", fmt.Sprintf("the versions of column %s of row %s of table %s have the timestamps %d", c.Column, row, op.Table, c.Stamps), *op))
				}
				v := version{place{tableOf(op), row}, c.Column, c.Values[n]}
				first, known := seen[v]
				switch {
				case workload.Counter(c.Column): // its values repeat
				case !known:
					seen[v] = reading{stamp, i}
				case first.stamp != stamp:
					all = append(all, violation("cell timestamps", fmt.Sprintf("value %s of column %s of row %s of table %s has the timestamps %d and %d", v.value, c.Column, row, op.Table, first.stamp, stamp), ops[first.op], *op))
				}
			}
		})
	}
	return all
}
