package tablet

import (
	"bytes"

	"github.com/steledb/stele/table"
)

// want selects what a read needs of each row, as far as its filter's hints show.
type want struct {
	program  *table.Program // nil selects all
	eval     *table.Evaluator
	hints    table.Hints
	sight    Sight  // what the caller may see
	families []bool // by index in the schema
	fewer    bool   // not all families are selected
}

func (w *want) init(f *table.Program, s *schema, sight Sight) {
	w.program, w.sight, w.fewer = f, sight, false
	w.hints = table.Hints{}
	if f != nil {
		w.hints = f.Hints()
	}
	if w.hints.Families == nil && sight.Families == nil {
		return
	}
	w.fewer = true
	w.families = w.families[:0]
	for i := range s.families {
		wanted := w.hints.Families == nil || w.hints.Families(s.families[i].Name)
		w.families = append(w.families, wanted && sight.family(i))
	}
}

// row reports whether the row can have selected cells.
func (w *want) row(key []byte) (bool, error) {
	if w.program != nil {
		if w.hints.None {
			return false, nil
		}
		if ok, err := w.eval.MatchRow(w.program, key); !ok || err != nil {
			return false, err
		}
	}
	if w.sight.Row != nil {
		return w.sight.Row(key)
	}
	return true, nil
}

func (w *want) family(f *family) bool { return !w.fewer || w.families[f.index] }

// group reports whether any selected family is in the locality group.
func (w *want) group(s *schema, name string) bool {
	for i := range s.families {
		if s.families[i].Group == name && w.family(&s.families[i]) {
			return true
		}
	}
	return false
}

// qualifier returns -1 if q is below the selected range, 0 if it is inside and 1 if it is above.
func (w *want) qualifier(q []byte) int {
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
func (w *want) oneColumn(s *schema) (*family, []byte, bool) {
	lo, hi := &w.hints.Qualifiers.Start, &w.hints.Qualifiers.End
	if !w.fewer || lo.Kind != table.BoundClosed || hi.Kind != table.BoundClosed || !bytes.Equal(lo.Value, hi.Value) {
		return nil, nil, false
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
