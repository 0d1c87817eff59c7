package judge

import "github.com/steledb/stele/test/simulation/workload"

func (h *history) backup() *workload.Op {
	return h.add(workload.Op{Kind: workload.CreateBackup, Families: []string{"a1", "b2"}, Backup: &workload.Backup{ID: "b", Source: "t"}})
}

// later lets more time pass than the times of servers are inexact by, and returns the time in µs in the middle of it.
func (h *history) later() int64 {
	h.at += 4 * stampSlack * 1000
	return h.at/1000 - 2*stampSlack
}

func (h *history) backupAt(at int64) {
	op := h.backup()
	op.Kind, op.Backup.At = workload.BackupAt, at
}

// endsNow makes an operation return now.
func (h *history) endsNow(n int) {
	h.at++
	h.ops[n].Return = h.at
}

// restored adds a read of a restored table with one row, or with none.
func (h *history) restored(cell ...string) *workload.Op {
	s := &workload.Scan{Whole: true}
	if len(cell) > 0 {
		s.Rows = []workload.ScanRow{{Row: "r", Cells: cells(cell...)}}
	}
	return h.add(workload.Op{Kind: workload.ScanRestored, Table: "restored", Scan: s, Backup: &workload.Backup{ID: "b", Source: "t"}})
}

func (h *history) aboutBackup(kind workload.Kind, reason workload.Reason) *workload.Op {
	op := h.add(workload.Op{Kind: kind, Backup: &workload.Backup{ID: "b", Source: "t"}, Reason: reason})
	if reason != workload.NoReason {
		op.Outcome = workload.Failed
	}
	return op
}

var backupTests = []judged{
	{"backup: as before it", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.backup()
		h.write("r", "set a1:v=2")
		h.restored("a1:v=1@10")
		h.drop()
		h.restored("a1:v=1@10")
	}},
	{"backup: a write while it is made", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		n := h.backup().Number
		h.write("r", "set a1:v=2")
		h.endsNow(n)
		h.restored("a1:v=2")
	}},
	{"backup: lacks a write before it", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.backup()
		h.restored("a1:v=1")
	}},
	{"backup: lacks a row", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.backup()
		h.restored()
	}},
	{"backup: has a write after it", "rows", func(h *history) {
		h.create()
		h.backup()
		h.write("r", "set a1:v=1")
		h.restored("a1:v=1")
	}},
	{"backup: has a part of a mutation", "rows", func(h *history) {
		h.create()
		n := h.backup().Number
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.endsNow(n)
		h.restored("a1:v=1")
	}},
	{"backup: has another timestamp", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.backup()
		h.restored("a1:v=1@11")
	}},
	{"backup: a family is dropped meanwhile", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		n := h.backup().Number
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.write("r", "set a1:v=3")
		h.endsNow(n)
		h.restored("a1:v=1")
	}},
	{"backup: restored differently", "backups", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1")
		n := h.backup().Number
		h.write("r", "set b2:v=2")
		h.endsNow(n)
		h.restored("b2:v=1")
		h.restored("b2:v=2,1")
	}},
	{"backup: as of a time", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		at := h.later()
		h.write("r", "set a1:v=2")
		h.backupAt(at)
		h.restored("a1:v=1")
	}},
	{"backup: lacks a write before its time", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.later()
		h.write("r", "set a1:v=2")
		at := h.later()
		h.backupAt(at)
		h.restored("a1:v=1")
	}},
	{"backup: has a write after its time", "rows", func(h *history) {
		h.create()
		at := h.later()
		h.write("r", "set a1:v=1")
		h.backupAt(at)
		h.restored("a1:v=1")
	}},
	{"backup: lost", "backups", func(h *history) {
		h.create()
		h.backup()
		h.aboutBackup(workload.RestoreBackup, workload.NoBackup)
	}},
	{"backup: deleted", "", func(h *history) {
		h.create()
		h.backup()
		h.aboutBackup(workload.DeleteBackup, workload.NoReason)
		h.aboutBackup(workload.RestoreBackup, workload.NoBackup)
		h.aboutBackup(workload.ListBackups, workload.NoReason)
	}},
	{"backup: deleted by a call that was repeated", "", func(h *history) {
		h.create()
		h.backup()
		h.aboutBackup(workload.DeleteBackup, workload.NoBackup)
		h.aboutBackup(workload.ListBackups, workload.NoReason)
	}},
	{"backup: not listed", "backups", func(h *history) {
		h.create()
		h.backup()
		h.aboutBackup(workload.ListBackups, workload.NoReason)
	}},
}
