package table

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func quoteShort(b []byte) string { s := strconv.Quote(string(b)); return s[1 : len(s)-1] }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func mustCompile(t testing.TB, f Filter) *Program {
	t.Helper()
	p, err := Compile(f)
	if err != nil {
		t.Fatalf("compile %.200q: %v", fmt.Sprintf("%#v", f), err)
	}
	return p
}

func cloneCells(cells []Cell) []Cell {
	out := slices.Clone(cells)
	for i := range out {
		out[i].Qualifier = slices.Clone(out[i].Qualifier)
		out[i].Value = slices.Clone(out[i].Value)
	}
	return out
}

// TestEvalAgainstDefinition evaluates random filters on random rows. The result equals that of the
// reference, the input is unchanged, and Matches, MatchRow and Rows agree.
func TestEvalAgainstDefinition(t *testing.T) {
	var e Evaluator // shared by all cases to exercise reuse of its buffers
	rapid.Check(t, func(t *rapid.T) {
		f := genFilter(t, allLeaves, 5, true, true)
		p, err := Compile(f)
		if err != nil {
			t.Fatalf("compile %#v: %v", f, err)
		}
		rows, some := p.Rows()
		for range 2 {
			cells, key := genCells(t), genKey(t)
			before := cloneCells(cells)
			got, err := e.Eval(p, key, cells)
			if err != nil {
				t.Fatalf("eval %#v: %v", f, err)
			}
			want := refEval(f, key, before, programCoin(p, key))
			if g, w := cellsText(got), cellsText(want); g != w {
				t.Fatalf("filter %#v\nkey %q\nin\n%sgot\n%swant\n%s", f, key, cellsText(before), g, w)
			}
			if cellsText(before) != cellsText(cells) {
				t.Fatalf("filter %#v changed its input", f)
			}
			if ok, err := e.Matches(p, key, cells); err != nil || ok != (len(want) > 0) {
				t.Fatalf("filter %#v: Matches %v, %v; Eval returns %d cells", f, ok, err, len(want))
			}
			if len(want) > 0 && (!matchRow(p, key) || !some || !rows.Contains(key)) {
				t.Fatalf("filter %#v emits cells of row %q that MatchRow or Rows excludes", f, key)
			}
			if rapid.Bool().Draw(t, "reset") {
				e.Reset()
			}
		}
	})
}

func cell(family, qualifier string, ts int64, value string, labels ...string) Cell {
	return Cell{family, []byte(qualifier), ts, []byte(value), labels}
}

// TestEvalExamples covers the examples and statements of the Cloud Bigtable reference
// (google.bigtable.v2.RowFilter).
func TestEvalExamples(t *testing.T) {
	row := []Cell{
		cell("cf", "a", 30, "new"), cell("cf", "a", 20, "mid"), cell("cf", "a", 10, "old"),
		cell("cf", "b", 20, "line1\nline2"), cell("cf", "nul\x00", 5, "\x00\xff"),
		cell("stats", "a", 7, "1"), cell("stats", "os", 6, "PQ2A.190405"),
	}
	rng := func(start, end Bound) ByteRange { return ByteRange{start, end} }
	b := func(s string) []byte { return []byte(s) }
	tests := []struct {
		name string
		f    Filter
		want []int // indexes in row
	}{
		{"nil passes", nil, []int{0, 1, 2, 3, 4, 5, 6}},
		{"pass", PassAll{}, []int{0, 1, 2, 3, 4, 5, 6}},
		{"block", BlockAll{}, nil},
		{"row matches whole", RowRegex("com\\.cnn\\..*"), []int{0, 1, 2, 3, 4, 5, 6}},
		{"row matches part only", RowRegex("com"), nil},
		{"family", FamilyRegex("cf"), []int{0, 1, 2, 3, 4}},
		{"family is matched whole", FamilyRegex("c"), nil},
		{"family alternatives", FamilyRegex("cf|stats"), []int{0, 1, 2, 3, 4, 5, 6}},
		{"qualifier", QualifierRegex("a"), []int{0, 1, 2, 5}},
		{"qualifier of other bytes", QualifierRegex(`nul\C`), []int{4}},
		{"value", ValueRegex("PQ2A.*"), []int{6}},
		{"dot is no newline", ValueRegex("line1.*"), nil},
		{"any byte is", ValueRegex(`line1\C*`), []int{3}},
		{"byte values", ValueRegex("\\x00\\xff"), []int{4}},
		{"column range closed", ColumnRange{"cf", rng(Closed(b("a")), Closed(b("b")))}, []int{0, 1, 2, 3}},
		{"column range open", ColumnRange{"cf", rng(Open(b("a")), Open(b("nul\x00")))}, []int{3}},
		{"column range is of one family", ColumnRange{"stats", ByteRange{}}, []int{5, 6}},
		{"value range", ValueRange(rng(Closed(b("m")), Open(b("o")))), []int{0, 1}},
		{"value mask", ValueMask("\x02\x00\x00"), []int{0, 2}},
		{"value mask of another length", ValueMask("\x00\x00"), []int{4}},
		{"value mask of many bytes", ValueMask("P\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), []int{6}},
		{"timestamps", TimestampRange{10, Before(30)}, []int{1, 2, 3}},
		{"timestamps without end", TimestampRange{Start: 20}, []int{0, 1, 3}},
		{"timestamps of nothing", TimestampRange{20, Before(20)}, nil},
		{"first cells", CellsPerRowLimit(2), []int{0, 1}},
		{"more than there are", CellsPerRowLimit(100), []int{0, 1, 2, 3, 4, 5, 6}},
		{"all but the first", CellsPerRowOffset(5), []int{5, 6}},
		{"offset beyond", CellsPerRowOffset(7), nil},
		{"newest of each column", CellsPerColumnLimit(1), []int{0, 3, 4, 5, 6}},
		{"newest two", CellsPerColumnLimit(2), []int{0, 1, 3, 4, 5, 6}},
		{"chain narrows", Chain{FamilyRegex("cf"), CellsPerColumnLimit(2), TimestampRange{0, Before(30)}}, []int{1, 3, 4}},
		{"chain order counts", Chain{FamilyRegex("cf"), TimestampRange{0, Before(30)}, CellsPerColumnLimit(1)}, []int{1, 3, 4}},
		{"versions, then a time before them", Chain{CellsPerColumnLimit(1), TimestampRange{0, Before(20)}}, []int{4, 5, 6}},
		{"interleave merges", Interleave{FamilyRegex("stats"), QualifierRegex("b")}, []int{3, 5, 6}},
		{"interleave keeps copies", Interleave{QualifierRegex("b"), ValueRegex(`line\C*`)}, []int{3, 3}},
		{"copies count singly", Chain{Interleave{PassAll{}, PassAll{}}, CellsPerColumnLimit(3)},
			[]int{0, 0, 1, 3, 3, 4, 4, 5, 5, 6, 6}},
		{"copies count in the row", Chain{Interleave{PassAll{}, PassAll{}}, CellsPerRowLimit(3)}, []int{0, 0, 1}},
		{"true branch", Condition{ValueRegex("new"), FamilyRegex("stats"), PassAll{}}, []int{5, 6}},
		{"false branch", Condition{ValueRegex("none"), FamilyRegex("stats"), QualifierRegex("b")}, []int{3}},
		{"no true branch", Condition{ValueRegex("new"), nil, PassAll{}}, nil},
		{"no false branch", Condition{ValueRegex("none"), PassAll{}, nil}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var e Evaluator
			got, err := e.Eval(mustCompile(t, tc.f), []byte("com.cnn.www"), row)
			if err != nil {
				t.Fatal(err)
			}
			var want []Cell
			for _, i := range tc.want {
				want = append(want, row[i])
			}
			if g, w := cellsText(got), cellsText(want); g != w {
				t.Errorf("got\n%swant\n%s", g, w)
			}
		})
	}
}

// TestInterleaveExample is the diagram for Interleave in the reference.
func TestInterleaveExample(t *testing.T) {
	row := []Cell{
		cell("far", "bar", 7, "a"), cell("far", "blah", 5, "x"),
		cell("foo", "bar", 10, "x"), cell("foo", "blah", 11, "z"),
	}
	var e Evaluator
	got, err := e.Eval(mustCompile(t, Interleave{
		FamilyRegex("foo"), Chain{FamilyRegex("foo"), QualifierRegex("bar"), StripValue{}},
		Interleave{FamilyRegex("far"), Chain{QualifierRegex("blah"), FamilyRegex("far")}},
	}), []byte("r"), row)
	if err != nil {
		t.Fatal(err)
	}
	want := "far:bar@7=a\nfar:blah@5=x\nfar:blah@5=x\nfoo:bar@10=x\nfoo:bar@10=\nfoo:blah@11=z\n"
	if g := cellsText(got); g != want {
		t.Errorf("got\n%swant\n%s", g, want)
	}
}

// TestSinkExample is the diagram for Sink in the reference.
func TestSinkExample(t *testing.T) {
	row := []Cell{cell("A", "A", 1, "w"), cell("A", "B", 2, "x"), cell("B", "B", 4, "z")}
	var e Evaluator
	got, err := e.Eval(mustCompile(t, Chain{
		FamilyRegex("A"), Interleave{PassAll{}, Chain{ApplyLabel("foo"), Sink{}}}, QualifierRegex("B"),
	}), []byte("r"), row)
	if err != nil {
		t.Fatal(err)
	}
	want := "A:A@1=w #foo\nA:B@2=x #foo\nA:B@2=x\n"
	if g := cellsText(got); g != want {
		t.Errorf("got\n%swant\n%s", g, want)
	}
}

// TestInterleaveIsBounded: filters that double a row repeatedly fail with a typed error before they
// allocate memory.
func TestInterleaveIsBounded(t *testing.T) {
	double := Interleave{PassAll{}, PassAll{}}
	var chain Chain
	for range 60 {
		chain = append(chain, double)
	}
	wide := make(Interleave, 400)
	row := make([]Cell, 100)
	for i := range row {
		row[i] = cell("f", fmt.Sprintf("%03d", i), 1, "v")
	}
	for _, f := range []Filter{chain, Chain{wide, wide}, Interleave{wide, Chain{wide, Sink{}}, chain}} {
		var e Evaluator
		p := mustCompile(t, f)
		_, err := e.Eval(p, []byte("r"), row)
		var limit *LimitError
		if !errors.As(err, &limit) || !errors.Is(err, ErrLimit) {
			t.Fatalf("error %v, want a *LimitError", err)
		}
		// The Evaluator remains usable.
		out, err := e.Eval(mustCompile(t, double), []byte("r"), row)
		if err != nil || len(out) != 200 {
			t.Fatalf("after an error: %d cells, %v", len(out), err)
		}
	}
}

// TestSample: decisions are stable for a seed, differ between seeds and between samples of one
// filter, and have the requested probability.
func TestSample(t *testing.T) {
	p := mustCompile(t, RowSample(0.25))
	p.seed = 42
	cells := []Cell{cell("f", "q", 1, "v")}
	var e Evaluator
	const rows = 20000
	kept, same := 0, 0
	q := *p
	q.seed = 43
	for i := range rows {
		key := []byte(fmt.Sprint("row", i))
		out, err := e.Eval(p, key, cells)
		if err != nil {
			t.Fatal(err)
		}
		if matchRow(p, key) != (len(out) == 1) {
			t.Fatal("MatchRow and Eval differ")
		}
		if len(out) == 1 {
			kept++
			if matchRow(&q, key) {
				same++
			}
		}
	}
	// Five standard deviations: sqrt(20000 × 0.25 × 0.75) = 61.
	if kept < rows/4-306 || kept > rows/4+306 {
		t.Errorf("kept %d of %d rows, want a quarter", kept, rows)
	}
	if same < kept/4-154 || same > kept/4+154 {
		t.Errorf("seeds agree on %d of %d rows, want a quarter", same, kept)
	}
}

func TestCompileErrors(t *testing.T) {
	var deep Filter = PassAll{}
	for range 20 {
		deep = Chain{deep}
	}
	wide := make(Interleave, 1000)
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'a'
	}
	rev := ByteRange{Closed([]byte("b")), Closed([]byte("a"))}
	tests := []struct {
		f    Filter
		path string
		text string
		is   error
	}{
		{FamilyRegex("a:b"), "root", "':'", nil},
		{QualifierRegex("a)(b"), "root", "unexpected )", nil},
		{Chain{PassAll{}, ValueRegex("[")}, "chain[1]", "missing closing ]", nil},
		{ValueRegex("\\\xe9"), "root", "invalid escape", nil},
		{RowSample(0), "root", "probability", nil},
		{RowSample(1), "root", "probability", nil},
		{CellsPerRowLimit(0), "root", "cells_limit of 0", nil},
		{CellsPerColumnLimit(-1), "root", "versions of -1", nil},
		{CellsPerRowOffset(-1), "root", "cells_offset of -1", nil},
		{TimestampRange{5, Before(4)}, "root", "bad timestamp range", nil},
		{TimestampRange{-1, Before(4)}, "root", "bad timestamp range", nil},
		{ColumnRange{"", ByteRange{}}, "root", "is empty", ErrBadName},
		{ColumnRange{"f", rev}, "root", "ends before it starts", nil},
		{ValueRange(rev), "root", "ends before it starts", nil},
		{ValueRange{Start: Bound{Kind: 9}}, "root", "unknown kind", nil},
		{ValueMask(make([]byte, 30000)), "root", "filter bytes", ErrLimit},
		{ApplyLabel(""), "root", "label", nil},
		{ApplyLabel("UPPER"), "root", "label", nil},
		{ApplyLabel("0123456789abcdef"), "root", "label", nil},
		{Chain{}, "root", "no parts", nil},
		{Interleave{}, "root", "no parts", nil},
		{Chain{ApplyLabel("a"), Interleave{PassAll{}, ApplyLabel("b")}}, "root", "more than one part", nil},
		{Interleave{PassAll{}, Condition{PassAll{}, Chain{Sink{}}, nil}}, "interleave[1].condition.true.chain[0]", "sink", nil},
		{Condition{Predicate: Sink{}}, "condition.predicate", "sink", nil},
		{deep, "", "levels of a filter: 21 is over the limit of 20", ErrLimit},
		{wide, "interleave[999]", "filters in one tree: 1001 is over the limit of 1000", ErrLimit},
		{ValueRegex(long), "root", "pattern bytes", ErrLimit},
		{ValueRange{Start: Closed(make([]byte, 30000))}, "root", "filter bytes", ErrLimit},
		{ValueRegex(`(\pL{1000}x\pL{1000}y){1}`), "root", "bytes of compiled patterns", ErrLimit},
		{ValueRegex(`((a{100}){10}){10}`), "root", "invalid repeat", nil},
	}
	for _, tc := range tests {
		_, err := Compile(tc.f)
		var fe *FilterError
		if !errors.As(err, &fe) || !errors.Is(err, ErrBadFilter) {
			t.Errorf("%.60q: error %v, want a *FilterError", fmt.Sprintf("%#v", tc.f), err)
			continue
		}
		if tc.path != "" && fe.Path != tc.path {
			t.Errorf("error %q has path %q, want %q", err, fe.Path, tc.path)
		}
		if !contains(err.Error(), tc.text) {
			t.Errorf("error %q does not contain %q", err, tc.text)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("error %q is not %q", err, tc.is)
		}
	}
}

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// matchRow calls MatchRow of a new Evaluator.
func matchRow(p *Program, key []byte) bool {
	var e Evaluator
	ok, err := e.MatchRow(p, key)
	return ok || err != nil
}

func (p *Program) matchKey(n *node, key []byte) bool {
	e := Evaluator{p: p, key: key}
	return e.matchKey(n)
}

// TestDraw: each draw of a program with samples makes different decisions. A program without
// samples is returned as is.
func TestDraw(t *testing.T) {
	p := mustCompile(t, Chain{Interleave{PassAll{}, RowSample(0.5)}, RowSample(0.5)})
	q := p.Draw()
	differ := 0
	for i := range 1000 {
		if key := []byte(fmt.Sprint("row", i)); matchRow(p, key) != matchRow(q, key) {
			differ++
		}
	}
	// Each passes about half of the rows, so half of the decisions differ.
	if differ < 300 {
		t.Errorf("decisions about %d of 1000 rows differ", differ)
	}
	if p := mustCompile(t, RowRegex("a")); p.Draw() != p {
		t.Error("a program without samples is copied")
	}
}
