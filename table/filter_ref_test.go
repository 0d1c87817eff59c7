package table

import (
	"bytes"
	"slices"
	"strings"

	"pgregory.net/rapid"
	"rsc.io/binaryregexp"
)

// refEval is the reference definition of the filters, as simple as possible: no buffers, no fast
// paths, no hints. coin decides for samples, which are numbered from 1 in tree order.
func refEval(f Filter, key []byte, cells []Cell, coin func(id uint64, p float64) bool) []Cell {
	id := uint64(0)
	r := &refRow{key: key, coin: coin}
	out := r.eval(refTree(f, &id), cells)
	all := slices.Concat(r.sunk, out)
	slices.SortStableFunc(all, func(a, b Cell) int { return CompareCells(&a, &b) })
	return all
}

type refNode struct {
	f     Filter
	id    uint64 // of a sample
	parts []*refNode
}

func refTree(f Filter, id *uint64) *refNode {
	n := &refNode{f: f}
	var parts []Filter
	switch f := f.(type) {
	case RowSample:
		*id++
		n.id = *id
	case Chain:
		parts = f
	case Interleave:
		parts = f
	case Condition:
		n.parts = []*refNode{refTree(f.Predicate, id), nil, nil}
		if f.True != nil {
			n.parts[1] = refTree(f.True, id)
		}
		if f.False != nil {
			n.parts[2] = refTree(f.False, id)
		}
		return n
	}
	for _, p := range parts {
		n.parts = append(n.parts, refTree(p, id))
	}
	return n
}

type refRow struct {
	key  []byte
	coin func(id uint64, p float64) bool
	sunk []Cell
}

func refMatch(pattern string, b []byte) bool {
	return binaryregexp.MustCompile(`\A(?:` + pattern + `)\z`).Match(b)
}

func refInRange(r ByteRange, b []byte) bool {
	s := string(b)
	switch {
	case r.Start.Kind == BoundClosed && s < string(r.Start.Value),
		r.Start.Kind == BoundOpen && s <= string(r.Start.Value),
		r.End.Kind == BoundClosed && s > string(r.End.Value),
		r.End.Kind == BoundOpen && s >= string(r.End.Value):
		return false
	}
	return true
}

func (r *refRow) eval(n *refNode, in []Cell) []Cell {
	pick := func(keep func(i int, c Cell) bool) (out []Cell) {
		for i, c := range in {
			if keep(i, c) {
				out = append(out, c)
			}
		}
		return out
	}
	all := func(ok bool) []Cell { return pick(func(int, Cell) bool { return ok }) }
	switch f := n.f.(type) {
	case nil, PassAll:
		return all(true)
	case BlockAll:
		return nil
	case Sink:
		r.sunk = append(r.sunk, in...)
		return nil
	case RowRegex:
		return all(refMatch(string(f), r.key))
	case RowSample:
		return all(r.coin(n.id, float64(f)))
	case FamilyRegex:
		return pick(func(_ int, c Cell) bool { return refMatch(string(f), []byte(c.Family)) })
	case QualifierRegex:
		return pick(func(_ int, c Cell) bool { return refMatch(string(f), c.Qualifier) })
	case ValueRegex:
		return pick(func(_ int, c Cell) bool { return refMatch(string(f), c.Value) })
	case ColumnRange:
		return pick(func(_ int, c Cell) bool { return c.Family == f.Family && refInRange(f.Qualifiers, c.Qualifier) })
	case ValueRange:
		return pick(func(_ int, c Cell) bool { return refInRange(ByteRange(f), c.Value) })
	case ValueMask:
		return pick(func(_ int, c Cell) bool {
			for i := range min(len(f), len(c.Value)) {
				if c.Value[i]|^f[i] != 0xff {
					return false
				}
			}
			return len(f) == len(c.Value)
		})
	case TimestampRange:
		return pick(func(_ int, c Cell) bool { return c.Timestamp >= f.Start && f.End.Contains(c.Timestamp) })
	case CellsPerRowLimit:
		return pick(func(i int, _ Cell) bool { return i < int(f) })
	case CellsPerRowOffset:
		return pick(func(i int, _ Cell) bool { return i >= int(f) })
	case CellsPerColumnLimit:
		return pick(func(i int, c Cell) bool {
			rank := 0
			for _, o := range in[:i] {
				if o.Family == c.Family && string(o.Qualifier) == string(c.Qualifier) {
					rank++
				}
			}
			return rank < int(f)
		})
	}
	return r.transform(n, all(true))
}

// transform evaluates the remaining kinds of filter. It may modify in.
func (r *refRow) transform(n *refNode, in []Cell) []Cell {
	switch f := n.f.(type) {
	case StripValue:
		for i := range in {
			in[i].Value = nil
		}
		return in
	case ApplyLabel:
		for i := range in {
			in[i].Labels = append(slices.Clone(in[i].Labels), string(f))
		}
		return in
	case Chain:
		for _, p := range n.parts {
			in = r.eval(p, in)
		}
		return in
	case Interleave:
		var out []Cell
		for _, p := range n.parts {
			out = append(out, r.eval(p, in)...)
		}
		slices.SortStableFunc(out, func(a, b Cell) int { return CompareCells(&a, &b) })
		return out
	case Condition:
		branch := n.parts[2]
		if len(r.eval(n.parts[0], in)) > 0 {
			branch = n.parts[1]
		}
		if branch == nil {
			return nil
		}
		return r.eval(branch, in)
	}
	panic("no reference for this filter")
}

// programCoin returns the sample decisions of a program.
func programCoin(p *Program, key []byte) func(uint64, float64) bool {
	return func(id uint64, prob float64) bool {
		return p.matchKey(&node{kind: kindRowSample, p: prob, salt: id}, key)
	}
}

// Components of random rows and filters: few enough that filters match cells.
var (
	genFamilies   = []string{"a", "anchor", "b", "contents"}
	genQualifiers = []string{"", "a", "ab", "abc", "b", "c\n", "\xff", "\xff\xff"}
	genValues     = []string{"", "1", "12", "a", "ab\n", "\xfe\x00"}
	genKeys       = []string{"a", "com.cnn.www", "com.cnn.www/index", "row\n", "\xff\x01"}
	genPatterns   = []string{
		"", "a", "a.*", `a\C*`, ".*", `\C*`, ".+", ".*b", ".*b.*", `\C*b\C*`, "a|b", "(a|anchor)", "a[bc]*", "[^a].*",
		"anchor|contents", "com\\.cnn\\..*", "^a.*$", "ab?c?", "\\xff+", "[a-c]", "(?i)A.*", "(a|b).*", "a.*c", "x", "1.*",
	}
	genLabels = []string{"x", "foo-1"}
)

// pick draws a number below n. rapid prefers small numbers, which would make most filters a pass,
// so the draw is spread evenly; 0 remains the simplest.
func pick(t *rapid.T, what string, n int) int {
	v := rapid.Uint32().Draw(t, what) * 2654435761
	return int(uint64(v^v>>15) * uint64(n) >> 32)
}

func sample[T any](t *rapid.T, what string, of []T) T { return of[pick(t, what, len(of))] }

func genCells(t *rapid.T) []Cell {
	n := rapid.IntRange(0, 40).Draw(t, "cells")
	var cells []Cell
	for range n {
		cells = append(cells, Cell{
			Family:    sample(t, "family", genFamilies),
			Qualifier: []byte(sample(t, "qualifier", genQualifiers)),
			Timestamp: int64(pick(t, "timestamp", 7)),
			Value:     []byte(sample(t, "value", genValues)),
		})
	}
	slices.SortStableFunc(cells, func(a, b Cell) int { return CompareCells(&a, &b) })
	return slices.CompactFunc(cells, func(a, b Cell) bool { return CompareCells(&a, &b) == 0 })
}

func genKey(t *rapid.T) []byte { return []byte(sample(t, "key", genKeys)) }

func genRange(t *rapid.T, of []string) ByteRange {
	bound := func(name string) Bound {
		kind := BoundKind(pick(t, name, 3))
		if kind == Unbounded {
			return Bound{}
		}
		return Bound{kind, []byte(sample(t, name+" value", of))}
	}
	r := ByteRange{bound("start"), bound("end")}
	if r.Start.Kind != Unbounded && r.End.Kind != Unbounded && bytes.Compare(r.Start.Value, r.End.Value) > 0 {
		r.Start.Value, r.End.Value = r.End.Value, r.Start.Value
	}
	return r
}

var (
	allLeaves = []filterKind{
		kindPass, kindBlock, kindSink, kindRowRegex, kindRowSample, kindFamilyRegex, kindQualifierRegex, kindValueRegex,
		kindColumnRange, kindValueRange, kindValueMask, kindTimestampRange, kindCellsPerRowLimit, kindCellsPerRowOffset,
		kindCellsPerColumnLimit, kindStripValue, kindApplyLabel,
	}
	// countingLeaves are the filters whose order in a chain matters most.
	countingLeaves = []filterKind{
		kindFamilyRegex, kindColumnRange, kindTimestampRange, kindCellsPerRowLimit, kindCellsPerRowOffset,
		kindCellsPerColumnLimit,
	}
)

// genFilter draws a filter that Compile accepts: no sinks in conditions, at most one label on each
// path.
func genFilter(t *rapid.T, leaves []filterKind, depth int, sinks, labels bool) Filter {
	if depth > 1 && pick(t, "composite", 2) == 1 {
		return genComposite(t, leaves, kindChain+filterKind(pick(t, "kind", 3)), depth, sinks, labels)
	}
	kind := sample(t, "kind", leaves)
	if kind == kindSink && sinks {
		return Sink{}
	}
	return genLeaf(t, kind, labels)
}

func genLeaf(t *rapid.T, kind filterKind, labels bool) Filter {
	pattern := func() string { return sample(t, "pattern", genPatterns) }
	switch kind {
	case kindPass:
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return PassAll{}
	case kindBlock:
		return BlockAll{}
	case kindRowRegex:
		return RowRegex(pattern())
	case kindRowSample:
		return RowSample(sample(t, "p", []float64{0.1, 0.5, 0.9}))
	case kindFamilyRegex:
		return FamilyRegex(pattern())
	case kindQualifierRegex:
		return QualifierRegex(pattern())
	case kindValueRegex:
		return ValueRegex(pattern())
	case kindColumnRange:
		return ColumnRange{sample(t, "family", genFamilies), genRange(t, genQualifiers)}
	case kindValueRange:
		return ValueRange(genRange(t, genValues))
	case kindValueMask:
		return ValueMask(sample(t, "mask", []string{"", "\x00", "1", "\x01", "\x10\x02", "ab\x0a", "\x40\x40"}))
	}
	return genNumbers(t, kind, labels)
}

func genNumbers(t *rapid.T, kind filterKind, labels bool) Filter {
	number := func() int64 { return int64(1 + pick(t, "n", 6)) }
	switch kind {
	case kindTimestampRange:
		start := int64(pick(t, "start", 6))
		end := sample(t, "end", []TimestampEnd{{}, Before(start), Before(start + 1), Before(start + 3)})
		return TimestampRange{start, end}
	case kindCellsPerRowLimit:
		return CellsPerRowLimit(number())
	case kindCellsPerRowOffset:
		return CellsPerRowOffset(number() - 1)
	case kindCellsPerColumnLimit:
		return CellsPerColumnLimit(number())
	case kindApplyLabel:
		if labels {
			return ApplyLabel(sample(t, "label", genLabels))
		}
	}
	return StripValue{}
}

func genComposite(t *rapid.T, leaves []filterKind, kind filterKind, depth int, sinks, labels bool) Filter {
	if kind == kindCondition {
		part := func() Filter { return genFilter(t, leaves, depth-1, false, labels) }
		return Condition{part(), part(), part()}
	}
	n := 1 + pick(t, "parts", 4)
	labelled := pick(t, "labelled", n)
	parts := make([]Filter, n)
	for i := range parts {
		parts[i] = genFilter(t, leaves, depth-1, sinks, labels && (kind == kindInterleave || i == labelled))
	}
	if kind == kindChain {
		return Chain(parts)
	}
	return Interleave(parts)
}

// cellsText formats cells for comparison and for error messages.
func cellsText(cells []Cell) string {
	var b strings.Builder
	for _, c := range cells {
		b.WriteString(c.Family + ":" + quoteShort(c.Qualifier) + "@" + itoa(c.Timestamp) + "=" + quoteShort(c.Value))
		for _, l := range c.Labels {
			b.WriteString(" #" + l)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
