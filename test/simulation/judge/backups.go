package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// kept is a backup that was made, with the operations that may have deleted it.
type kept struct {
	made      workload.Op
	deletions []workload.Op
	first     *workload.Op // the first read of a table that was restored from it
}

// surely reports whether the backup existed throughout an operation.
func (k *kept) surely(op *workload.Op) bool {
	return k.made.Return < op.Call && !slices.ContainsFunc(k.deletions, func(d workload.Op) bool { return d.Call < op.Return })
}

// keptOf returns the backups that were made, by their ids, and the ids in the order of their calls. A node that repeats a deletion whose answer was
// lost finds no backup, so that such an answer may be one to a deletion.
func keptOf(ops []workload.Op) (byID map[string]*kept, ids []string) {
	byID = map[string]*kept{}
	for i := range ops {
		op := &ops[i]
		switch {
		case isBackup(op) && op.Outcome == workload.OK:
			byID[op.Backup.ID] = &kept{made: *op}
			ids = append(ids, op.Backup.ID)
		case op.Kind == workload.DeleteBackup && (op.Outcome != workload.Failed || op.Reason == workload.NoBackup) && byID[op.Backup.ID] != nil:
			k := byID[op.Backup.ID]
			k.deletions = append(k.deletions, *op)
		case op.Kind == workload.ScanRestored && op.Outcome == workload.OK:
			if k := byID[op.Backup.ID]; k.first == nil {
				k.first = op
			}
		}
	}
	return byID, ids
}

// isBackup reports whether an operation makes a backup.
func isBackup(op *workload.Op) bool {
	return op.Kind == workload.CreateBackup || op.Kind == workload.BackupAt || op.Kind == workload.ScheduledBackup
}

// backups returns backups that are lost, and reads of restored tables that differ. That what is restored is right is judged with the
// operations on rows: see restoredReads.
func backups(ops []workload.Op) (all []Violation) {
	byID, ids := keptOf(ops)
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case workload.RestoreBackup:
			if k := byID[op.Backup.ID]; op.Reason == workload.NoBackup && k.surely(op) {
				all = append(all, violation("backups", fmt.Sprintf("backup %s is lost", op.Backup.ID), k.made, *op))
			}
		case workload.ListBackups:
			for _, id := range ids {
				if op.Outcome == workload.OK && byID[id].surely(op) && !slices.Contains(op.Backup.IDs, id) {
					all = append(all, violation("backups", fmt.Sprintf("backup %s is not listed", id), byID[id].made, *op))
				}
			}
		case workload.ScanRestored:
			all = append(all, judgeRestored(op, byID[op.Backup.ID])...)
		}
	}
	return all
}

func judgeRestored(op *workload.Op, k *kept) (all []Violation) {
	if op.Return == workload.Infinity {
		return nil
	}
	if text := badKeys(op.Scan); text != "" {
		all = append(all, violation("backups", text, *op))
	}
	if op.Outcome != workload.OK || k.first == nil {
		return all
	}
	if row := difference(k.first.Scan, op.Scan, func(string) bool { return false }); row != "" {
		all = append(all, violation("backups", fmt.Sprintf("row %s of table %s of backup %s is restored with different contents", row, op.Backup.Source, op.Backup.ID)))
		all[len(all)-1].Time = op.Return
	}
	return all
}

// restoredReads returns what backups have restored as scans of the tables that were backed up, between the request of the backup and the time
// at which it was known to be made: each row must be as it was at some moment of that period. Families that were dropped in it are left
// out, since a backup has the families that the table has in the end.
//
// One as of a time has each row as it was at some moment that a server's clock can have shown as that time.
func restoredReads(ops []workload.Op, o Options) (scans []workload.Op) {
	byID, ids := keptOf(ops)
	for _, id := range ids {
		k := byID[id]
		if k.first == nil {
			continue
		}
		scan := *k.first
		scan.Kind, scan.Table, scan.Call, scan.Return = workload.ScanAll, k.made.Table, k.made.Call, k.made.Return
		if at := k.made.Backup.At; k.made.Kind == workload.BackupAt {
			scan.Call = (at-stampSlack)*1000 - o.ClockHigh.Nanoseconds()
			scan.Return = (at+stampSlack)*1000 - o.ClockLow.Nanoseconds()
		}
		scan.Families = stable(ops, &k.made)
		if len(scan.Families) > 0 {
			scan.Scan = restricted(scan.Scan, scan.Families)
			scans = append(scans, scan)
		}
	}
	return scans
}

// stable returns the families of a backup that were not dropped while it was made.
func stable(ops []workload.Op, made *workload.Op) (families []string) {
	for _, f := range made.Families {
		if !slices.ContainsFunc(ops, func(d workload.Op) bool {
			return d.Kind == workload.DropFamily && d.Outcome != workload.Failed && d.Table == made.Table && d.Families[0] == f && d.Call < made.Return && d.Return > made.Call
		}) {
			families = append(families, f)
		}
	}
	return families
}

// restricted returns a scan with the cells of some families only.
func restricted(s *workload.Scan, families []string) *workload.Scan {
	some := *s
	some.Rows = nil
	for _, row := range s.Rows {
		row.Cells = rowState{cells: row.Cells}.of(families)
		some.Rows = append(some.Rows, row)
	}
	return &some
}
