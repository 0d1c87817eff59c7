package judge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/steledb/stele/test/simulation/workload"
)

// rowState is a row with its table: the zero value is a row of a table that does not exist. It is
// not changed but copied.
type rowState struct {
	table    bool
	families []string // sorted
	cells    []workload.Cell
	last     int64      // the last server timestamp that is known
	id       uint64     // of the table, if it is dropped and restored later
	kept     []rowState // of dropped tables that are restored later
}

func cellsEqual(a, b []workload.Cell) bool {
	return slices.EqualFunc(a, b, func(x, y workload.Cell) bool { return x.Column == y.Column && slices.Equal(x.Values, y.Values) })
}

// shows reports whether a read returns these cells. A timestamp that is not known may be any.
func shows(cells, read []workload.Cell) bool {
	return cellsEqual(cells, read) && slices.EqualFunc(cells, read, func(x, y workload.Cell) bool {
		return len(y.Stamps) == 0 || slices.EqualFunc(x.Stamps, y.Stamps, func(known, read int64) bool { return known == 0 || known == read })
	})
}

// rowModel is the model of a row with its table.
var rowModel = model[rowState]{
	step:  rowStep,
	equal: rowState.equal,
}

func (s rowState) equal(b rowState) bool {
	return s.table == b.table && s.last == b.last && s.id == b.id && slices.Equal(s.families, b.families) && slices.EqualFunc(s.cells, b.cells, func(x, y workload.Cell) bool {
		return x.Column == y.Column && slices.Equal(x.Values, y.Values) && slices.Equal(x.Stamps, y.Stamps)
	}) && slices.EqualFunc(s.kept, b.kept, rowState.equal)
}

// rowStep applies an operation. One of unknown outcome is executed if it can be.
func rowStep(s rowState, op *workload.Op) (rowState, bool) {
	next, ok := s.apply(op)
	if op.Outcome == workload.Unknown && !ok {
		return s, true
	}
	return next, ok
}

// apply executes an operation. ok is false if it fails there, or has another result.
func (s rowState) apply(op *workload.Op) (next rowState, ok bool) {
	if isSchema(op) {
		return s.alter(op)
	}
	if !s.table {
		return s, false
	}
	known := op.Outcome == workload.OK
	switch op.Kind {
	case workload.Read:
		return s, shows(s.of(op.Families), op.Cells)
	case workload.Write:
		return s.change(op.Changes, op.Stamp)
	case workload.Check:
		matched := s.matches(op.Predicate)
		if known && matched != op.Matched {
			return s, false
		}
		if matched {
			return s.change(op.Changes, op.Stamp)
		}
		return s.change(op.Otherwise, op.Stamp)
	case workload.Modify:
		if next, ok = s.change(op.Changes, op.Stamp); !ok || !known {
			return next, ok
		}
		return next, shows(next.newestOf(op.Changes[0].Column), op.Cells)
	}
	return s, false
}

// alter changes the table or its families.
func (s rowState) alter(op *workload.Op) (rowState, bool) {
	switch op.Kind {
	case workload.Create:
		return rowState{table: true, families: slices.Sorted(slices.Values(op.Families)), id: op.TableID, kept: s.kept}, !s.table
	case workload.Drop:
		return s.dropped(op.Kept), s.table
	case workload.Undrop:
		return s.restored(op.TableID)
	case workload.SetFamily:
		if !s.table || slices.Contains(s.families, op.Families[0]) {
			return s, s.table
		}
		s.families = append(slices.Clone(s.families), op.Families[0])
		slices.Sort(s.families)
		return s, true
	case workload.DropFamily:
		if !slices.Contains(s.families, op.Families[0]) {
			return s, false
		}
		s.families = slices.DeleteFunc(slices.Clone(s.families), func(f string) bool { return f == op.Families[0] })
		s.cells = s.without(op.Families[0], true)
		return s, true
	}
	return s, false
}

// dropped returns the row without its table, which is kept or not.
func (s rowState) dropped(keep bool) rowState {
	kept := s.kept
	if keep && s.id != 0 {
		one := s
		one.kept = nil
		kept = append(slices.Clone(kept), one)
	}
	return rowState{kept: kept}
}

// restored returns the row with a table that was kept. ok is false if there is a table already, or none is kept.
func (s rowState) restored(id uint64) (next rowState, ok bool) {
	i := slices.IndexFunc(s.kept, func(k rowState) bool { return k.id == id })
	if s.table || i < 0 {
		return s, false
	}
	next = s.kept[i]
	next.kept = slices.Delete(slices.Clone(s.kept), i, i+1)
	return next, true
}

// of returns the cells of families or columns; none means all.
func (s rowState) of(families []string) []workload.Cell {
	if len(families) == 0 {
		return s.cells
	}
	return slices.DeleteFunc(slices.Clone(s.cells), func(c workload.Cell) bool {
		return !slices.Contains(families, familyOf(c.Column)) && !slices.Contains(families, c.Column)
	})
}

func familyOf(column string) string {
	family, _, _ := strings.Cut(column, ":")
	return family
}

// without returns the cells without those of a column, or of a family.
func (s rowState) without(column string, family bool) []workload.Cell {
	return slices.DeleteFunc(slices.Clone(s.cells), func(c workload.Cell) bool {
		return c.Column == column || family && familyOf(c.Column) == column
	})
}

func (s rowState) newest(column string) string {
	if i := s.index(column); i >= 0 {
		return s.cells[i].Values[0]
	}
	return ""
}

// newestOf returns a column with its newest value only.
func (s rowState) newestOf(column string) []workload.Cell {
	c := s.cells[s.index(column)]
	return []workload.Cell{{Column: column, Values: c.Values[:1], Stamps: c.Stamps[:1]}}
}

func (s rowState) index(column string) int {
	return slices.IndexFunc(s.cells, func(c workload.Cell) bool { return c.Column == column })
}

func (s rowState) matches(p *workload.Predicate) bool {
	i := s.index(p.Column)
	return i >= 0 && (p.Value == "" || s.cells[i].Values[0] == p.Value)
}

// change applies changes in order, all or none. stamp is the server's timestamp of those without one; 0 if it is not known.
func (s rowState) change(changes []workload.Change, stamp int64) (next rowState, ok bool) {
	if stamp != 0 && s.last != 0 && stamp <= s.last {
		return s, false
	}
	next = s
	next.last = cmp.Or(stamp, s.last)
	for i, x := range changes {
		if x.Kind != workload.DeleteRow && !slices.Contains(s.families, familyOf(x.Column)) {
			return s, false
		}
		switch x.Kind {
		case workload.Set:
			at := cmp.Or(x.At, stamp)
			next.cells = next.with(x.Column, x.Value, at, func(old version) bool {
				return x.At != 0 && old.stamp == at || x.At == 0 && slices.ContainsFunc(changes[:i], func(before workload.Change) bool {
					return before.Kind == workload.Set && before.At == 0 && before.Column == x.Column && before.Value == old.value
				})
			})
		case workload.Operand:
			next.cells = next.folded(x)
		case workload.Append:
			next.cells = next.modified(x.Column, next.newest(x.Column)+x.Value, stamp)
		case workload.Increment:
			n, _ := strconv.ParseInt(next.newest(x.Column), 10, 64) // a missing value counts as 0
			next.cells = next.modified(x.Column, strconv.FormatInt(n+x.N, 10), stamp)
		case workload.DeleteColumn:
			next.cells = next.without(x.Column, false)
		case workload.DeleteVersions:
			next.cells = next.withoutVersions(x.Column, x.From, x.To)
		case workload.DeleteCells:
			next.cells = next.without(x.Column, true)
		case workload.DeleteRow:
			next.cells = nil
		}
	}
	return next, true
}

// version is a value with its timestamp; 0 is a server's that is not known.
type version struct {
	value string
	stamp int64
}

// order returns the place of a timestamp among the timestamps of a column: that of all of the server is 0, since these are in the order in
// which they are assigned.
func order(stamp int64) int64 {
	if workload.Explicit(stamp) {
		return stamp
	}
	return 0
}

// with returns the cells with a new version of a column. It replaces an old one that has the same timestamp.
func (s rowState) with(column, value string, stamp int64, same func(old version) bool) []workload.Cell {
	cells := slices.Clone(s.cells)
	at, found := slices.BinarySearchFunc(cells, column, func(c workload.Cell, column string) int { return compareColumns(c.Column, column) })
	if !found {
		cells = slices.Insert(cells, at, workload.Cell{Column: column})
	}
	c := &cells[at]
	i := 0
	for i < len(c.Stamps) && order(c.Stamps[i]) > order(stamp) {
		i++
	}
	end := i
	if i < len(c.Stamps) && same(version{c.Values[i], c.Stamps[i]}) {
		end++
	}
	c.Values, c.Stamps = slices.Replace(slices.Clone(c.Values), i, end, value), slices.Replace(slices.Clone(c.Stamps), i, end, stamp)
	n := min(len(c.Values), workload.FamilyVersions(familyOf(column)))
	c.Values, c.Stamps = c.Values[:n], c.Stamps[:n]
	return cells
}

// modified returns the cells with a new version of a column that is made of the newest. It replaces one from the future.
func (s rowState) modified(column, value string, stamp int64) []workload.Cell {
	if i := s.index(column); i >= 0 && order(s.cells[i].Stamps[0]) > 0 {
		stamp = s.cells[i].Stamps[0]
	}
	return s.with(column, value, stamp, func(old version) bool { return workload.Explicit(stamp) && old.stamp == stamp })
}

// folded returns the cells after an operand.
func (s rowState) folded(x workload.Change) []workload.Cell {
	before := ""
	if i := s.index(x.Column); i >= 0 {
		if n := slices.Index(s.cells[i].Stamps, x.At); n >= 0 {
			before = s.cells[i].Values[n]
		}
	}
	value := ""
	if x.Value != "" { // of a change stream
		value = workload.FoldedText(familyOf(x.Column), before, x.Value)
	} else {
		value = workload.Folded(familyOf(x.Column), before, x.N)
	}
	return s.with(x.Column, value, x.At, func(old version) bool { return old.stamp == x.At })
}

// withoutVersions returns the cells without the versions of a column whose timestamps are in [from, to).
func (s rowState) withoutVersions(column string, from, to int64) []workload.Cell {
	i := s.index(column)
	if i < 0 {
		return s.cells
	}
	left := workload.Cell{Column: column}
	for n, stamp := range s.cells[i].Stamps {
		if at := order(stamp); at < from || at >= to {
			left.Values, left.Stamps = append(left.Values, s.cells[i].Values[n]), append(left.Stamps, stamp)
		}
	}
	if len(left.Values) == 0 {
		return s.without(column, false)
	}
	cells := slices.Clone(s.cells)
	cells[i] = left
	return cells
}

// compareColumns orders columns as a row has them: by family, then by qualifier.
func compareColumns(a, b string) int {
	familyA, qualifierA, _ := strings.Cut(a, ":")
	familyB, qualifierB, _ := strings.Cut(b, ":")
	if c := strings.Compare(familyA, familyB); c != 0 {
		return c
	}
	return strings.Compare(qualifierA, qualifierB)
}
