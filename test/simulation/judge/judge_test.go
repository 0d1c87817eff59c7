package judge

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/steledb/stele/test/simulation/workload"
)

// history builds histories. Each operation follows the one before, unless its times are changed.
type history struct {
	ops []workload.Op
	at  int64
}

// add adds an operation that succeeded.
func (h *history) add(op workload.Op) *workload.Op {
	op.Number, op.Call, op.Return = len(h.ops), h.at+1, h.at+2
	h.at += 2
	if op.Table == "" {
		op.Table = "t"
	}
	if op.Outcome == "" {
		op.Outcome = workload.OK
	}
	if op.Outcome == workload.Unknown {
		op.Return = workload.Infinity
	}
	h.ops = append(h.ops, op)
	return &h.ops[len(h.ops)-1]
}

func (h *history) create() *workload.Op {
	return h.add(workload.Op{Kind: workload.Create, Families: []string{"a1", "b2"}})
}

func (h *history) drop() *workload.Op { return h.add(workload.Op{Kind: workload.Drop}) }

func (h *history) clear(start, end string) *workload.Op {
	return h.add(workload.Op{Kind: workload.Clear, Scan: &workload.Scan{Start: start, End: end}})
}

// clearTests are histories with cleared ranges of rows, and with tables that are dropped and restored.
var clearTests = []judged{
	{"clear: rows", "", func(h *history) {
		h.create()
		h.write("a", "set a1:v=1")
		h.write("r", "set a1:v=1")
		h.clear("b", "s")
		h.read("a", "a1:v=1")
		h.read("r")
		h.write("r", "set a1:v=2")
		h.read("r", "a1:v=2")
	}},
	{"clear: repeated", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.clear("", "").Return = 100
		h.read("r")
		h.write("r", "set a1:v=2")
		h.read("r")
	}},
	{"clear: a row that is left", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.clear("", "")
		h.read("r", "a1:v=1")
	}},
	{"clear: a row outside", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.clear("", "r")
		h.read("r")
	}},
	{"clear: a later row", "rows", func(h *history) {
		h.create()
		h.clear("", "")
		h.write("r", "set a1:v=1")
		h.read("r")
	}},
	{"clear: dropped table", "dropped tables", func(h *history) {
		h.create()
		h.drop()
		h.clear("", "")
	}},
	{"undrop: rows and a new table", "", func(h *history) {
		h.create().TableID = 1
		h.write("r", "set a1:v=1")
		h.drop().Kept = true
		h.create().TableID = 2
		h.read("r")
		h.write("r", "set a1:v=2")
		h.drop()
		h.undrop(1)
		h.read("r", "a1:v=1")
	}},
	{"undrop: lost rows", "rows", func(h *history) {
		h.create().TableID = 1
		h.write("r", "set a1:v=1")
		h.drop().Kept = true
		h.undrop(1)
		h.read("r")
	}},
	{"undrop: another table", "rows", func(h *history) {
		h.create().TableID = 1
		h.write("r", "set a1:v=1")
		h.drop().Kept = true
		h.create().TableID = 2
		h.write("r", "set a1:v=2")
		h.drop().Kept = true
		h.undrop(1)
		h.read("r", "a1:v=2")
	}},
	{"undrop: a table that was dropped for good", "rows", func(h *history) {
		h.create().TableID = 1
		h.write("r", "set a1:v=1")
		h.drop()
		h.undrop(1)
		h.read("r", "a1:v=1")
	}},
}

func (h *history) undrop(id uint64) *workload.Op {
	return h.add(workload.Op{Kind: workload.Undrop, TableID: id})
}

// explicitTimes are timestamps that clients set.
var explicitTimes = map[string]int64{"past0": -86_400_000_000, "past1": -86_399_999_999, "future0": 86_400_000_000}

func changes(text ...string) (all []workload.Change) {
	for _, t := range text {
		kind, rest, _ := strings.Cut(t, " ")
		column, value, _ := strings.Cut(rest, "=")
		value, at, _ := strings.Cut(value, "@")
		x := workload.Change{Kind: workload.Set, Column: column, Value: value, At: explicitTimes[at]}
		switch kind {
		case "del":
			x.Kind = workload.DeleteColumn
		case "delfamily":
			x.Kind = workload.DeleteCells
		case "delrow":
			x.Kind = workload.DeleteRow
		case "delpast":
			x.Kind, x.From, x.To = workload.DeleteVersions, math.MinInt64, 0
		case "incr":
			x.Kind, x.Value, x.N = workload.Increment, "", int64(len(value))
		case "append":
			x.Kind = workload.Append
		case "operand":
			x.Kind, x.Value = workload.Operand, ""
			x.N, _ = strconv.ParseInt(value, 10, 64) // of a test
		}
		all = append(all, x)
	}
	return all
}

func (h *history) write(row string, text ...string) *workload.Op {
	return h.add(workload.Op{Kind: workload.Write, Row: row, Changes: changes(text...)})
}

func (h *history) unknown(row string, text ...string) *workload.Op {
	return h.add(workload.Op{Kind: workload.Write, Row: row, Changes: changes(text...), Outcome: workload.Unknown})
}

// cells parses cells such as "a1:v=x,y", or with timestamps, "a1:v=x@2,y@1".
func cells(text ...string) (all []workload.Cell) {
	for _, t := range text {
		column, values, _ := strings.Cut(t, "=")
		c := workload.Cell{Column: column}
		for _, value := range strings.Split(values, ",") {
			value, stamp, known := strings.Cut(value, "@")
			c.Values = append(c.Values, value)
			if n, err := strconv.ParseInt(stamp, 10, 64); known && err == nil {
				c.Stamps = append(c.Stamps, n)
			}
		}
		all = append(all, c)
	}
	return all
}

func (h *history) read(row string, text ...string) *workload.Op {
	return h.add(workload.Op{Kind: workload.Read, Row: row, Cells: cells(text...)})
}

func (h *history) scan(rows ...string) *workload.Op {
	s := &workload.Scan{Whole: true}
	for _, row := range rows {
		s.Rows = append(s.Rows, workload.ScanRow{Row: row, Cells: cells("a1:v=" + row)})
	}
	return h.add(workload.Op{Kind: workload.ScanAll, Scan: s})
}

// TestJudge tests that each judge rejects its bad histories, and no judge good ones.
func TestJudge(t *testing.T) {
	for _, test := range slices.Concat(rowTests, clearTests, tableTests, scanTests, aggregateTests, streamTests, lockTests, rightTests, blobTests, backupTests, viewTests, followerTests) {
		t.Run(test.name, func(t *testing.T) {
			h := &history{}
			test.make(h)
			r := Judge(h.ops, Options{})
			if len(r.Undecided) > 0 {
				t.Errorf("undecided: %q", r.Undecided)
			}
			found := false
			for _, v := range r.Violations {
				found = found || v.Invariant == test.bad
				if test.bad == "" {
					t.Errorf("%v", v)
				}
				if v.String() == "" || v.Time == 0 {
					t.Errorf("a violation without text or time: %+v", v)
				}
			}
			if test.bad != "" && !found {
				t.Errorf("no violation of %s, but %v", test.bad, r.Violations)
			}
		})
	}
}

// judged is a history with the invariant that it breaks; empty for none.
type judged struct {
	name, bad string
	make      func(h *history)
}

var rowTests = []judged{
	{"row: versions", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.write("r", "set a1:v=3", "set b2:v=4")
		h.write("r", "set b2:v=5")
		h.read("r", "a1:v=3", "b2:v=5,4")
	}},
	{"row: too many versions", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=3")
		h.read("r", "a1:v=3,1")
	}},
	{"row: stale read", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.read("r", "a1:v=1")
	}},
	{"row: concurrent write", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2").Return = 100
		h.read("r", "a1:v=1")
		h.read("r", "a1:v=2")
	}},
	{"row: concurrent write, then an old read", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2").Return = 100
		h.read("r", "a1:v=2")
		h.read("r", "a1:v=1")
	}},
	{"row: lost write", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.read("r")
	}},
	{"row: value of a failed write", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Outcome = workload.Failed
		h.read("r", "a1:v=1")
	}},
	{"row: torn mutation", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.write("r", "set a1:v=3", "set b2:v=4")
		h.read("r", "a1:v=3", "b2:v=2")
	}},
	{"row: deletions", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set a1:w=2", "set b2:v=3")
		h.write("r", "del a1:v")
		h.read("r", "a1:w=2", "b2:v=3")
		h.write("r", "delfamily a1")
		h.read("r", "b2:v=3")
		h.write("r", "delrow", "set a1:v=4")
		h.read("r", "a1:v=4")
	}},
	{"row: deleted value", "rows", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1")
		h.write("r", "set b2:v=2")
		h.write("r", "del b2:v")
		h.write("r", "set b2:v=3")
		h.read("r", "b2:v=3,2")
	}},
	{"row: unknown write, seen later", "", func(h *history) {
		h.create()
		h.unknown("r", "set a1:v=1")
		h.read("r")
		h.read("r", "a1:v=1")
	}},
	{"row: unknown write, seen and lost", "rows", func(h *history) {
		h.create()
		h.unknown("r", "set a1:v=1")
		h.read("r", "a1:v=1")
		h.read("r")
	}},
	{"row: modify", "", func(h *history) {
		h.create()
		h.modify("incr a1:n=xx", "2")
		h.modify("incr a1:n=x", "3")
		h.modify("append b2:log=1;", "1;")
		h.modify("append b2:log=2;", "1;2;")
		h.read("r", "a1:n=3", "b2:log=1;2;,1;")
	}},
	{"row: increment made twice", "rows", func(h *history) {
		h.create()
		h.modify("incr a1:n=x", "1")
		h.modify("incr a1:n=x", "3")
	}},
	{"row: unknown increment made twice", "rows", func(h *history) {
		h.create()
		h.modify("incr a1:n=x", "1").Outcome = workload.Unknown
		h.ops[1].Return = workload.Infinity
		h.read("r", "a1:n=2")
	}},
	{"row: checks", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.check("a1:v", "1", true, "2")
		h.check("a1:v", "1", false, "3")
		h.check("a1:w", "", false, "3")
		h.read("r", "a1:v=2", "b2:v=else,else")
	}},
	{"row: check that must not match", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.write("r", "set a1:v=2")
		h.check("a1:v", "1", true, "3")
	}},
	{"row: check that must match", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.check("a1:v", "", false, "3")
	}},
	{"row: read of a family", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.read("r", "b2:v=2").Families = []string{"b2"}
	}},
	{"row: dropped family", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.add(workload.Op{Kind: workload.SetFamily, Families: []string{"b2"}})
		h.read("r", "a1:v=1")
	}},
	{"row: cells of a dropped family", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.add(workload.Op{Kind: workload.SetFamily, Families: []string{"b2"}})
		h.read("r", "a1:v=1", "b2:v=2")
	}},
	{"row: write to a dropped family", "rows", func(h *history) {
		h.create()
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.write("r", "set b2:v=2")
	}},
	{"row: drops of a family beside each other", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}}).Call -= 2
		h.read("r", "a1:v=1")
	}},
	{"row: drops of a family one after the other", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1", "set b2:v=2")
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
		h.add(workload.Op{Kind: workload.DropFamily, Families: []string{"b2"}})
	}},
	{"row: drops beside each other", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.drop()
		h.drop().Call -= 2 // begins before the other has returned
		h.create()
		h.read("r")
	}},
	{"row: two drops", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.drop()
		h.drop()
	}},
	{"row: timestamps", "timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.write("r", "set a1:v=2").Stamp = 10
	}},
	{"row: timestamps of writes beside each other", "", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1").Stamp = 10
		x := h.write("r", "set b2:v=2")
		x.Stamp, x.Call = 9, x.Call-2
		h.read("r", "b2:v=1@10,2@9")
	}},
	{"row: timestamps against the order of values", "rows", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		x := h.write("r", "set a1:v=2")
		x.Stamp, x.Call = 9, x.Call-2
		h.read("r", "a1:v=2@9")
	}},
	{"row: timestamp that only a read shows", "timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.write("r", "set b2:v=2")
		h.read("r", "a1:v=1@10", "b2:v=2@10")
	}},
	{"row: timestamp that is not the answer's", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.read("r", "a1:v=1@11")
	}},
	{"row: timestamp of a counter that is not the answer's", "rows", func(h *history) {
		h.create()
		h.modify("incr a1:n=x", "1").Stamp = 10
		h.read("r", "a1:n=1@11")
	}},
	{"row: timestamp that changes", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.read("r", "a1:v=1@10")
		h.read("r", "a1:v=1@11")
	}},
	{"row: timestamp that changes in a scan", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.read("r", "a1:v=1@10")
		h.scan("r").Scan.Rows[0].Cells = cells("a1:v=1@11")
	}},
	{"row: versions out of order", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1")
		h.write("r", "set b2:v=2")
		h.read("r", "b2:v=2@10,1@10")
	}},
	{"row: timestamp from the past", "clocks", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = -stampSlack - 1
	}},
	{"row: timestamp from the future", "clocks", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = stampSlack + 1
	}},
	{"row: timestamp from the future that only a read shows", "clocks", func(h *history) {
		h.create()
		h.unknown("r", "set a1:v=1")
		h.read("r", fmt.Sprintf("a1:v=1@%d", stampSlack+1))
	}},
	{"row: timestamps of two lives", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1").Stamp = 10
		h.drop()
		h.create()
		h.write("r", "set a1:v=2").Stamp = 9
	}},
	{"row: timestamps that clients set", "", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1@past1")
		h.write("r", "set b2:v=2").Stamp = 10
		h.write("r", "set b2:v=3@past0") // out at once
		h.read("r", "b2:v=2@10,1@-86399999999")
		h.write("r", "set b2:v=4@future0")
		h.write("r", "set b2:v=5@future0", "set b2:v=6").Stamp = 15
		h.read("r", "b2:v=5@86400000000,6@15")
		h.modify("append b2:log=a;", "a;@20").Stamp = 20
		h.write("r", "set b2:log=b;@future0")
		h.modify("append b2:log=c;", "b;c;@86400000000")
		h.read("r", "b2:log=b;c;@86400000000,a;@20", "b2:v=5,6")
	}},
	{"row: several changes of a column", "", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1", "set b2:v=2", "set b2:w=3", "del b2:w", "set b2:w=4")
		h.read("r", "b2:v=2", "b2:w=4")
		h.write("r", "set b2:v=5", "del b2:v")
		h.read("r", "b2:w=4")
	}},
	{"row: a set that a deletion before it covers", "rows", func(h *history) {
		h.create()
		h.write("r", "del b2:w", "set b2:w=4")
		h.read("r")
	}},
	{"row: a set that a deletion after it does not cover", "rows", func(h *history) {
		h.create()
		h.write("r", "set b2:w=4", "del b2:w")
		h.read("r", "b2:w=4")
	}},
	{"row: two values with one timestamp", "rows", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1@past0")
		h.write("r", "set b2:v=2@past0")
		h.read("r", "b2:v=2,1")
	}},
	{"row: deleted versions", "", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1@past1")
		h.write("r", "set b2:v=2@past0")
		h.write("r", "delpast b2:v")
		h.read("r")
		h.write("r", "set b2:v=3@past1", "set b2:v=4")
		h.write("r", "delpast b2:v")
		h.read("r", "b2:v=4")
	}},
	{"row: a version that reappears", "rows", func(h *history) {
		h.create()
		h.write("r", "set b2:v=1")
		h.write("r", "set b2:v=2@past1", "set b2:v=3@past0") // 3 is out at once
		h.write("r", "delpast b2:v")
		h.write("r", "set b2:v=4@past1")
		h.read("r", "b2:v=1,3")
	}},
	{"row: another timestamp than the client set", "cell timestamps", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1@past0")
		h.read("r", "a1:v=1@5")
	}},
	{"client: corrupt", "clients", func(h *history) {
		h.create()
		h.add(workload.Op{Kind: workload.Read, Row: "r", Outcome: workload.Failed, Reason: workload.Wrong})
	}},
	{"client: note", "clients", func(h *history) { h.add(workload.Op{Kind: workload.Note, Bad: "bad"}) }},
}

func (h *history) modify(change, result string) *workload.Op {
	x := changes(change)
	return h.add(workload.Op{Kind: workload.Modify, Row: "r", Changes: x, Cells: cells(x[0].Column + "=" + result)})
}

func (h *history) check(column, value string, matched bool, next string) *workload.Op {
	return h.add(workload.Op{
		Kind: workload.Check, Row: "r", Predicate: &workload.Predicate{Column: column, Value: value}, Matched: matched,
		Changes: changes("set a1:v=" + next), Otherwise: changes("set b2:v=else"),
	})
}

var tableTests = []judged{
	{"table: write after a drop", "dropped tables", func(h *history) {
		h.create()
		h.drop()
		h.write("r", "set a1:v=1")
	}},
	{"table: write after a drop, by the model", "rows", func(h *history) {
		h.create()
		h.drop()
		h.write("r", "set a1:v=1")
	}},
	{"table: write during a drop", "", func(h *history) {
		h.create()
		h.drop().Return = 100
		h.write("r", "set a1:v=1")
	}},
	{"table: created again, empty", "", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.drop()
		h.create()
		h.read("r")
		h.write("r", "set a1:v=2")
		h.read("r", "a1:v=2")
	}},
	{"table: created again with old rows", "dropped tables", func(h *history) {
		h.create()
		h.write("r", "set a1:v=1")
		h.drop()
		h.create()
		h.read("r", "a1:v=1")
	}},
	{"table: created again by a call of unknown outcome", "", func(h *history) {
		h.create()
		h.drop()
		c := h.create()
		c.Outcome, c.Return = workload.Unknown, workload.Infinity
		h.write("r", "set a1:v=2")
		h.read("r", "a1:v=2")
	}},
	{"table: not found", "created tables", func(h *history) {
		h.create()
		h.add(workload.Op{Kind: workload.Read, Row: "r", Outcome: workload.Failed, Reason: workload.NoTable})
	}},
	{"table: not found after a drop", "", func(h *history) {
		h.create()
		h.drop()
		h.add(workload.Op{Kind: workload.Read, Row: "r", Outcome: workload.Failed, Reason: workload.NoTable})
	}},
}

var scanTests = []judged{
	{"scan: right", "", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		h.scan("1", "2")
	}},
	{"scan: a key twice", "scans", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.scan("1", "1")
	}},
	{"scan: descending", "scans", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		h.scan("2", "1")
	}},
	{"scan: outside", "scans", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.scan("1").Scan.Start = "2"
	}},
	{"scan: over the limit", "scans", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		h.scan("1", "2").Scan.Limit = 1
	}},
	{"scan: a row is missing", "scans", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		h.scan("2")
	}},
	{"scan: a row is missing, by the model", "rows", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		h.scan("2")
	}},
	{"scan: a row after the limit", "", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("2", "set a1:v=2")
		s := h.scan("1").Scan
		s.Limit, s.Whole = 1, false
	}},
	{"scan: a row that is deleted meanwhile", "", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.write("1", "delrow").Return = 100
		h.scan()
	}},
	{"scan: final reads differ", "final reads", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.scan("1").Final = true
		h.scan().Final = true
	}},
	{"scan: final reads", "", func(h *history) {
		h.create()
		h.write("1", "set a1:v=1")
		h.scan("1").Final = true
		h.scan("1").Final = true
	}},
}
