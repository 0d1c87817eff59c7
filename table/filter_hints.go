package table

import "math"

// Hints describe the cells of a row that need not be read to evaluate a program. Passing only the
// other cells to Eval does not change its result, except that it may avoid an ErrLimit. Hints apply
// in field order: Families, Qualifiers and timestamps, then MaxVersions, then MaxCells.
type Hints struct {
	// None means that no cells are needed: the program emits nothing.
	None bool
	// Families reports whether the cells of the named family are needed. Nil means all families. It
	// is safe for concurrent use.
	Families func(name string) bool
	// Qualifiers is the range of qualifiers that are needed, in any family.
	Qualifiers ByteRange
	// Start and End bound the timestamps that are needed: [Start, End), in microseconds. An End of
	// 0 means unbounded.
	Start, End int64
	// MaxVersions is the number of newest cells of each column that are needed; 0 means all.
	MaxVersions int
	// MaxCells is the number of first cells of the row that are needed; 0 means all.
	MaxCells int
	// Values reports whether values are needed. If not, Eval may be given empty values.
	Values bool
}

// Hints returns the hints for whole rows. Computing them takes some time: call it once per read.
func (p *Program) Hints() Hints {
	d := demander{}
	return d.demand(p.root, demand{values: true}).hints(d)
}

// FamilyHints returns the hints for the cells of one family. They are often tighter than the hints
// for the row, if the program treats families differently. Families is nil, and MaxCells counts
// only cells of the family.
func (p *Program) FamilyHints(family string) Hints {
	d := demander{family: family, single: true}
	return d.demand(p.root, demand{values: true}).hints(d)
}

// demand describes the part of a filter's output that is used: the cells in the area, of those the
// newest versions of each column, of those the first cells. Zero numbers mean no restriction.
//
// Let d be the demand on the output of filter f. A demand h on its input is correct if d(f(h(x))) =
// d(f(x)) for every x. The same must hold for the cells that f sends to sinks. Any wider demand is
// then correct too. The tests check each rule below against this definition.
type demand struct {
	// none means that no cells are used; with a single family, none of that family. dead means that
	// no cells of any family are used. Cells of an unused family still count for limits and
	// offsets, and a predicate may need them.
	none, dead bool
	families   *familySet // nil means all
	qualifiers ByteRange
	start, end int64
	versions   int
	cells      int
	values     bool
}

// familySet is a set of family names, as an expression over patterns.
type familySet struct {
	m    *matcher
	name string // the only member if m, and and or are nil
	and  []*familySet
	or   []*familySet
	// work bounds the cost of has, in comparisons and pattern steps per byte. Sets share their
	// parts, so a chain of n interleaves can produce a set of 2^n.
	work int64
}

// familySetWork is the maximum work of a set. A set that would exceed it is replaced by a wider
// one, which is also correct but less selective.
const familySetWork = 256

// familiesOf returns the set of families that m matches, or nil (all families) if the match costs
// too much.
func familiesOf(m *matcher) *familySet {
	if work := 1 + m.steps; work <= familySetWork {
		return &familySet{m: m, work: work}
	}
	return nil
}

func (s *familySet) has(name string) bool {
	switch {
	case s == nil:
		return true
	case s.m != nil:
		return s.m.matchString(name)
	case s.and != nil:
		return s.and[0].has(name) && s.and[1].has(name)
	case s.or != nil:
		return s.or[0].has(name) || s.or[1].has(name)
	}
	return s.name == name
}

// bothFamilies returns a set that contains the intersection of a and b. It is b if the exact
// intersection costs too much.
func bothFamilies(a, b *familySet) *familySet {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.work+b.work > familySetWork:
		return b
	}
	return &familySet{and: []*familySet{a, b}, work: a.work + b.work}
}

// eitherFamilies returns a set that contains the union of a and b. It is nil (all families) if the
// exact union costs too much.
func eitherFamilies(a, b *familySet) *familySet {
	if a == b {
		return a
	}
	if a == nil || b == nil || a.work+b.work > familySetWork {
		return nil
	}
	return &familySet{or: []*familySet{a, b}, work: a.work + b.work}
}

// demander computes demands, for all families or for a single one.
type demander struct {
	family string
	single bool
}

func (d demand) hints(w demander) Hints {
	h := Hints{
		None: d.none, Qualifiers: d.qualifiers, Start: d.start, End: d.end,
		MaxVersions: d.versions, MaxCells: d.cells, Values: d.values,
	}
	if d.none {
		return Hints{None: true}
	}
	// The first n cells hold no more than n of a column.
	if d.cells != 0 && (d.versions == 0 || d.versions > d.cells) {
		h.MaxVersions = d.cells
	}
	if d.families != nil && !w.single {
		h.Families = d.families.has
	}
	return h
}

// wholeArea reports whether the demand's area is all cells.
func (d *demand) wholeArea() bool {
	return d.families == nil && d.qualifiers.Start.Kind == Unbounded && d.qualifiers.End.Kind == Unbounded &&
		d.start == 0 && d.end == 0
}

// dropCellLimit drops the cell limit, because cells outside the area may lie between those in it.
// It keeps the version limit that the cell limit implies.
func (d *demand) dropCellLimit() {
	if d.cells != 0 && (d.versions == 0 || d.versions > d.cells) {
		d.versions = d.cells
	}
	d.cells = 0
}

// demand returns the demand on n's input when the demand on its output is d.
func (w demander) demand(n *node, d demand) demand {
	if n.kind == kindSink {
		return demand{values: true} // goes to the result regardless of later filters
	}
	if n.kind == kindChain {
		for i := len(n.kids) - 1; i >= 0; i-- {
			d = w.demand(n.kids[i], d)
		}
		return d
	}
	if n.kind == kindInterleave {
		all := w.demand(n.kids[0], d)
		for _, kid := range n.kids[1:] {
			all = all.or(w.demand(kid, d))
		}
		return all
	}
	switch {
	case d.dead:
		return d
	case n.kind == kindBlock:
		return demand{none: true, dead: true}
	case n.kind == kindCondition:
		return w.demandCondition(n, d)
	case n.kind == kindCellsPerRowLimit:
		return w.demandRowLimit(n, d)
	case n.kind == kindCellsPerRowOffset:
		return w.demandRowOffset(n, d)
	case d.none:
		return d
	}
	switch n.kind {
	case kindStripValue:
		d.values = false
	case kindFamilyRegex, kindColumnRange, kindQualifierRegex:
		return w.demandColumns(n, d)
	case kindValueRegex, kindValueRange, kindValueMask:
		d.dropCellLimit()
		d.versions = 0
		d.values = true
	case kindTimestampRange:
		d.start = max(d.start, n.start)
		if n.end != 0 && (d.end == 0 || n.end < d.end) {
			d.end = n.end
		}
	case kindCellsPerColumnLimit:
		if d.end != 0 {
			// The newest n that the filter counts may be those past the end.
			d.end, d.versions, d.cells = 0, n.n, 0
		} else if d.versions == 0 || d.versions > n.n {
			d.versions = n.n
		}
	}
	return d
}

// demandColumns handles the filters that drop whole columns.
func (w demander) demandColumns(n *node, d demand) demand {
	switch n.kind {
	case kindFamilyRegex:
		if w.single {
			d.none = !n.m.matchString(w.family)
		} else if n.m.op != matchAny || n.m.min > 1 {
			d.families = bothFamilies(d.families, familiesOf(n.m))
		}
	case kindColumnRange:
		if w.single {
			d.none = n.family != w.family
		} else {
			d.families = bothFamilies(d.families, &familySet{name: n.family, work: 1})
		}
		d.qualifiers = d.qualifiers.and(n.keys)
	case kindQualifierRegex:
		if !n.m.exact {
			d.dropCellLimit()
		}
		d.qualifiers = d.qualifiers.and(n.m.within)
	}
	if d.none {
		return demand{none: true}
	}
	return d
}

// demandRowLimit demands every cell that the limit counts, used or not.
func (w demander) demandRowLimit(n *node, d demand) demand {
	h := demand{cells: n.n, values: d.values}
	// For a single family, d.cells does not bound the position of its cells in the row.
	if !w.single && d.wholeArea() && d.versions == 0 && d.cells != 0 {
		h.cells = min(h.cells, d.cells)
	}
	return h
}

// demandRowOffset demands every cell that the offset counts, used or not.
func (w demander) demandRowOffset(n *node, d demand) demand {
	if d.none {
		return demand{cells: n.n}
	}
	h := demand{values: d.values}
	if d.wholeArea() && d.versions == 0 && d.cells != 0 && n.n <= math.MaxInt-d.cells {
		h.cells = d.cells + n.n
	}
	return h
}

func (w demander) demandCondition(n *node, d demand) demand {
	branches := demand{none: true, dead: true}
	for _, kid := range n.kids[1:] {
		if kid != nil {
			branches = branches.or(w.demand(kid, d))
		}
	}
	if branches.dead {
		return branches // regardless of the predicate
	}
	// One cell of the predicate's output suffices, whichever it is.
	return branches.or(w.demand(n.kids[0], demand{cells: 1}))
}

// or returns a demand that covers both.
func (d demand) or(o demand) demand {
	if d.none {
		o.dead = o.dead && d.dead
		return o
	}
	if o.none {
		return d
	}
	u := demand{
		families:   eitherFamilies(d.families, o.families),
		qualifiers: d.qualifiers.or(o.qualifiers),
		start:      min(d.start, o.start),
		values:     d.values || o.values,
	}
	if d.end != 0 && o.end != 0 {
		u.end = max(d.end, o.end)
	}
	if d.sameArea(&o) && d.versions == o.versions {
		u.versions = d.versions
		if d.cells != 0 && o.cells != 0 {
			u.cells = max(d.cells, o.cells)
		}
		return u
	}
	d.dropCellLimit()
	o.dropCellLimit()
	// With different ends, the newest versions are different cells. A different start is harmless:
	// it excludes only the oldest versions.
	if d.end == o.end && d.versions != 0 && o.versions != 0 {
		u.versions = max(d.versions, o.versions)
	}
	return u
}

func (d *demand) sameArea(o *demand) bool {
	return d.families == o.families && d.start == o.start && d.end == o.end &&
		d.qualifiers.Start.equal(o.qualifiers.Start) && d.qualifiers.End.equal(o.qualifiers.End)
}
