package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// scans checks the keys of scans, and that no row is missing.
func scans(ops []workload.Op) (all []Violation) {
	writes, deletions := map[string][]workload.Op{}, map[string][]workload.Op{}
	for _, op := range ops {
		switch {
		case op.Outcome == workload.Failed:
		case isDeletion(&op):
			deletions[op.Table] = append(deletions[op.Table], op)
		case op.Kind == workload.Write && op.Outcome == workload.OK:
			writes[op.Table] = append(writes[op.Table], op)
		}
	}
	for _, op := range ops {
		if op.Kind != workload.ScanAll || op.Return == workload.Infinity {
			continue
		}
		if text := badKeys(op.Scan); text != "" {
			all = append(all, violation("scans", text, op))
		}
		if len(op.Families) > 0 {
			continue
		}
		for _, w := range missing(op, writes[op.Table], deletions[op.Table]) {
			all = append(all, violation("scans", fmt.Sprintf("the scan of table %s omits row %s, which was written before", op.Table, w.Row), w, op))
		}
	}
	return all
}

// isDeletion reports whether an operation may delete cells.
func isDeletion(op *workload.Op) bool {
	if op.Kind == workload.Drop || op.Kind == workload.DropFamily || op.Kind == workload.Clear {
		return true
	}
	return slices.ContainsFunc(slices.Concat(op.Changes, op.Otherwise), func(x workload.Change) bool {
		return x.Kind == workload.DeleteColumn || x.Kind == workload.DeleteVersions || x.Kind == workload.DeleteCells || x.Kind == workload.DeleteRow
	})
}

func badKeys(s *workload.Scan) string {
	if s.Limit > 0 && int64(len(s.Rows)) > s.Limit {
		return fmt.Sprintf("a scan with the limit %d returns %d rows", s.Limit, len(s.Rows))
	}
	last := ""
	for _, row := range s.Rows {
		switch {
		case row.Row <= last:
			return fmt.Sprintf("a scan returns row %q after %q", row.Row, last)
		case row.Row < s.Start || s.End != "" && row.Row >= s.End:
			return fmt.Sprintf("a scan from %q to %q returns row %q", s.Start, s.End, row.Row)
		case len(row.Cells) == 0:
			return fmt.Sprintf("a scan returns row %q without cells", row.Row)
		}
		last = row.Row
	}
	return ""
}

// missing returns acknowledged writes, one for each row, of rows that a scan omits although no
// deletion can have been made between.
func missing(scan workload.Op, writes, deletions []workload.Op) (all []workload.Op) {
	seen, last := map[string]bool{}, ""
	for _, row := range scan.Scan.Rows {
		seen[row.Row], last = true, row.Row
	}
	for _, w := range writes {
		inside := w.Row >= scan.Scan.Start && (scan.Scan.End == "" || w.Row < scan.Scan.End) && (scan.Scan.Whole || w.Row < last)
		if !inside || seen[w.Row] || w.Return > scan.Call {
			continue
		}
		if slices.ContainsFunc(deletions, func(d workload.Op) bool {
			return (d.Row == "" || d.Row == w.Row) && d.Call < scan.Return && d.Return > w.Call
		}) {
			continue
		}
		seen[w.Row] = true
		all = append(all, w)
	}
	return all
}

// finalReads compares the last reads of different clients. Rows with writes of unknown outcome are
// left to the model of rows, since such writes may be made between the reads.
func finalReads(ops []workload.Op) (all []Violation) {
	first, vague := map[string]workload.Op{}, map[place]bool{}
	for _, op := range ops {
		switch {
		case op.Outcome == workload.Unknown && op.Kind != workload.Read:
			vague[place{op.Table, op.Row}] = true // without a row, all rows of the table
		case op.Final && op.Kind == workload.ScanAll && op.Outcome == workload.OK:
			before, known := first[op.Table]
			if !known {
				first[op.Table] = op
				continue
			}
			if row := difference(before.Scan, op.Scan, func(row string) bool { return vague[place{op.Table, row}] || vague[place{op.Table, ""}] }); row != "" {
				all = append(all, violation("final reads", fmt.Sprintf("clients %d and %d read different contents of row %s of table %s in the end", before.Client, op.Client, row, op.Table)))
				all[len(all)-1].Time = op.Return
			}
		}
	}
	return all
}

// difference returns a row that is different in two scans; empty if there is none.
func difference(a, b *workload.Scan, ignored func(row string) bool) string {
	cells := map[string][]workload.Cell{}
	for _, row := range a.Rows {
		cells[row.Row] = row.Cells
	}
	for _, row := range b.Rows {
		if !cellsEqual(cells[row.Row], row.Cells) && !ignored(row.Row) {
			return row.Row
		}
		delete(cells, row.Row)
	}
	for _, row := range a.Rows {
		if cells[row.Row] != nil && !ignored(row.Row) {
			return row.Row
		}
	}
	return ""
}
