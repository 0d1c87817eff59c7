package table

import (
	"errors"
	"testing"
)

// TestMatchRowExamples: a row is skipped only if it can emit nothing and send nothing to a sink.
func TestMatchRowExamples(t *testing.T) {
	sink := func(row string) Filter { return Chain{RowRegex(row), Interleave{Sink{}, PassAll{}}, BlockAll{}} }
	for _, c := range []struct {
		name string
		f    Filter
		rows string // those of a, b and c that match
	}{
		{"a sink first", Interleave{sink("a"), sink("b")}, "ab"},
		{"a sink after cells", Interleave{RowRegex("a"), sink("b")}, "ab"},
		{"a sink before a block", Chain{Interleave{Chain{RowRegex("a"), Sink{}}, RowRegex("b")}, BlockAll{}}, "a"},
		{"a sink in a chain that goes on", Chain{Interleave{Chain{RowRegex("a"), Sink{}}, PassAll{}}, RowRegex("c")}, "ac"},
		{"a chain", Chain{RowRegex("a|b"), RowRegex("b|c")}, "b"},
		{"only true", Condition{RowRegex("a|b"), RowRegex("b|c"), nil}, "b"},
		{"only false", Condition{RowRegex("a"), nil, RowRegex("b|c")}, "bc"},
		{"both", Condition{RowRegex("a|b"), RowRegex("a"), RowRegex("c")}, "ac"},
		{"false everywhere", Condition{BlockAll{}, RowRegex("a"), RowRegex("c")}, "c"},
	} {
		p := mustCompile(t, c.f)
		var e Evaluator
		got := ""
		for _, row := range []string{"a", "b", "c"} {
			ok, err := e.MatchRow(p, []byte(row))
			if err != nil {
				t.Fatal(err)
			}
			cells, err := e.Eval(p, []byte(row), []Cell{{Family: "f", Value: []byte("v")}})
			if err != nil || len(cells) > 0 && !ok {
				t.Errorf("%s: row %s has %d cells, %v, and is passed over", c.name, row, len(cells), err)
			}
			if ok {
				got += row
			}
		}
		if got != c.rows {
			t.Errorf("%s: the rows are %s, want %s", c.name, got, c.rows)
		}
	}
}

// TestOffsetAtTheEnd: an offset equal to the number of cells leaves none, also for a condition.
func TestOffsetAtTheEnd(t *testing.T) {
	cells := []Cell{{Family: "f", Qualifier: []byte("a")}, {Family: "f", Qualifier: []byte("b")}}
	for offset, want := range map[int]int{0: 2, 1: 1, 2: 0, 3: 0} {
		var e Evaluator
		f := CellsPerRowOffset(offset)
		if got, err := e.Eval(mustCompile(t, f), []byte("r"), cells); err != nil || len(got) != want {
			t.Errorf("after an offset of %d there are %d cells, %v", offset, len(got), err)
		}
		if got, err := e.Matches(mustCompile(t, f), []byte("r"), cells); err != nil || got != (want > 0) {
			t.Errorf("after an offset of %d there are cells: %v, %v", offset, got, err)
		}
		if got, err := e.Eval(mustCompile(t, Condition{f, PassAll{}, nil}), []byte("r"), cells); err != nil || (len(got) > 0) != (want > 0) {
			t.Errorf("a condition after an offset of %d emits %d cells, %v", offset, len(got), err)
		}
	}
}

// paces counts the calls of Pace.
type paces struct{ calls int }

func (p *paces) Pace() error { p.calls++; return nil }
func (p *paces) Rest()       {}

// TestWorkIsExact: exactly the steps of the limit may be used, and the pacer is called after each
// slice.
func TestWorkIsExact(t *testing.T) {
	var w work
	w.begin(10, nil)
	var over *LimitError
	if !w.fits(10) || w.fits(11) || !w.spend(9) || !w.spend(1) || w.failed != nil {
		t.Errorf("of 10 steps %d are used, %v", w.used, w.failed)
	}
	if w.spend(1) || !errors.As(w.failed, &over) || over.Limit != 10 || over.Got != 11 || w.spend(0) || w.fits(0) {
		t.Errorf("after 11 of 10 steps: %v", w.failed)
	}
	p := &paces{}
	w.begin(3*workSlice, p)
	for i, n := range []int64{workSlice, 1, workSlice - 1, 1, 1} {
		if want := []int{0, 1, 1, 1, 2}[i]; !w.spend(n) || p.calls != want {
			t.Errorf("after %d steps the pacer was called %d times, want %d: %v", w.used, p.calls, want, w.failed)
		}
	}
	e := Evaluator{}
	e.work.begin(10, nil)
	for used, want := range map[int64]bool{5: false, 6: true} {
		if e.work.used = used; e.Tired() != want {
			t.Errorf("after %d of 10 steps, Tired: %v", used, !want)
		}
	}
}
