package faults

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestRowModel tests the checker of rows: the last operation of each history is accepted as it is,
// and rejected with the other answer.
func TestRowModel(t *testing.T) {
	type done struct {
		rowCall
		rowAnswer
	}
	put := func(v string) rowCall { return rowCall{Kind: "put", Row: "r", Value: v} }
	cas := func(old, v string) rowCall { return rowCall{Kind: "cas", Row: "r", Old: old, Value: v} }
	get, del, incr := rowCall{Kind: "get", Row: "r"}, rowCall{Kind: "delete", Row: "r"}, rowCall{Kind: "incr", Row: "r"}
	ok, unknown, none := rowAnswer{}, rowAnswer{Unknown: true}, rowAnswer{}
	is := func(v string, n int64) rowAnswer { return rowAnswer{Value: v, N: n} }
	for name, test := range map[string]struct {
		before       []done
		last         rowCall
		right, wrong rowAnswer
	}{
		"stale get":            {[]done{{put("a"), ok}, {put("b"), ok}}, get, is("b", 0), is("a", 0)},
		"lost put":             {[]done{{put("a"), ok}}, get, is("a", 0), none},
		"deleted":              {[]done{{put("a"), ok}, {incr, is("", 1)}, {del, ok}}, get, none, is("a", 1)},
		"unknown, made":        {[]done{{put("a"), ok}, {put("b"), unknown}, {get, is("b", 0)}}, get, is("b", 0), is("a", 0)},
		"unknown, not yet":     {[]done{{put("a"), ok}, {put("b"), unknown}}, get, is("a", 0), is("c", 0)},
		"cas":                  {[]done{{put("a"), ok}, {cas("a", "b"), rowAnswer{Matched: true}}}, get, is("b", 0), is("a", 0)},
		"cas that must not":    {[]done{{put("a"), ok}, {put("b"), ok}}, cas("a", "c"), rowAnswer{}, rowAnswer{Matched: true}},
		"increment made twice": {[]done{{incr, is("", 1)}}, incr, is("", 2), is("", 3)},
		"unknown increment":    {[]done{{incr, is("", 1)}, {incr, unknown}}, incr, is("", 3), is("", 4)},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(last rowAnswer) bool {
				var history []porcupine.Operation
				for i, d := range append(test.before, done{test.last, last}) {
					op := porcupine.Operation{Input: d.rowCall, Output: d.rowAnswer, Call: int64(2 * i), Return: int64(2*i + 1)}
					if d.Unknown {
						op.Return = 1000
					}
					history = append(history, op)
				}
				whole := porcupine.CheckOperations(rowModel, history)
				if !whole && porcupine.CheckOperations(rowModel, withoutUnseenRows(history)) {
					t.Errorf("%+v is accepted without unseen writes", last)
				}
				return whole
			}
			if !check(test.right) {
				t.Errorf("%+v is rejected", test.right)
			}
			if check(test.wrong) {
				t.Errorf("%+v is accepted", test.wrong)
			}
		})
	}
}

// TestUserChecks tests the other checks.
func TestUserChecks(t *testing.T) {
	count := func(from, to, n int64) rowOp {
		return rowOp{rowCall{Kind: "count", Row: "c"}, rowAnswer{N: n, Unknown: n == 0}, 1, from, to}
	}
	watch := func(from, to, n int64) rowOp {
		op := count(from, to, n)
		op.Kind = "watch"
		return op
	}
	for name, test := range map[string]struct {
		ops   []rowOp
		final int64
		bad   int
	}{
		"watched":         {[]rowOp{count(1, 2, 1), watch(3, 4, 1), count(3, 9, 2), watch(5, 6, 2)}, 2, 0},
		"a stale read":    {[]rowOp{count(1, 2, 1), count(3, 4, 2), watch(5, 6, 1)}, 2, 1},
		"right":           {[]rowOp{count(1, 2, 1), count(3, 4, 2), count(3, 9, 0), count(5, 6, 4)}, 4, 0},
		"lost":            {[]rowOp{count(1, 2, 1), count(3, 4, 2)}, 1, 1},
		"made twice":      {[]rowOp{count(1, 2, 1), count(3, 4, 2)}, 3, 1},
		"the same sum":    {[]rowOp{count(1, 4, 1), count(2, 3, 1)}, 2, 1},
		"a sum goes back": {[]rowOp{count(1, 2, 2), count(3, 4, 1)}, 2, 1},
	} {
		if bad := miscounted("c", test.ops, test.final); len(bad) != test.bad {
			t.Errorf("counter, %s: %q, want %d", name, bad, test.bad)
		}
	}
	moved := func(n int64, matched bool) rowOp {
		return rowOp{rowCall{Kind: "transfer", Row: "a", N: n}, rowAnswer{Matched: matched}, 1, 1, 2}
	}
	if bad := twice("a", []rowOp{moved(1, true), moved(1, false), moved(2, true)}); len(bad) != 0 {
		t.Error(bad)
	}
	if bad := twice("a", []rowOp{moved(1, true), moved(1, true)}); len(bad) != 1 {
		t.Errorf("a transfer that was made twice: %q", bad)
	}
	stamped := func(from, to, at int64) rowOp {
		return rowOp{rowCall{Kind: "put", Row: "r"}, rowAnswer{Stamp: at}, 1, from, to}
	}
	h := &userHistories{ops: []rowOp{stamped(1, 2, 10), stamped(1, 4, 9), stamped(3, 5, 11)}}
	if bad := h.backward(); len(bad) != 0 {
		t.Error(bad)
	}
	h.ops = append(h.ops, stamped(6, 7, 11))
	if bad := h.backward(); len(bad) != 1 {
		t.Errorf("a timestamp that is given again: %q", bad)
	}
	for name, test := range map[string]struct {
		names map[string]string
		rows  int
		bad   int
	}{
		"right":             {map[string]string{"1": "2", "2": "3", "3": "1"}, 3, 0},
		"a lost row":        {map[string]string{"1": "2", "3": "1"}, 3, 3}, // it is missing, and the row that it named is named by none
		"a row named twice": {map[string]string{"1": "2", "2": "1", "3": "1"}, 3, 2},
	} {
		l := listCheck{names: test.names}
		if bad := l.check(test.rows); len(bad) != test.bad {
			t.Errorf("list, %s: %q, want %d", name, bad, test.bad)
		}
	}
	l := listCheck{names: map[string]string{}}
	l.add("2", "1")
	l.add("1", "2")
	if bad := l.check(2); len(bad) != 1 {
		t.Errorf("list out of order: %q", bad)
	}
	scan := rowOp{rowCall{Kind: "scan", Row: "a"}, rowAnswer{Rows: []rowSeen{{"c", "x", 0}}}, 1, 10, 11}
	h = &userHistories{ops: []rowOp{{rowCall{Kind: "put", Row: "b", Value: "y"}, rowAnswer{}, 1, 1, 2}, {rowCall{Kind: "put", Row: "c", Value: "x"}, rowAnswer{}, 1, 1, 2}, scan}}
	if porcupine.CheckOperations(rowModel, h.rowOps()) {
		t.Error("a scan that omits a row is accepted")
	}
}

// TestRefused tests which failures count as violations during a drain and restart without another
// fault.
func TestRefused(t *testing.T) {
	second := int64(time.Second)
	failed := func(from, to int64, err string) rowOp {
		return rowOp{rowCall{Kind: "put", Row: "r"}, rowAnswer{Error: err}, 1, from * second, to * second}
	}
	late := "call mutate_row: " + context.DeadlineExceeded.Error()
	for name, test := range map[string]struct {
		op  rowOp
		bad int
	}{
		"refused":             {failed(11, 11, "not serving"), 1},
		"waited, given up":    {failed(11, 12, "not serving"), 0},
		"waited in vain":      {failed(11, 17, "not serving"), 1},
		"given up soon":       {failed(11, 14, late), 0},
		"waited for too long": {failed(11, 17, late), 1},
		"user ends":           {failed(11, 12, context.Canceled.Error()), 0},
		"before":              {failed(9, 12, "not serving"), 0},
		"after":               {failed(19, 21, "not serving"), 0},
	} {
		h := &userHistories{failed: []rowOp{test.op}}
		if bad := h.refused([]period{{10 * second, 20 * second}}); len(bad) != test.bad {
			t.Errorf("%s: %q, want %d", name, bad, test.bad)
		}
	}
}

// TestTornHistory tests that pending operations of a killed user have an unknown outcome, and that
// only the last line of a killed user's history may be incomplete.
func TestTornHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "user.jsonl")
	write := func(lines string) {
		if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := `{"At":1,"Op":1,"Call":{"Kind":"put","Row":"r","Value":"1.1"}}` + "\n"
	write(call + `{"At":2,"Op":1,"Go`)
	h := &userHistories{}
	if err := h.read(1, path, true); err != nil {
		t.Error(err)
	}
	if len(h.ops) != 1 || !h.ops[0].Unknown || h.ops[0].to != math.MaxInt64 {
		t.Errorf("a pending write is %+v, want an unknown outcome", h.ops)
	}
	if err := (&userHistories{}).read(1, path, false); err == nil {
		t.Error("an incomplete line of a user that was not killed is accepted")
	}
	write(`{"At":2,"Op` + "\n" + call)
	if err := (&userHistories{}).read(1, path, true); err == nil {
		t.Error("an incomplete line in the middle is accepted")
	}
}
