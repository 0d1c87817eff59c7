package judge

import "github.com/steledb/stele/test/simulation/workload"

// stream reads changes of row r of the change stream after another call, whose number is after.
func (h *history) stream(after *workload.Op, changed ...workload.StreamChange) *workload.Op {
	s := &workload.Stream{After: -1, Changes: changed}
	if after != nil {
		s.After = after.Number
	}
	return h.add(workload.Op{Kind: workload.ReadStream, Stream: s})
}

// changed returns a change of row r as a stream has it.
func changed(seq uint64, text ...string) workload.StreamChange {
	return workload.StreamChange{Row: "r", Seq: seq, Changes: changes(text...)}
}

// streamTests are histories of readers of change streams.
var streamTests = []judged{
	{"stream: all changes in order", "", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1", "set b2:v=2@past0")
		h.write("r", "del a1:v", "set b2:v=3")
		b := h.stream(a, changed(4, "set a1:v=1", "set b2:v=2@past0"))
		h.write("r", "delrow")
		c := h.stream(b, changed(6, "del a1:v", "set b2:v=3"), changed(7, "delrow"))
		h.stream(c)
		h.stream(b, changed(6, "del a1:v", "set b2:v=3")) // another reader
	}},
	{"stream: unknown outcomes", "", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.unknown("r", "set a1:v=1")
		h.unknown("r", "set a1:v=2")
		h.stream(h.stream(a, changed(4, "set a1:v=2")))
	}},
	{"stream: repeated", "", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1@past0")
		h.stream(h.stream(a, changed(1, "set a1:v=1@past0"), changed(2, "set a1:v=1@past0")))
	}},
	{"stream: lost", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.stream(h.stream(a, changed(2, "set a1:v=2")))
	}},
	{"stream: lost by one reader", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1")
		h.stream(h.stream(a, changed(1, "set a1:v=1")))
		h.stream(a)
	}},
	{"stream: twice", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1")
		h.stream(h.stream(a, changed(1, "set a1:v=1")), changed(2, "set a1:v=1"))
	}},
	{"stream: twice, of unknown outcome", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.unknown("r", "operand a1:n=1@past0")
		h.stream(a, changed(1, "operand a1:n=1@past0"), changed(2, "operand a1:n=1@past0"))
	}},
	{"stream: not in order", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.stream(a, changed(1, "set a1:v=2"), changed(2, "set a1:v=1"))
	}},
	{"stream: numbers not in order", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.stream(a, changed(2, "set a1:v=1"), changed(1, "set a1:v=2"))
	}},
	{"stream: a part", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.stream(a, changed(1, "set a1:v=1"))
	}},
	{"stream: a write that failed", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1").Outcome = workload.Failed
		h.stream(a, changed(1, "set a1:v=1"))
	}},
	{"stream: another timestamp", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.write("r", "set a1:v=1").Stamp = 5
		x := changed(1, "set a1:v=1")
		x.Changes[0].At = 6
		h.stream(a, x)
	}},
	{"stream: counters and logs", "", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.add(workload.Op{Kind: workload.Modify, Row: "r", Changes: changes("incr a1:n=x"), Cells: cells("a1:n=1")})
		h.add(workload.Op{Kind: workload.Modify, Row: "r", Changes: changes("append b2:log=1.1;"), Cells: cells("b2:log=1.1;")})
		h.add(workload.Op{Kind: workload.Modify, Row: "r", Changes: changes("append b2:log=1.2;"), Cells: cells("b2:log=1.1;1.2;")})
		h.stream(h.stream(a, changed(1, "set a1:n=1"), changed(2, "set b2:log=1.1;"), changed(3, "set b2:log=1.1;1.2;")))
	}},
	{"stream: conditional mutations", "", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.add(workload.Op{Kind: workload.Check, Row: "r", Predicate: &workload.Predicate{Column: "a1:v"}, Changes: changes("set a1:v=1"), Otherwise: changes("set a1:v=2")})
		h.stream(h.stream(a, changed(1, "set a1:v=2")))
	}},
	{"stream: the other mutation", "change streams", func(h *history) {
		h.create()
		a := h.stream(nil)
		h.add(workload.Op{Kind: workload.Check, Row: "r", Predicate: &workload.Predicate{Column: "a1:v"}, Changes: changes("set a1:v=1"), Otherwise: changes("set a1:v=2")})
		h.stream(a, changed(1, "set a1:v=1"))
	}},
}
