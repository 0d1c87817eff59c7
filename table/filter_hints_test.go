package table

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// applyHints returns the cells that h keeps, as defined by the doc comment of Hints.
func applyHints(h Hints, cells []Cell) []Cell {
	var out []Cell
	if h.None {
		return nil
	}
	var last *Cell
	versions := 0
	for i := range cells {
		c := cells[i]
		if h.Families != nil && !h.Families(c.Family) || !h.Qualifiers.Contains(c.Qualifier) ||
			c.Timestamp < h.Start || h.End != 0 && c.Timestamp >= h.End {
			continue
		}
		if last == nil || !sameColumn(last, &c) {
			versions = 0
		}
		last = &cells[i]
		if versions++; h.MaxVersions != 0 && versions > h.MaxVersions {
			continue
		}
		if h.MaxCells != 0 && len(out) == h.MaxCells {
			break
		}
		out = append(out, c)
	}
	return out
}

// between returns all cells of few and some more of all, like storage that applies only some of the
// hints.
func between(t *rapid.T, few, all []Cell) []Cell {
	var out []Cell
	for i := range all {
		if len(few) > 0 && CompareCells(&few[0], &all[i]) == 0 {
			out, few = append(out, few[0]), few[1:]
		} else if rapid.Bool().Draw(t, "extra") {
			out = append(out, all[i])
		}
	}
	return out
}

// TestHintsChangeNothing: Eval returns the same for a row and for the row reduced by all or some of
// the hints.
func TestHintsChangeNothing(t *testing.T) {
	check := func(t *rapid.T, f Filter) {
		p, err := Compile(f)
		if err != nil {
			t.Fatalf("compile %#v: %v", f, err)
		}
		cells, key := genCells(t), genKey(t)
		want := cellsText(refEval(f, key, cells, programCoin(p, key)))
		same := func(how string, in []Cell, values bool) {
			in = cloneCells(in)
			for i := range in {
				if !values {
					in[i].Value = nil
				}
			}
			got := cellsText(refEval(f, key, in, programCoin(p, key)))
			if got != want {
				t.Fatalf("%s\nfilter %#v\nrow\n%shinted\n%sgives\n%swant\n%s", how, f, cellsText(cells), cellsText(in), got, want)
			}
		}
		h := p.Hints()
		few := applyHints(h, cells)
		same(fmt.Sprintf("hints %+v", h), few, h.Values)
		same(fmt.Sprintf("hints in part %+v", h), between(t, few, cells), h.Values)

		var byFamily []Cell
		var hints []string
		values := false
		for _, name := range genFamilies {
			h := p.FamilyHints(name)
			var own []Cell
			for _, c := range cells {
				if c.Family == name {
					own = append(own, c)
				}
			}
			byFamily = append(byFamily, applyHints(h, own)...)
			hints = append(hints, fmt.Sprintf("%s %+v", name, h))
			values = values || h.Values
		}
		same(fmt.Sprintf("family hints %q", hints), byFamily, values)
		same(fmt.Sprintf("family hints in part %q", hints), between(t, byFamily, cells), values)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, genFilter(t, allLeaves, 4, true, true)) })
	rapid.Check(t, func(t *rapid.T) { check(t, genFilter(t, countingLeaves, 4, true, true)) })
	rapid.Check(t, func(t *rapid.T) {
		chain := make(Chain, 2+pick(t, "leaves", 4))
		for i := range chain {
			chain[i] = genLeaf(t, sample(t, "kind", countingLeaves), false)
		}
		check(t, chain)
	})
}

// TestHintsExamples pins the hints of common reads.
func TestHintsExamples(t *testing.T) {
	exact := func(s string) ByteRange { return ByteRange{Closed([]byte(s)), Closed([]byte(s))} }
	tests := []struct {
		f        Filter
		families string // of a, anchor, b, contents; "" means all and no func
		want     Hints
	}{
		{nil, "", Hints{Values: true}},
		{BlockAll{}, "", Hints{None: true}},
		{FamilyRegex("a.*"), "[a anchor]", Hints{Values: true}},
		{FamilyRegex(".*"), "", Hints{Values: true}},
		{Chain{FamilyRegex("anchor"), CellsPerColumnLimit(1)}, "[anchor]", Hints{Values: true, MaxVersions: 1}},
		{QualifierRegex("title"), "", Hints{Values: true, Qualifiers: exact("title")}},
		{QualifierRegex(`com\.cnn\..*`), "",
			Hints{Values: true, Qualifiers: ByteRange{Closed([]byte("com.cnn.")), Open([]byte("com.cnn/"))}}},
		{ColumnRange{"b", exact("q")}, "[b]", Hints{Values: true, Qualifiers: exact("q")}},
		{Chain{TimestampRange{5, Before(9)}, CellsPerColumnLimit(2)}, "", Hints{Values: true, Start: 5, End: 9, MaxVersions: 2}},
		{Chain{CellsPerColumnLimit(2), TimestampRange{5, Before(9)}}, "", Hints{Values: true, Start: 5, MaxVersions: 2}},
		// Which rows exist: one cell of each, without its value.
		{Chain{CellsPerRowLimit(1), StripValue{}}, "", Hints{MaxVersions: 1, MaxCells: 1}},
		{Chain{CellsPerRowOffset(20), CellsPerRowLimit(10)}, "", Hints{Values: true, MaxVersions: 30, MaxCells: 30}},
		// Versions dropped between two limits let later cells in.
		{Chain{CellsPerRowLimit(5), CellsPerColumnLimit(1), CellsPerRowLimit(2)}, "",
			Hints{Values: true, MaxVersions: 5, MaxCells: 5}},
		// The newest versions before one time differ from those before another.
		{Interleave{Chain{TimestampRange{0, Before(5)}, CellsPerColumnLimit(1)}, Chain{TimestampRange{0, Before(9)}, CellsPerColumnLimit(1)}},
			"", Hints{Values: true, End: 9}},
		// The range contains cells that do not match, and those may come first.
		{Chain{QualifierRegex("a.*"), CellsPerRowLimit(1)}, "",
			Hints{Values: true, MaxVersions: 1, Qualifiers: ByteRange{Closed([]byte("a")), Open([]byte("b"))}}},
		{Chain{QualifierRegex(`a\C*`), CellsPerRowLimit(1)}, "",
			Hints{Values: true, MaxVersions: 1, MaxCells: 1, Qualifiers: ByteRange{Closed([]byte("a")), Open([]byte("b"))}}},
		{Interleave{Chain{FamilyRegex("a"), CellsPerRowLimit(2)}, Chain{FamilyRegex("b"), CellsPerColumnLimit(1)}},
			"[a b]", Hints{Values: true, MaxVersions: 2}},
		{Chain{ValueRegex("x"), CellsPerColumnLimit(1)}, "", Hints{Values: true}},
		{Chain{ValueRegex("x"), StripValue{}}, "", Hints{Values: true}},
		{Interleave{Chain{FamilyRegex("a"), CellsPerColumnLimit(1)}, Chain{FamilyRegex("b"), CellsPerColumnLimit(3)}},
			"[a b]", Hints{Values: true, MaxVersions: 3}},
		{Condition{Chain{FamilyRegex("a"), CellsPerColumnLimit(1)}, FamilyRegex("b"), nil}, "[a b]", Hints{Values: true}},
		{Chain{FamilyRegex("a"), Interleave{StripValue{}, Sink{}}, BlockAll{}}, "[a]", Hints{Values: true}},
	}
	for _, tc := range tests {
		h := mustCompile(t, tc.f).Hints()
		families := ""
		if h.Families != nil {
			var names []string
			for _, name := range genFamilies {
				if h.Families(name) {
					names = append(names, name)
				}
			}
			families = fmt.Sprint(names)
		}
		h.Families = nil
		if g, w := fmt.Sprintf("%+v", h), fmt.Sprintf("%+v", tc.want); g != w || families != tc.families {
			t.Errorf("%#v\ngot  %s %s\nwant %s %s", tc.f, g, families, w, tc.families)
		}
	}
}

// TestFamilyHints: families that a program treats differently get different hints.
func TestFamilyHints(t *testing.T) {
	p := mustCompile(t, Interleave{
		Chain{FamilyRegex("anchor"), CellsPerColumnLimit(1), StripValue{}},
		Chain{FamilyRegex("contents"), TimestampRange{5, Before(9)}},
	})
	for _, tc := range []struct {
		family string
		want   Hints
	}{
		{"anchor", Hints{MaxVersions: 1}},
		{"contents", Hints{Values: true, Start: 5, End: 9}},
		{"b", Hints{None: true}},
	} {
		if g, w := fmt.Sprintf("%+v", p.FamilyHints(tc.family)), fmt.Sprintf("%+v", tc.want); g != w {
			t.Errorf("%s: got %s, want %s", tc.family, g, w)
		}
	}
	// Cells that are not emitted still count.
	p = mustCompile(t, Chain{CellsPerRowLimit(3), FamilyRegex("b")})
	if h := p.FamilyHints("a"); h.None || h.MaxCells != 3 {
		t.Errorf("a family that counts has hints %+v", h)
	}
}

func TestRows(t *testing.T) {
	closed := func(s string) Bound { return Closed([]byte(s)) }
	open := func(s string) Bound { return Open([]byte(s)) }
	tests := []struct {
		f    Filter
		want ByteRange
		some bool
	}{
		{nil, ByteRange{}, true},
		{BlockAll{}, ByteRange{}, false},
		{RowRegex(`com\.cnn\..*`), ByteRange{closed("com.cnn."), open("com.cnn/")}, true},
		{RowRegex(`com[0-9]+\C*`), ByteRange{closed("com"), open("con")}, true},
		{RowRegex("a|c|b"), ByteRange{closed("a"), closed("c")}, true},
		{Chain{FamilyRegex("f"), RowRegex("ab.*"), RowRegex("a.*")}, ByteRange{closed("ab"), open("ac")}, true},
		{Chain{RowRegex("a"), RowRegex("b")}, ByteRange{}, false},
		{Interleave{RowRegex("a"), RowRegex("b.*")}, ByteRange{closed("a"), open("c")}, true},
		{Interleave{RowRegex("a"), Chain{RowRegex("b"), Sink{}}}, ByteRange{closed("a"), closed("b")}, true},
		{Condition{RowRegex("a"), RowRegex("a.*"), nil}, ByteRange{closed("a"), closed("a")}, true},
		{Condition{RowRegex("a"), RowRegex("a.*"), RowRegex("b")}, ByteRange{closed("a"), closed("b")}, true},
		{RowRegex("\xff\xff.*"), ByteRange{Start: closed("\xff\xff")}, true},
	}
	for _, tc := range tests {
		got, some := mustCompile(t, tc.f).Rows()
		if some != tc.some || some && (!got.Start.equal(tc.want.Start) || !got.End.equal(tc.want.End)) {
			t.Errorf("%#v: got %+q %v, want %+q %v", tc.f, got, some, tc.want, tc.some)
		}
	}
}

// TestHintsOfChainsAreCheap: the cost of Hints.Families does not double with each part of a chain.
// Without the bound, this filter would match 2^100 patterns.
func TestHintsOfChainsAreCheap(t *testing.T) {
	var chain Chain
	for range 100 {
		chain = append(chain, Interleave{FamilyRegex("anchor|x[yz]"), FamilyRegex("b.*t|.*nts")})
	}
	p, err := Compile(chain)
	if err != nil {
		t.Fatal(err)
	}
	d := demander{}
	families := d.demand(p.root, demand{values: true}).families
	if families != nil && (families.work > familySetWork || families.leaves() > familySetWork) {
		t.Errorf("the set of families has %d leaves, and work of %d", families.leaves(), families.work)
	}
	if h := p.Hints(); h.Families != nil && !h.Families("contents") {
		t.Error("a family that passes is excluded")
	}
}

// leaves counts the sets that has may visit. It stops at a number above every bound.
func (s *familySet) leaves() (n int) {
	for _, kid := range append(s.and, s.or...) {
		if n += kid.leaves(); n > 1<<20 {
			return n
		}
	}
	return max(n, 1)
}
