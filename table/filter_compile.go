package table

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Program is a compiled Filter: checked, with its patterns compiled. It is immutable and safe for
// concurrent use.
type Program struct {
	root *node
	// seed decides, together with the row key, which rows a RowSample emits. Compile draws it; Draw
	// draws another.
	seed uint64
	// samples reports whether the filter contains a RowSample.
	samples bool
	// keyed reports whether Evaluator.MatchRow depends on the row key.
	keyed bool
	// sinks reports whether the filter contains a Sink.
	sinks bool
	// cells is Limits.FilterCells.
	cells int
	// bytes is the estimated memory of the program. costly is the result of Costly.
	bytes  int64
	costly bool
}

// Bytes returns the estimated memory of the program in bytes.
func (p *Program) Bytes() int64 { return p.bytes }

// ProgramBytesMax returns the maximum of Program.Bytes for filters within lim. A nil lim means the
// defaults.
func ProgramBytesMax(lim *Limits) int64 {
	l := lim.orDefault()
	return l.FilterNodes*filterNodeCost + 2*l.FilterBytes + l.RegexCost
}

// filterNodeCost is the memory of a compiled filter without patterns, in bytes.
const filterNodeCost = 320

// Costly reports whether evaluating the program on rows of typical size may take longer than
// reading them.
func (p *Program) Costly() bool { return p != nil && p.costly }

// costlyNodes is the number of nodes above which a filter is costly.
const costlyNodes = 64

// node is a compiled filter.
type node struct {
	kind filterKind
	// m is the pattern of the regex kinds.
	m *matcher
	// family and keys belong to ColumnRange; ValueRange uses only keys, and ValueMask only their start.
	family string
	keys   ByteRange
	// start and end bound a nonempty TimestampRange. An end of 0 means unbounded.
	start, end int64
	// n is the argument of the limits and of the offset.
	n int
	// labels is shared by all labelled cells.
	labels []string
	// p is RowSample's probability. salt makes its decisions independent of other RowSamples.
	p    float64
	salt uint64
	// kids are the parts of a Chain or an Interleave, or the predicate, true and false branches of
	// a Condition. Either branch may be nil.
	kids []*node
}

// Compile checks a filter against the default limits and compiles it. A nil filter passes every
// cell. Errors: ErrBadFilter, as a *FilterError with the path of the invalid node; it wraps a
// *LimitError if a limit is exceeded.
func Compile(f Filter) (*Program, error) { return CompileLimits(f, nil) }

// CompileLimits is Compile with explicit limits; nil means the defaults.
func CompileLimits(f Filter, lim *Limits) (*Program, error) {
	l := lim.orDefault()
	c := compiler{l: l}
	root, err := c.compile(f, scope{depth: 1})
	if err != nil {
		return nil, err
	}
	return &Program{
		root: root, seed: rand.Uint64(), samples: c.samples > 0, keyed: c.keyed, sinks: c.sinks, cells: int(l.FilterCells),
		bytes: c.nodes*filterNodeCost + 2*c.bytes + c.cost, costly: c.engines || c.nodes > costlyNodes,
	}, nil
}

// compiler holds the state of one compilation.
type compiler struct {
	l            *Limits
	nodes, bytes int64
	cost         int64 // of the compiled patterns
	samples      uint64
	keyed, sinks bool
	engines      bool // a pattern needs the regexp engine
}

// scope is the position of a filter in the tree.
type scope struct {
	depth int64
	cond  bool   // inside a condition
	up    *scope // of the parent; nil for the root
	index int    // position among the parent's parts
	kind  filterKind
}

func (s *scope) path() string {
	if s.up == nil {
		return "root"
	}
	var steps []string
	for ; s.up != nil; s = s.up {
		if s.up.kind == kindCondition {
			steps = append(steps, "condition."+[...]string{"predicate", "true", "false"}[s.index])
		} else {
			steps = append(steps, fmt.Sprintf("%s[%d]", kindNames[s.up.kind], s.index))
		}
	}
	for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 {
		steps[i], steps[j] = steps[j], steps[i]
	}
	return strings.Join(steps, ".")
}

func (s *scope) bad(reason string) error { return &FilterError{Path: s.path(), Reason: reason} }

func (s *scope) over(what string, limit, got int64) error {
	return &FilterError{Path: s.path(), Err: &LimitError{What: what, Limit: limit, Got: got}}
}

// compile compiles the filter f at position s.
func (c *compiler) compile(f Filter, s scope) (*node, error) {
	if c.nodes++; c.nodes > c.l.FilterNodes {
		return nil, s.over("filters in one tree", c.l.FilterNodes, c.nodes)
	}
	if s.depth > c.l.FilterDepth {
		return nil, s.over("levels of a filter", c.l.FilterDepth, s.depth)
	}
	if f == nil {
		return &node{kind: kindPass}, nil
	}
	s.kind = f.kind()
	n := &node{kind: s.kind}
	switch f := f.(type) {
	case PassAll, BlockAll, StripValue:
		return n, nil
	case Sink:
		if s.cond {
			return nil, s.bad("a sink is inside a condition")
		}
		c.sinks = true
		return n, nil
	case Chain:
		return c.compileParts(n, f, s)
	case Interleave:
		return c.compileParts(n, f, s)
	case Condition:
		return c.compileCondition(n, f, s)
	case RowSample, CellsPerRowLimit, CellsPerRowOffset, CellsPerColumnLimit, TimestampRange:
		return c.compileNumbers(n, f, s)
	case ColumnRange, ValueRange, ValueMask, ApplyLabel:
		return c.compileBytes(n, f, s)
	case RowRegex:
		c.keyed = true
		return c.compilePattern(n, string(f), s)
	case FamilyRegex:
		if strings.Contains(string(f), ":") {
			return nil, s.bad("a family pattern has a ':'")
		}
		return c.compilePattern(n, string(f), s)
	case QualifierRegex:
		return c.compilePattern(n, string(f), s)
	case ValueRegex:
		return c.compilePattern(n, string(f), s)
	}
	panic(fmt.Sprintf("BUG: unknown filter %T", f))
}

func (c *compiler) compileParts(n *node, parts []Filter, s scope) (*node, error) {
	if len(parts) == 0 {
		return nil, s.bad(kindNames[s.kind] + " has no parts")
	}
	labelled := 0
	n.kids = make([]*node, 0, min(int64(len(parts)), c.l.FilterNodes))
	for i, f := range parts {
		kid, err := c.compile(f, scope{depth: s.depth + 1, cond: s.cond, up: &s, index: i})
		if err != nil {
			return nil, err
		}
		if kid.labels != nil {
			labelled++
			n.labels = kid.labels
		}
		n.kids = append(n.kids, kid)
	}
	if s.kind == kindChain && labelled > 1 {
		return nil, s.bad("more than one part of a chain applies labels")
	}
	return n, nil
}

func (c *compiler) compileCondition(n *node, f Condition, s scope) (*node, error) {
	n.kids = make([]*node, 3)
	for i, part := range []Filter{f.Predicate, f.True, f.False} {
		if part == nil && i > 0 {
			continue
		}
		kid, err := c.compile(part, scope{depth: s.depth + 1, cond: true, up: &s, index: i})
		if err != nil {
			return nil, err
		}
		if kid.labels != nil {
			n.labels = kid.labels
		}
		n.kids[i] = kid
	}
	return n, nil
}

func (c *compiler) compileNumbers(n *node, f Filter, s scope) (*node, error) {
	limit := func(v int64, least int64) (*node, error) {
		if v < least {
			return nil, s.bad(fmt.Sprintf("%s of %d is below %d", kindNames[s.kind], v, least))
		}
		n.n = int(v)
		return n, nil
	}
	switch f := f.(type) {
	case CellsPerRowLimit:
		return limit(int64(f), 1)
	case CellsPerRowOffset:
		return limit(int64(f), 0)
	case CellsPerColumnLimit:
		return limit(int64(f), 1)
	case RowSample:
		if !(f > 0 && f < 1) { // also rejects NaN
			return nil, s.bad(fmt.Sprintf("probability of %v is not above 0 and below 1", float64(f)))
		}
		c.keyed = true
		c.samples++
		n.p, n.salt = float64(f), c.samples
	case TimestampRange:
		end, bounded := f.End.Bound()
		if f.Start < 0 || bounded && end < f.Start {
			return nil, s.bad(fmt.Sprintf("bad timestamp range: start %d, end %v", f.Start, f.End))
		}
		if bounded && end == f.Start {
			n.kind = kindBlock
			return n, nil
		}
		n.start, n.end = f.Start, end
	}
	return n, nil
}

func (c *compiler) compileBytes(n *node, f Filter, s scope) (*node, error) {
	switch f := f.(type) {
	case ColumnRange:
		if err := checkName("family name", f.Family, c.l.FamilyNameBytes); err != nil {
			return nil, &FilterError{Path: s.path(), Err: err}
		}
		n.family, n.keys = f.Family, f.Qualifiers
	case ValueRange:
		n.keys = ByteRange(f)
	case ValueMask:
		n.keys.Start = Closed([]byte(f))
	case ApplyLabel:
		if !validLabel(string(f)) {
			return nil, s.bad("a label is not 1 to 15 of a-z 0-9 -")
		}
		n.labels = []string{string(f)}
	}
	if !n.keys.valid() {
		return nil, s.bad("a range ends before it starts, or has a bound of unknown kind")
	}
	return n, c.count(len(n.family)+len(n.keys.Start.Value)+len(n.keys.End.Value), s)
}

// cheapPatternBytes is the maximum total size of patterns that are cheap to compile.
const cheapPatternBytes = 256

// CheapToCompile reports whether compiling f takes about as long as decoding it. That holds if its
// patterns are short and none has a repetition count or a character class: those expand a few bytes
// into a long program.
func CheapToCompile(f Filter) bool { return patternBytes(f) <= cheapPatternBytes }

// patternBytes returns the total size of the patterns of f in bytes, or more than cheapPatternBytes
// if one of them is not cheap to compile.
func patternBytes(f Filter) (n int) {
	switch f := f.(type) {
	case Chain:
		for _, part := range f {
			n += patternBytes(part)
		}
	case Interleave:
		for _, part := range f {
			n += patternBytes(part)
		}
	case Condition:
		n = patternBytes(f.Predicate) + patternBytes(f.True) + patternBytes(f.False)
	case RowRegex:
		n = linearBytes(string(f))
	case FamilyRegex:
		n = linearBytes(string(f))
	case QualifierRegex:
		n = linearBytes(string(f))
	case ValueRegex:
		n = linearBytes(string(f))
	}
	return n
}

// linearBytes is patternBytes for a single pattern.
func linearBytes(pattern string) int {
	for i := range len(pattern) {
		c := pattern[i]
		class := i > 0 && pattern[i-1] == '\\' && c|0x20 >= 'a' && c|0x20 <= 'z' && c != 'C' && c != 'Q' && c != 'E'
		if c == '{' || c == '[' || class {
			return cheapPatternBytes + 1
		}
	}
	return len(pattern)
}

// count adds size bytes to the total of the tree.
func (c *compiler) count(size int, s scope) error {
	if c.bytes += int64(size); c.bytes > c.l.FilterBytes {
		return s.over("filter bytes", c.l.FilterBytes, c.bytes)
	}
	return nil
}

func (c *compiler) compilePattern(n *node, pattern string, s scope) (*node, error) {
	if int64(len(pattern)) > c.l.RegexBytes {
		return nil, s.over("pattern bytes", c.l.RegexBytes, int64(len(pattern)))
	}
	if err := c.count(len(pattern), s); err != nil {
		return nil, err
	}
	m, cost, err := compileRegex(pattern, c.l.RegexCost-c.cost)
	if over, ok := err.(*LimitError); ok {
		return nil, s.over(over.What, c.l.RegexCost, c.cost+cost)
	}
	if err != nil {
		return nil, &FilterError{Path: s.path(), Reason: kindNames[s.kind] + " pattern", Err: err}
	}
	c.cost += cost
	c.engines = c.engines || m.op == matchRegexp
	n.m = m
	return n, nil
}

func validLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 15
}

// kindNames are the names of the filters on the wire and in the paths of errors.
var kindNames = [numKinds]string{
	kindPass: "pass", kindBlock: "block", kindSink: "sink",
	kindRowRegex: "row", kindRowSample: "sample",
	kindFamilyRegex: "family", kindQualifierRegex: "qualifier", kindValueRegex: "value",
	kindColumnRange: "columns", kindValueRange: "values", kindValueMask: "value_mask", kindTimestampRange: "timestamps",
	kindCellsPerRowLimit: "cells_limit", kindCellsPerRowOffset: "cells_offset",
	kindCellsPerColumnLimit: "versions",
	kindStripValue:          "strip", kindApplyLabel: "label",
	kindChain: "chain", kindInterleave: "interleave", kindCondition: "condition",
}
