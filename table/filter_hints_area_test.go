package table

import (
	"fmt"
	"math"
	"testing"
)

// TestHintsOfAreas: a cell limit propagates through a limit or an offset on the row only if nothing
// in between drops cells.
func TestHintsOfAreas(t *testing.T) {
	all := Hints{Values: true}
	first := func(n int) Hints { return Hints{Values: true, MaxVersions: n, MaxCells: n} }
	check := func(f Filter, got, want Hints) {
		t.Helper()
		got.Families = nil
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			t.Errorf("%#v\ngot  %s\nwant %s", f, g, w)
		}
	}
	for _, between := range []Filter{
		FamilyRegex("b"), QualifierRegex(`a\C*`), TimestampRange{Start: 5}, TimestampRange{0, Before(9)}, CellsPerColumnLimit(1),
		ValueRegex("x"), ColumnRange{"b", ByteRange{}},
	} {
		limited, shifted := Chain{CellsPerRowLimit(5), between, CellsPerRowLimit(2)}, Chain{CellsPerRowOffset(5), between, CellsPerRowLimit(2)}
		check(limited, mustCompile(t, limited).Hints(), first(5))
		check(shifted, mustCompile(t, shifted).Hints(), all)
		check(limited, mustCompile(t, limited).FamilyHints("b"), first(5))
		either := Interleave{Chain{between, CellsPerRowLimit(2)}, CellsPerRowLimit(2)}
		if h := mustCompile(t, either).Hints(); h.MaxCells != 0 {
			t.Errorf("%#v needs only %d cells", either, h.MaxCells)
		}
	}
	for _, c := range []struct {
		f    Filter
		want Hints
	}{
		{Chain{CellsPerRowLimit(5), CellsPerRowLimit(2)}, first(2)},
		{Chain{CellsPerRowLimit(2), CellsPerRowLimit(5)}, first(2)},
		{Chain{CellsPerRowOffset(5), CellsPerRowLimit(2)}, first(7)},
		{CellsPerRowOffset(5), all},
		{Chain{CellsPerRowOffset(math.MaxInt - 2), CellsPerRowLimit(2)}, first(math.MaxInt)},
		{Chain{CellsPerRowOffset(math.MaxInt - 1), CellsPerRowLimit(2)}, all},
		{Interleave{CellsPerRowLimit(2), CellsPerRowLimit(3)}, first(3)},
		{Interleave{CellsPerRowLimit(2), PassAll{}}, all},
		{Interleave{Chain{FamilyRegex("a"), CellsPerRowLimit(2)}, Chain{FamilyRegex("b"), CellsPerRowLimit(2)}}, Hints{Values: true, MaxVersions: 2}},
		{Chain{TimestampRange{Start: 5}, TimestampRange{0, Before(9)}}, Hints{Values: true, Start: 5, End: 9}},
		{Chain{TimestampRange{0, Before(9)}, TimestampRange{5, Before(8)}}, Hints{Values: true, Start: 5, End: 8}},
		{Chain{TimestampRange{0, Before(7)}, TimestampRange{5, Before(8)}}, Hints{Values: true, Start: 5, End: 7}},
	} {
		check(c.f, mustCompile(t, c.f).Hints(), c.want)
	}
	// The hint counts a family's own cells, wherever they are in the row.
	both := Chain{CellsPerRowLimit(5), CellsPerRowLimit(2)}
	check(both, mustCompile(t, both).FamilyHints("b"), first(5))
}

// TestHintsOfFamilies: a family must match both patterns of a chain. A pattern that matches every
// name restricts nothing.
func TestHintsOfFamilies(t *testing.T) {
	h := mustCompile(t, Chain{FamilyRegex("a|b"), FamilyRegex("b|contents")}).Hints()
	for name, want := range map[string]bool{"a": false, "b": true, "contents": false} {
		if h.Families == nil || h.Families(name) != want {
			t.Errorf("family %s is needed: %v", name, !want)
		}
	}
	for _, f := range []Filter{FamilyRegex(".*"), FamilyRegex(".+"), FamilyRegex(`\C+`)} {
		if h := mustCompile(t, f).Hints(); h.Families != nil {
			t.Errorf("%#v restricts families", f)
		}
	}
}
