package table

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// turns is a Pacer that counts its calls and fails after a set number of turns.
type turns struct {
	paced, rested int
	until         int // turns; 0 means unbounded
	in            bool
}

var errTurnsOver = errors.New("no turns left")

func (p *turns) Pace() error {
	p.in = true
	if p.paced++; p.paced == p.until {
		return errTurnsOver
	}
	return nil
}

func (p *turns) Rest() { p.in, p.rested = false, p.rested+1 }

// engineCell returns a cell whose value makes the pattern `.*(?:x?){60}y` do its maximum work.
func engineCell(size int) []Cell {
	return []Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1, Value: bytes.Repeat([]byte("x"), size)}}
}

const slowPattern = `.*(?:x?){60}y`

// TestMatchingIsSliced: matching a large value calls Pace for each slice, calls Rest at the end,
// and returns the same result as a single call of the engine.
func TestMatchingIsSliced(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		tail    string
	}{{slowPattern, ""}, {slowPattern, "y"}, {`(?:x|z)+\C?`, "q"}, {`(?:x|z)+`, "q"}, {`x+[^x]y\b`, "zy"}} {
		cells := engineCell(50 << 10)
		cells[0].Value = append(cells[0].Value, tc.tail...)
		p := mustCompile(t, ValueRegex(tc.pattern))
		want := p.root.m.re.Match(cells[0].Value)
		var e Evaluator
		var pace turns
		e.Begin(0, &pace)
		out, err := e.Eval(p, []byte("r"), cells)
		if err != nil || len(out) == 1 != want {
			t.Errorf("%s with %q at the end: %d cells, %v, want a match: %v", tc.pattern, tc.tail, len(out), err, want)
		}
		if least := int(e.work.used / (2 * workSlice)); pace.paced < least || pace.in || e.work.used < 50<<10 {
			t.Errorf("%s: %d turns in %d steps, still in one: %v", tc.pattern, pace.paced, e.work.used, pace.in)
		}
	}
}

// TestMatchingEnds: a pacer error or the step limit stops a match midway. Nothing more is evaluated
// for that request, in any part of the filter.
func TestMatchingEnds(t *testing.T) {
	cells := engineCell(50 << 10)
	key := bytes.Repeat([]byte("x"), 60<<10)
	many := make([]Cell, 20_000)
	for i := range many {
		many[i] = Cell{Family: "f", Qualifier: fmt.Appendf(nil, "%06d", i), Timestamp: 1}
	}
	wide := Chain{}
	for range 900 {
		wide = append(wide, StripValue{}, PassAll{})
	}
	deep := Interleave{}
	for range 900 {
		deep = append(deep, ValueRange{Start: Closed([]byte("z"))})
	}
	lim := Limits{FilterNodes: 2000}
	for _, tc := range []struct {
		name  string
		f     Filter
		cells []Cell
	}{
		{"value", ValueRegex(slowPattern), cells},
		{"row", RowRegex(slowPattern), cells[:1]},
		{"predicate", Condition{Predicate: ValueRegex(slowPattern), True: PassAll{}}, cells},
		{"interleave", Chain{PassAll{}, Interleave{ValueRegex(slowPattern), PassAll{}}}, cells},
		{"long chain", wide, many}, {"wide interleave", deep, many},
		{"wide predicate", Condition{Predicate: deep, True: PassAll{}}, many},
	} {
		p, err := CompileLimits(tc.f, &lim)
		if err != nil {
			t.Fatal(err)
		}
		var e Evaluator
		pace := turns{until: 3}
		e.Begin(0, &pace)
		for range 2 {
			if out, err := e.Eval(p, key, tc.cells); err != errTurnsOver || out != nil || pace.in {
				t.Errorf("%s: %d cells, %v", tc.name, len(out), err)
			}
		}
		if pace.paced != 3 {
			t.Errorf("%s: %d turns", tc.name, pace.paced)
		}
		const most = 3 * workSlice / 2
		e.Begin(most, nil)
		var over *LimitError
		if _, err := e.Eval(p, key, tc.cells); !errors.As(err, &over) || over.Limit != most || over.Got > 2*most {
			t.Errorf("%s: %v", tc.name, err)
		}
		e.Begin(0, nil)
		if _, err := e.Eval(p, []byte("r"), tc.cells[:1]); err != nil {
			t.Errorf("%s in the next request: %v", tc.name, err)
		}
		e.Reset()
	}
}

// TestMatchRowEnds is TestMatchingEnds for MatchRow.
func TestMatchRowEnds(t *testing.T) {
	key := bytes.Repeat([]byte("x"), 60<<10)
	p := mustCompile(t, Interleave{RowRegex(slowPattern), RowRegex(slowPattern), RowRegex("a.b")})
	var e Evaluator
	pace := turns{until: 2}
	e.Begin(0, &pace)
	if ok, err := e.MatchRow(p, key); ok || err != errTurnsOver || pace.in {
		t.Error(ok, err)
	}
	e.Begin(0, nil)
	if ok, err := e.MatchRow(p, key); ok || err != nil || e.Tired() {
		t.Error(ok, err)
	}
	for range 2 {
		e.Begin(e.work.used+1, nil)
		_, _ = e.MatchRow(p, key)
		if !e.Tired() {
			t.Errorf("not tired after %d steps", e.work.used)
		}
	}
}

func TestCostly(t *testing.T) {
	many := Chain{}
	for range costlyNodes {
		many = append(many, PassAll{})
	}
	for _, tc := range []struct {
		f    Filter
		want bool
	}{{nil, false}, {PassAll{}, false}, {ValueRegex("abc.*"), false}, {ValueRegex("a.c"), true}, {many, true}} {
		p := mustCompile(t, tc.f)
		if p.Costly() != tc.want || p.Bytes() <= 0 || p.Bytes() > ProgramBytesMax(nil) {
			t.Errorf("%v: costly %v, %d bytes", tc.f, p.Costly(), p.Bytes())
		}
	}
	if (*Program)(nil).Costly() {
		t.Error("a nil program is costly")
	}
}

func BenchmarkSlowMatch(b *testing.B) {
	for _, size := range []int{100, 20 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p, cells := mustCompile(b, ValueRegex(slowPattern)), engineCell(size)
			var e Evaluator
			for b.Loop() {
				e.Begin(0, nil)
				if _, err := e.Eval(p, nil, cells); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(e.work.used), "ns/step")
		})
	}
}

// TestRowsArePaced: once a request has been paced, all its further work is paced row by row, except
// rows that cost less than reading them. A request that was never paced stays unpaced.
func TestRowsArePaced(t *testing.T) {
	small, large := mustCompile(t, ValueRegex(`a.*b+`)), mustCompile(t, ValueRegex(slowPattern))
	var e Evaluator
	var pace turns
	e.Begin(0, &pace)
	row := func(p *Program, cells []Cell) {
		t.Helper()
		if _, err := e.Eval(p, []byte("r"), cells); err != nil || pace.in {
			t.Errorf("%v, still in a turn: %v", err, pace.in)
		}
	}
	row(small, engineCell(100))
	if pace.paced != 0 {
		t.Errorf("a small row took %d turns", pace.paced)
	}
	row(large, engineCell(5<<10))
	for i := range 3 {
		before := pace.paced
		row(small, engineCell(100))
		if pace.paced != before+1 || pace.rested < 2+i {
			t.Errorf("small row %d after a large one took %d turns, rested %d times", i, pace.paced-before, pace.rested)
		}
	}
	before := pace.paced
	for range 100 {
		used := e.work.used
		row(small, engineCell(10))
		if n := e.work.used - used; n == 0 || n > freeSteps {
			t.Fatalf("a tiny row takes %d steps", n)
		}
	}
	if pace.paced != before {
		t.Errorf("100 tiny rows took %d turns", pace.paced-before)
	}
	key := bytes.Repeat([]byte("x"), freeSteps) // each byte is a step and more
	if _, err := e.MatchRow(mustCompile(t, RowRegex(`a.*b+`)), key); err != nil || pace.paced != before+1 || pace.in {
		t.Errorf("a long key took %d turns, still in one: %v; %v", pace.paced-before, pace.in, err)
	}
}

// TestMatchesAreCharged: each match costs one step per instruction and byte, or one per 32 bytes
// without a program, plus one for the cell.
func TestMatchesAreCharged(t *testing.T) {
	steps := func(m *matcher, n int) int64 { return m.steps * int64(n+1) }
	key := bytes.Repeat([]byte("k"), 100)
	cell := Cell{Family: "family", Qualifier: bytes.Repeat([]byte("q"), 50), Value: bytes.Repeat([]byte("v"), 200)}
	for _, c := range []struct {
		f    Filter
		want func(m *matcher) int64
	}{
		{RowRegex(`a.*b+`), func(m *matcher) int64 { return steps(m, 100) }},
		{QualifierRegex(`a.*b+`), func(m *matcher) int64 { return steps(m, 50) }},
		{ValueRegex(`a.*b+`), func(m *matcher) int64 { return steps(m, 200) }},
		{FamilyRegex(`a.*b+`), func(m *matcher) int64 { return 1 + steps(m, 6) }},
		{FamilyRegex(`family`), func(*matcher) int64 { return 1 }},
		{RowRegex(`k.*`), func(*matcher) int64 { return 1 + 100/bytesPerStep }},
		{ValueRegex(`v.*`), func(*matcher) int64 { return 1 + 200/bytesPerStep }},
	} {
		p := mustCompile(t, c.f)
		one := 1 + c.want(p.root.m)
		var e Evaluator
		e.Begin(10*one, nil)
		for i := range 11 {
			_, err := e.Eval(p, key, []Cell{cell})
			if want := min(int64(i+1)*one, 10*one+1); e.work.used != want || (err == nil) != (i < 10) {
				t.Errorf("%#v: after %d matches %d steps are used, want %d: %v", c.f, i+1, e.work.used, want, err)
			}
		}
	}
}

// TestSlicedMatchesAreCharged: a match done in slices also costs one step per instruction and byte.
func TestSlicedMatchesAreCharged(t *testing.T) {
	for _, n := range []int{20_000, 20_001, 20_000 + chunkBytes - 1} {
		p, cells := mustCompile(t, ValueRegex(slowPattern)), engineCell(n)
		var e Evaluator
		e.Begin(0, nil)
		if _, err := e.Eval(p, nil, cells); err != nil {
			t.Fatal(err)
		}
		if want := 1 + p.root.m.steps*int64(n); e.work.used != want || want < 2*workSlice {
			t.Errorf("a match of %d bytes takes %d steps, want %d", n, e.work.used, want)
		}
	}
}
