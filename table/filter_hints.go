package table

import "math"

// Hints tell storage which cells of a row a program may leave unread. Giving Eval
// only the cells that they keep never changes what it gives out, though it may
// spare it an ErrLimit. The hints apply in the order of the fields: Families,
// Qualifiers and timestamps first, then MaxVersions, then MaxCells.
type Hints struct {
	// None tells that no cell matters: the program gives out nothing.
	None bool
	// Families tells of a family name whether its cells matter; nil means that all
	// do. It is safe for concurrent use.
	Families func(name string) bool
	// Qualifiers is the range of qualifiers that matter, in whatever family.
	Qualifiers ByteRange
	// Start and End bound the timestamps that matter: [Start, End), in
	// microseconds. An End of 0 is no bound.
	Start, End int64
	// MaxVersions is how many of a column's newest cells matter; 0 means all.
	MaxVersions int
	// MaxCells is how many of the row's first cells matter; 0 means all.
	MaxCells int
	// Values tells whether values matter. If not, Eval may be given empty ones.
	Values bool
}

// Hints returns what holds for whole rows. It takes some time: call it once for a
// read.
func (p *Program) Hints() Hints {
	d := demander{}
	return d.demand(p.root, demand{values: true}).hints(d)
}

// FamilyHints returns what holds for the cells of one family: often more than the
// row's hints, when the program treats families differently. Families in it is
// nil; MaxCells counts the family's cells alone.
func (p *Program) FamilyHints(family string) Hints {
	d := demander{family: family, single: true}
	return d.demand(p.root, demand{values: true}).hints(d)
}

// demand is what a filter's output is looked at for: the output restricted to the
// area, then to the newest versions of each column, then to the first cells. Zero
// numbers are no restriction. A demand h is right for filter f under demand d when
// d(f(h(x))) = d(f(x)) for every x, and the same for what f sinks; then so is each
// wider one. The tests hold every rule below to that.
type demand struct {
	// none tells that no cell is looked at: of the family, when the demand is that
	// of a single one. dead tells that none of any family is. The cells of a family
	// that is not looked at still count, and a predicate may ask for them.
	none, dead bool
	families   *familySet // nil is all
	qualifiers ByteRange
	start, end int64
	versions   int
	cells      int
	values     bool
}

// familySet is a set of family names, as an expression over patterns.
type familySet struct {
	m    *matcher
	name string // of a set of one name, when m, and and or are nil
	and  []*familySet
	or   []*familySet
	// work bounds what has costs, in comparisons and steps of patterns for each byte.
	// Sets share their parts, so a chain of n interleaves can make one of 2^n.
	work int64
}

// familySetWork is the most work of a set. A wider set than one that would be over it is
// as right, only less sharp.
const familySetWork = 256

// familiesOf returns the set of families that match, nil if that costs too much to find out.
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

// bothFamilies returns a set that holds all families that are in both, and of those in
// one of them alone as few as it can tell cheaply.
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

// eitherFamilies returns a set that holds all families of both: nil, which has all, if
// the union costs too much to look at.
func eitherFamilies(a, b *familySet) *familySet {
	if a == b {
		return a
	}
	if a == nil || b == nil || a.work+b.work > familySetWork {
		return nil
	}
	return &familySet{or: []*familySet{a, b}, work: a.work + b.work}
}

// demander works out demands, for all families or for a single one.
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

// wholeArea tells whether the demand's area is all cells.
func (d *demand) wholeArea() bool {
	return d.families == nil && d.qualifiers.Start.Kind == Unbounded && d.qualifiers.End.Kind == Unbounded &&
		d.start == 0 && d.end == 0
}

// spread drops the number of cells: something that the area does not tell of lies
// between them. What it says of versions stays.
func (d *demand) spread() {
	if d.cells != 0 && (d.versions == 0 || d.versions > d.cells) {
		d.versions = d.cells
	}
	d.cells = 0
}

// demand returns the demand on n's input when the demand on its output is d.
func (w demander) demand(n *node, d demand) demand {
	if n.kind == kindSink {
		return demand{values: true} // goes to the result, whatever comes after
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
	case kindValueRegex, kindValueRange:
		d.spread()
		d.versions = 0
		d.values = true
	case kindTimestampRange:
		d.start = max(d.start, n.start)
		if n.end != 0 && (d.end == 0 || n.end < d.end) {
			d.end = n.end
		}
	case kindCellsPerColumnLimit:
		if d.end != 0 {
			// The newest n that are counted may be those past the end.
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
			d.spread()
		}
		d.qualifiers = d.qualifiers.and(n.m.within)
	}
	if d.none {
		return demand{none: true}
	}
	return d
}

// demandRowLimit wants every cell that is counted, looked at or not.
func (w demander) demandRowLimit(n *node, d demand) demand {
	h := demand{cells: n.n, values: d.values}
	// Of a single family, d.cells says nothing of where in the row they lie.
	if !w.single && d.wholeArea() && d.versions == 0 && d.cells != 0 {
		h.cells = min(h.cells, d.cells)
	}
	return h
}

// demandRowOffset wants every cell that is counted, looked at or not.
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
		return branches // whatever the predicate says
	}
	// The predicate's output is looked at for one cell, whichever.
	return branches.or(w.demand(n.kids[0], demand{cells: 1}))
}

// or returns a demand that is wider than both.
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
	d.spread()
	o.spread()
	// The newest versions before two different ends are different ones. A different
	// start does no harm: it takes from the oldest.
	if d.end == o.end && d.versions != 0 && o.versions != 0 {
		u.versions = max(d.versions, o.versions)
	}
	return u
}

func (d *demand) sameArea(o *demand) bool {
	return d.families == o.families && d.start == o.start && d.end == o.end &&
		d.qualifiers.Start.equal(o.qualifiers.Start) && d.qualifiers.End.equal(o.qualifiers.End)
}
