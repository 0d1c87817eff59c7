package tablet

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// Range is the row range of a scan: Start <= row < End, where nil means no bound.
type Range struct {
	Start, End []byte
	// Reversed means that the rows are read from the last to the first.
	Reversed bool
	// Rows limits the range to the rows of a set, unless it is nil.
	Rows *table.RowSet
}

// empty reports whether the range has no rows. It moves the bound from which the range is read to the next of
// Rows.
func (rg *Range) empty() bool {
	switch i := 0; {
	case rg.Rows == nil:
	case rg.Reversed:
		if i = rg.Rows.Last(rg.End); i < 0 {
			return true
		}
		if end := rg.Rows.At(i).End; len(end) > 0 && (rg.End == nil || string(end) < string(rg.End)) {
			rg.End = end
		}
	default:
		if i = rg.Rows.First(rg.Start); i == rg.Rows.Len() {
			return true
		}
		if start := rg.Rows.At(i).Start; string(start) > string(rg.Start) {
			rg.Start = start
		}
	}
	return rg.End != nil && string(rg.Start) >= string(rg.End)
}

// piece returns the part of the range that is in a range of Rows.
func (rg *Range) piece(i int) Range {
	in := rg.Rows.At(i)
	p := Range{Start: rg.Start, End: rg.End}
	if string(in.Start) > string(p.Start) {
		p.Start = in.Start
	}
	if len(in.End) > 0 && (p.End == nil || string(in.End) < string(p.End)) {
		p.End = in.End
	}
	return p
}

// Next returns the bound from which the range is read.
func (rg *Range) Next() []byte {
	if rg.Reversed {
		return rg.End
	}
	return rg.Start
}

// NextRow returns a row that is in the tablet from which the range is read.
func (rg *Range) NextRow() []byte {
	if rg.Reversed {
		return api.LastRow(rg.End)
	}
	return rg.Start
}

// Resume limits the range to the rows that remain when a scan of it ended with next: those from next on or,
// if it is reversed, below next.
func (rg *Range) Resume(next []byte) {
	if rg.Reversed {
		rg.End = next
	} else {
		rg.Start = next
	}
}

// pass limits the range to the rows that remain after those of t were read. It returns false if t is the
// last tablet in the direction of the scan.
func (rg *Range) pass(t *Tablet) bool {
	bound := t.end
	if rg.Reversed {
		bound = t.start
	}
	if len(bound) == 0 {
		return false
	}
	rg.Resume(append(bytes.Clone(bound), 0))
	return true
}

// tabletOfRange returns the tablet with the next rows of a range. Errors: as tabletOf.
func (as For) tabletOfRange(ctx context.Context, tableName string, rg *Range) (*Tablet, error) {
	if !rg.Reversed || rg.End != nil {
		return as.tabletOf(ctx, tableName, rg.NextRow())
	}
	for {
		sv, err := as.s.served.table(tableName)
		if err != nil {
			return nil, err
		}
		n := len(sv.tablets)
		if n == 0 || len(sv.tablets[n-1].end) > 0 {
			return nil, fmt.Errorf("table %q, its last row: %w", tableName, api.ErrNotServing)
		}
		t, err := as.tabletOf(ctx, tableName, append(bytes.Clone(sv.tablets[n-1].start), 0))
		if err != nil || len(t.end) == 0 { // otherwise it was split meanwhile
			return t, err
		}
	}
}

// selection is what a read needs of each row, as far as its filter's hints show.
type selection struct {
	program  *table.Program // nil selects all
	eval     *table.Evaluator
	hints    table.Hints
	visible  Visibility // what the caller may see
	families []bool     // by index in the schema
	subset   bool       // not all families are selected
	token    bool       // only one column of tokenFamily is selected
}

// init prepares the selection. positions is set for a read of the family of positions.
func (w *selection) init(f *table.Program, s *schema, visible Visibility, positions bool) {
	w.program, w.visible, w.subset, w.token = f, visible, false, false
	w.hints = table.Hints{}
	if f != nil {
		w.hints = f.Hints()
	}
	if w.hints.Families == nil && visible.Families == nil && (s.hidden < 0 || positions) {
		return
	}
	w.subset = true
	w.families = w.families[:0]
	for i := range s.families {
		wanted := w.hints.Families == nil || w.hints.Families(s.families[i].Name)
		w.families = append(w.families, wanted && visible.family(i) && (i != s.hidden || positions))
	}
}

// initToken prepares the selection of the cell of a token.
func (w *selection) initToken(s *schema, qualifier []byte) {
	w.program, w.visible, w.subset, w.token = nil, Visibility{}, true, true
	w.hints = table.Hints{Qualifiers: table.ByteRange{Start: table.Closed(qualifier), End: table.Closed(qualifier)}}
	w.families = append(w.families[:0], make([]bool, len(s.families))...)
}

// row reports whether the row can have selected cells.
func (w *selection) row(key []byte) (bool, error) {
	if w.program != nil {
		if w.hints.None {
			return false, nil
		}
		if ok, err := w.eval.MatchRow(w.program, key); !ok || err != nil {
			return false, err
		}
	}
	if w.visible.Row != nil {
		return w.visible.Row(key)
	}
	return true, nil
}

// familyOf returns the selected family of a key's family part, or nil.
func (w *selection) familyOf(s *schema, part []byte) *family {
	if w.token {
		if !isTokenFamily(part) {
			return nil
		}
		return tokenFamily
	}
	f := s.familyOf(ikey.FamilyName(part), ikey.FamilyID(part))
	if f == nil || !w.family(f) {
		return nil
	}
	return f
}

func (w *selection) family(f *family) bool { return !w.subset || w.families[f.index] }

// group reports whether any selected family is in the locality group.
func (w *selection) group(s *schema, name string) bool {
	if w.token {
		return name == tokenFamily.Group
	}
	for i := range s.families {
		if s.families[i].Group == name && w.family(&s.families[i]) {
			return true
		}
	}
	return false
}

// qualifier returns -1 if q is below the selected range, 0 if it is inside and 1 if it is above.
func (w *selection) qualifier(q []byte) int {
	if lo := &w.hints.Qualifiers.Start; lo.Kind != table.Unbounded {
		if c := bytes.Compare(q, lo.Value); c < 0 || c == 0 && lo.Kind == table.BoundOpen {
			return -1
		}
	}
	if hi := &w.hints.Qualifiers.End; hi.Kind != table.Unbounded {
		if c := bytes.Compare(q, hi.Value); c > 0 || c == 0 && hi.Kind == table.BoundOpen {
			return 1
		}
	}
	return 0
}

// oneColumn returns the selected column, if there is exactly one.
func (w *selection) oneColumn(s *schema) (*family, []byte, bool) {
	lo, hi := &w.hints.Qualifiers.Start, &w.hints.Qualifiers.End
	if !w.subset || lo.Kind != table.BoundClosed || hi.Kind != table.BoundClosed || !bytes.Equal(lo.Value, hi.Value) {
		return nil, nil, false
	}
	if w.token {
		return tokenFamily, lo.Value, true
	}
	var only *family
	for i := range s.families {
		if !w.families[i] {
			continue
		}
		if only != nil {
			return nil, nil, false
		}
		only = &s.families[i]
	}
	return only, lo.Value, only != nil
}
