package judge

import "github.com/steledb/stele/test/simulation/workload"

// followed adds a read of row r of the follower.
func (h *history) followed(cells ...string) *workload.Op {
	op := h.read("r", cells...)
	op.Kind, op.Scan = workload.ScanFollower, &workload.Scan{Whole: true}
	if len(cells) > 0 {
		op.Scan.Rows = []workload.ScanRow{{Row: "r", Cells: op.Cells}}
	}
	op.Row, op.Cells = "", nil
	return op
}

// begin adds the creation of the table and of the replication.
func (h *history) begin() {
	h.create()
	h.add(workload.Op{Kind: workload.BeginFollow})
}

// lag adds a report of the follower.
func (h *history) lag(ms int64) *workload.Op {
	return h.add(workload.Op{Kind: workload.ReportFollow, Lag: ms})
}

// whole adds all changes of the source.
func (h *history) whole(all ...workload.StreamChange) {
	h.add(workload.Op{Kind: workload.SourceStream, Stream: &workload.Stream{After: -1, Changes: all}})
}

// wait lets ms pass.
func (h *history) wait(ms int64) { h.at += ms * 1_000_000 }

// twoChanges adds two writes, and between them reads of the follower.
func (h *history) twoChanges(reads func()) {
	h.begin()
	h.write("r", "set a1:v=1")
	h.write("r", "set a1:v=2")
	reads()
	h.whole(changed(1, "set a1:v=1"), changed(2, "set a1:v=2"))
}

var followerTests = []judged{
	{"follower: each state, late", "", func(h *history) {
		h.twoChanges(func() {
			h.followed()
			h.followed("a1:v=1")
			h.followed("a1:v=1")
			h.followed("a1:v=2")
		})
	}},
	{"follower: an earlier state", "followers", func(h *history) {
		h.twoChanges(func() {
			h.followed("a1:v=2")
			h.followed("a1:v=1")
		})
	}},
	{"follower: a row is gone again", "followers", func(h *history) {
		h.twoChanges(func() {
			h.followed("a1:v=2")
			h.followed()
		})
	}},
	{"follower: created again", "", func(h *history) {
		h.twoChanges(func() {
			h.followed("a1:v=2")
			h.add(workload.Op{Kind: workload.EndFollow})
			h.add(workload.Op{Kind: workload.BeginFollow})
			h.followed()
			h.followed("a1:v=2")
		})
	}},
	{"follower: read while it is removed", "", func(h *history) {
		h.twoChanges(func() {
			h.followed("a1:v=2")
			read := h.followed()
			h.add(workload.Op{Kind: workload.EndFollow})
			read.Return = h.at + 1
		})
	}},
	{"follower: a copy that is older than the replication", "followers", func(h *history) {
		h.twoChanges(func() {
			h.add(workload.Op{Kind: workload.EndFollow})
			h.add(workload.Op{Kind: workload.BeginFollow})
			h.followed("a1:v=1")
		})
	}},
	{"follower: no state of the source", "followers", func(h *history) {
		h.twoChanges(func() { h.followed("a1:v=3") })
	}},
	{"follower: an operand twice", "followers", func(h *history) {
		h.begin()
		h.write("r", "operand sum1:n=5@past0")
		h.followed("sum1:n=10@past0")
		h.whole(changed(1, "operand sum1:n=5@past0"))
	}},
	{"follower: the lag is right", "", func(h *history) {
		h.twoChanges(func() {
			h.wait(20)
			h.lag(21)
			h.followed()
			h.lag(5)
			h.followed("a1:v=2")
		})
	}},
	{"follower: the lag is too small", "followers", func(h *history) {
		h.twoChanges(func() {
			h.wait(20)
			h.lag(5)
			h.followed("a1:v=1")
		})
	}},
	{"follower: the lag of a copy", "followers", func(h *history) {
		h.twoChanges(func() {
			h.wait(20)
			h.lag(5)
			h.followed()
		})
	}},
	{"follower: cleared", "", func(h *history) {
		h.begin()
		h.write("r", "set a1:v=1")
		h.clear("", "")
		h.followed("a1:v=1")
		h.followed()
		h.whole(changed(1, "set a1:v=1"), workload.StreamChange{Seq: 2, Cleared: &workload.Scan{}})
	}},
	{"follower: cleared, and there again", "followers", func(h *history) {
		h.begin()
		h.write("r", "set a1:v=1")
		h.clear("", "")
		h.followed("a1:v=1")
		h.followed()
		h.followed("a1:v=1")
		h.whole(changed(1, "set a1:v=1"), workload.StreamChange{Seq: 2, Cleared: &workload.Scan{}})
	}},
	{"follower: a family that was dropped", "", func(h *history) {
		h.begin()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.followed("a1:v=1")
		h.followed("a1:v=1", "b2:v=2")
		h.whole(changed(1, "set a1:v=1"))
	}},
	{"follower: the stream lacks a change", "followers", func(h *history) {
		h.begin()
		h.write("r", "set a1:v=r")
		h.scan("r").Final = true
		h.whole()
	}},
}
