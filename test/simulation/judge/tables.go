package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// dropped has the drops of each table that were made, or may have been.
type dropped map[string][]workload.Op

func dropsOf(ops []workload.Op) dropped {
	d := dropped{}
	for _, op := range ops {
		if op.Kind == workload.Drop && op.Outcome != workload.Failed {
			d[op.Table] = append(d[op.Table], op)
		}
	}
	return d
}

// during reports whether a table may have been dropped at a time in a period.
func (d dropped) during(table string, from, to int64) bool {
	return slices.ContainsFunc(d[table], func(op workload.Op) bool { return op.Call < to && op.Return > from })
}

// besideDrops returns a schema change as the model of a row has it. An acknowledged drop of a table or family beside another drop of it may have
// found it dropped: a node that repeats a drop whose answer was lost cannot distinguish the two. So it drops what there is.
func besideDrops(op workload.Op, ops []workload.Op) workload.Op {
	beside := func(o workload.Op) bool {
		return o.Kind == op.Kind && o.Table == op.Table && slices.Equal(o.Families, op.Families) && o.Outcome != workload.Failed &&
			o.Number != op.Number && o.Call < op.Return && o.Return > op.Call
	}
	if (op.Kind == workload.Drop || op.Kind == workload.DropFamily) && slices.ContainsFunc(ops, beside) {
		op.Outcome = workload.Unknown
	}
	return op
}

// absence is a period in which a table certainly did not exist.
type absence struct {
	drop     workload.Op
	from, to int64
}

// absences returns the periods from the return of a drop to the next call of a creation or an undrop. One
// of unknown outcome may take effect at any later time.
func absences(ops []workload.Op) map[string][]absence {
	all := map[string][]absence{}
	for name, drops := range dropsOf(ops) {
		for _, d := range drops {
			if d.Outcome != workload.OK {
				continue
			}
			a := absence{d, d.Return, workload.Infinity}
			for _, op := range ops {
				if (op.Kind == workload.Create || op.Kind == workload.Undrop) && op.Table == name && op.Outcome != workload.Failed && op.Return > d.Call {
					a.to = min(a.to, op.Call)
				}
			}
			if a.from < a.to {
				all[name] = append(all[name], a)
			}
		}
	}
	return all
}

// onTable reports whether an operation uses the contents of a table.
func onTable(op *workload.Op) bool {
	return isRow(op) || op.Kind == workload.ScanAll || op.Kind == workload.Clear
}

// droppedTables returns operations on tables that did not exist, and reads of what a dropped table
// had.
func droppedTables(ops []workload.Op) (all []Violation) {
	gone, writers := absences(ops), writersOf(ops)
	drops := dropsOf(ops)
	for _, op := range ops { // what was dropped from these may be read again
		if op.Kind == workload.Undrop && op.Outcome != workload.Failed {
			delete(drops, op.Table)
		}
	}
	for _, op := range ops {
		if op.Outcome != workload.OK || !onTable(&op) {
			continue
		}
		for _, a := range gone[op.Table] {
			if op.Call > a.from && op.Return < a.to {
				all = append(all, violation("dropped tables", fmt.Sprintf("%s of table %s is acknowledged after its drop had returned", op.Kind, op.Table), a.drop, op))
			}
		}
		all = append(all, revived(op, drops[op.Table], writers)...)
	}
	return all
}

// writersOf returns the writes by the names of their values.
func writersOf(ops []workload.Op) map[string]workload.Op {
	writers := map[string]workload.Op{}
	for _, op := range ops {
		for _, x := range slices.Concat(op.Changes, op.Otherwise) {
			if x.Kind == workload.Set && isRow(&op) {
				writers[x.Value] = op
			}
		}
	}
	return writers
}

// revived returns the values of a read that were acknowledged before a drop that had returned before
// the read.
func revived(op workload.Op, drops []workload.Op, writers map[string]workload.Op) (all []Violation) {
	if len(drops) == 0 || op.Kind != workload.Read && op.Kind != workload.ScanAll {
		return nil
	}
	for _, value := range valuesOf(op) {
		w, known := writers[value]
		if !known || w.Outcome != workload.OK {
			continue
		}
		for _, d := range drops {
			if d.Outcome == workload.OK && w.Return < d.Call && d.Return < op.Call {
				all = append(all, violation("dropped tables", fmt.Sprintf("value %s of the dropped table %s is read after the drop", value, op.Table), w, d, op))
				break
			}
		}
	}
	return all
}

// valuesOf returns all values that an operation has read.
func valuesOf(op workload.Op) (values []string) {
	add := func(cells []workload.Cell) {
		for _, c := range cells {
			values = append(values, c.Values...)
		}
	}
	add(op.Cells)
	if op.Scan != nil {
		for _, row := range op.Scan.Rows {
			add(row.Cells)
		}
	}
	return values
}

// createdTables returns operations that did not find a table that had been created and not dropped.
func createdTables(ops []workload.Op) (all []Violation) {
	drops, renames := dropsOf(ops), renamesOf(ops)
	for _, op := range ops {
		if op.Reason != workload.NoTable || !onTable(&op) || op.User != "" { // tables are hidden from users without rights
			continue
		}
		if !renames[op.Table].named(&op) {
			continue
		}
		for _, c := range ops[:op.Number] {
			if c.Kind == workload.Create && c.Outcome == workload.OK && c.Table == op.Table && c.Return < op.Call && !drops.during(op.Table, c.Call, op.Return) {
				all = append(all, violation("created tables", fmt.Sprintf("%s does not find table %s, which was created and not dropped", op.Kind, op.Table), c, op))
				break
			}
		}
	}
	return all
}
