package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/steledb/stele/test/simulation/workload"
)

// place is a row of a table name.
type place struct{ table, row string }

func (p place) compare(q place) int {
	return cmp.Or(strings.Compare(p.table, q.table), strings.Compare(p.row, q.row))
}

// rows checks the operations on each row, with those on its table.
func (r *Report) rows(ops []workload.Op, o Options) {
	parts, schemas := byRow(ops, o)
	places := make([]place, 0, len(parts))
	for p := range parts {
		places = append(places, p)
	}
	slices.SortFunc(places, place.compare)
	for _, p := range places {
		part := append(slices.Clone(schemas[p.table]), parts[p]...)
		slices.SortStableFunc(part, func(a, b workload.Op) int { return cmp.Compare(a.Call, b.Call) })
		r.Rows++
		what := fmt.Sprintf("row %s of table %s", p.row, p.table)
		switch rowModel.check(part, o.Steps) {
		case undecided:
			r.Undecided = append(r.Undecided, fmt.Sprintf("rows: %s: %d operations", what, len(part)))
		case wrong:
			short := rowModel.shortest(part, o.Steps)
			r.Violations = append(r.Violations, violation("rows", "no order explains the operations on "+what, short...))
		}
	}
}

// byRow returns the operations on each row, and those on the schema of each table. A scan counts as
// a read of each row that it returned, and of those of its range that it omitted. So does what a backup has restored.
func byRow(ops []workload.Op, o Options) (parts map[place][]workload.Op, schemas map[string][]workload.Op) {
	parts, schemas = map[place][]workload.Op{}, map[string][]workload.Op{}
	restored := restoredTables(ops)
	for i := range ops {
		op := &ops[i]
		switch {
		case !counts(op):
		case isRow(op):
			p := place{op.Table, op.Row}
			parts[p] = append(parts[p], *op)
		case isSchema(op):
			schema := besideDrops(*op, ops)
			if op.Kind == workload.Create && !restored[op.TableID] {
				schema.TableID = 0 // no need to keep what is dropped for good
			}
			schemas[op.Table] = append(schemas[op.Table], schema)
		}
	}
	known := map[string][]string{} // rows that were written, by table
	for p := range parts {
		known[p.table] = append(known[p.table], p.row)
	}
	for name := range known {
		slices.Sort(known[name])
	}
	for i := range ops {
		if op := &ops[i]; op.Kind == workload.Clear && counts(op) {
			addClear(parts, op, known[op.Table])
		}
	}
	scans := append(restoredReads(ops, o), ops...)
	for i := range scans {
		if op := &scans[i]; op.Kind == workload.ScanAll && op.Return != workload.Infinity {
			for _, read := range readsOf(op, known[op.Table]) {
				p := place{op.Table, read.Row}
				parts[p] = append(parts[p], read)
			}
		}
	}
	return parts, schemas
}

// clearsMax is how often a clear of rows may be executed: the client repeats it.
const clearsMax = 3

// addClear adds a clear of rows as deletions of the rows of its range: one at least, and further ones, which have no effect if they take effect
// at the same time.
func addClear(parts map[place][]workload.Op, op *workload.Op, known []string) {
	deletion := *op
	deletion.Kind, deletion.Scan, deletion.Changes = workload.Write, nil, []workload.Change{{Kind: workload.DeleteRow}}
	for _, row := range known {
		if row >= op.Scan.Start && (op.Scan.End == "" || row < op.Scan.End) {
			deletion.Row = row
			p := place{op.Table, row}
			for range clearsMax {
				parts[p] = append(parts[p], deletion)
			}
		}
	}
}

// restoredTables returns the ids of dropped tables that are restored.
func restoredTables(ops []workload.Op) map[uint64]bool {
	ids := map[uint64]bool{}
	for i := range ops {
		if op := &ops[i]; op.Kind == workload.Undrop && op.Outcome != workload.Failed {
			ids[op.TableID] = true
		}
	}
	return ids
}

// readsOf returns a scan as reads of rows. Rows before an error are valid.
func readsOf(op *workload.Op, known []string) (reads []workload.Op) {
	read := *op
	read.Kind, read.Outcome, read.Scan = workload.Read, workload.OK, nil
	seen, last := map[string]bool{}, ""
	for _, row := range op.Scan.Rows {
		seen[row.Row], last = true, row.Row
		read.Row, read.Cells = row.Row, row.Cells
		reads = append(reads, read)
	}
	for _, row := range known {
		inside := row >= op.Scan.Start && (op.Scan.End == "" || row < op.Scan.End) && (op.Scan.Whole || row < last)
		if inside && !seen[row] {
			read.Row, read.Cells = row, nil
			reads = append(reads, read)
		}
	}
	return reads
}
