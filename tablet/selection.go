package tablet

import (
	"bytes"

	"github.com/steledb/stele/table"
)

// selection is what a read needs of each row, as far as its filter's hints show.
type selection struct {
	program  *table.Program // nil selects all
	eval     *table.Evaluator
	hints    table.Hints
	visible  Visibility // what the caller may see
	families []bool     // by index in the schema
	subset   bool       // not all families are selected
}

func (w *selection) init(f *table.Program, s *schema, visible Visibility) {
	w.program, w.visible, w.subset = f, visible, false
	w.hints = table.Hints{}
	if f != nil {
		w.hints = f.Hints()
	}
	if w.hints.Families == nil && visible.Families == nil {
		return
	}
	w.subset = true
	w.families = w.families[:0]
	for i := range s.families {
		wanted := w.hints.Families == nil || w.hints.Families(s.families[i].Name)
		w.families = append(w.families, wanted && visible.family(i))
	}
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

func (w *selection) family(f *family) bool { return !w.subset || w.families[f.index] }

// group reports whether any selected family is in the locality group.
func (w *selection) group(s *schema, name string) bool {
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
