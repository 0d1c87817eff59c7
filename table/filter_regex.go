package table

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rsc.io/binaryregexp"
	"rsc.io/binaryregexp/syntax"
)

// A matcher decides whether a byte string as a whole matches a pattern. Most patterns are a
// literal, a few literals, or a literal with a wildcard before or after it. Those are matched
// without the regexp engine.
type matcher struct {
	op matchOp
	// lit is the literal of all ops except matchAny, matchOneOf and matchRegexp.
	lit []byte
	// set holds the literals of matchOneOf, at least two, in byte order.
	set []string
	// min is the number of bytes that matchAny and matchPrefix require beyond lit.
	min int
	// line forbids newlines in the bytes matched by wildcards, which were dots.
	line bool
	re   *binaryregexp.Regexp
	// steps is the maximum work of matchRegexp per byte: approximately the number of instructions
	// of its program.
	steps int64
	// within is a range that contains every match. exact reports whether every string in it
	// matches.
	within ByteRange
	exact  bool
}

type matchOp uint8

const (
	matchRegexp   matchOp = iota
	matchAny              // .* or .+
	matchLiteral          // abc
	matchPrefix           // abc.* or abc.+
	matchSuffix           // .*abc
	matchContains         // .*abc.*
	matchOneOf            // abc|abd|x
)

// maxLiterals is the largest finite set that is expanded. The engine is as fast for larger sets.
const maxLiterals = 64

func (m *matcher) match(b []byte) bool {
	switch m.op {
	case matchLiteral:
		return bytes.Equal(b, m.lit)
	case matchPrefix:
		return len(b) >= len(m.lit)+m.min && bytes.HasPrefix(b, m.lit) &&
			!(m.line && bytes.IndexByte(b[len(m.lit):], '\n') >= 0)
	case matchSuffix:
		head := len(b) - len(m.lit)
		return head >= 0 && bytes.HasSuffix(b, m.lit) && !(m.line && bytes.IndexByte(b[:head], '\n') >= 0)
	case matchContains:
		return bytes.Contains(b, m.lit) && !(m.line && bytes.IndexByte(b, '\n') >= 0)
	case matchAny:
		return len(b) >= m.min && !(m.line && bytes.IndexByte(b, '\n') >= 0)
	case matchOneOf:
		_, ok := slices.BinarySearchFunc(m.set, b, func(s string, b []byte) int { return compareStringBytes(s, b) })
		return ok
	}
	return m.re.Match(b)
}

func (m *matcher) matchString(s string) bool {
	switch m.op {
	case matchLiteral:
		return s == string(m.lit)
	case matchOneOf:
		_, ok := slices.BinarySearch(m.set, s)
		return ok
	case matchRegexp:
		return m.re.MatchString(s)
	}
	// Family names are at most 64 bytes, so the copy stays on the stack.
	var buf [64]byte
	return m.match(append(buf[:0], s...))
}

func compareStringBytes(s string, b []byte) int {
	// The conversion does not allocate: the compiler sees a comparison.
	switch {
	case s == string(b):
		return 0
	case s < string(b):
		return -1
	}
	return 1
}

// compileRegex compiles a pattern. cost is the estimated size of the compiled form in bytes. The
// error describes what is wrong with the pattern; it is a *LimitError if the cost exceeds limit.
// The cost is checked before anything is expanded, because a pattern of a few bytes can expand to a
// million nodes.
func compileRegex(pattern string, limit int64) (m *matcher, cost int64, err error) {
	text, classes, err := asciiPattern(pattern)
	if err != nil {
		return nil, 0, err
	}
	if cost = classCost * int64(classes); cost > limit {
		return nil, cost, overRegexCost(limit, cost)
	}
	// The pattern must be valid by itself: "a)(b" would become valid inside parentheses.
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, regexError(err)
	}
	size := regexSizeOf(tree)
	if cost = size.cost(); cost > limit {
		return nil, cost, overRegexCost(limit, cost)
	}
	parts := stripAnchors(regexParts(tree.Simplify(), nil))
	if m := simpleMatcher(parts); m != nil {
		return m, cost, nil
	}
	if set, ok := concatLiterals(parts); ok && len(set) > 0 {
		return literalMatcher(set), cost, nil
	}
	re, err := binaryregexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil {
		return nil, 0, regexError(err)
	}
	m = &matcher{op: matchRegexp, re: re, steps: size.nodes + 4} // 4: the anchors and the match instruction
	if len(parts) > 0 {
		if lit, ok := regexLiteral(parts[0]); ok {
			m.within = prefixRange([]byte(lit))
		}
	}
	return m, cost, nil
}

func overRegexCost(limit, cost int64) error {
	return &LimitError{What: "bytes of compiled patterns in a filter", Limit: limit, Got: cost}
}

func regexError(err error) error {
	var se *syntax.Error
	if errors.As(err, &se) {
		return fmt.Errorf("%s: %.64q", se.Code, se.Expr)
	}
	return err
}

// asciiPattern returns a pattern equivalent to p, with bytes above 127 escaped, because the parser
// requires text. It closes an open \Q, which would quote whatever is appended to the pattern.
// classes is the number of Unicode classes in p; the parser expands each to kilobytes.
func asciiPattern(p string) (text string, classes int, err error) {
	const hex = "0123456789abcdef"
	var b strings.Builder
	quoted := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\' && !quoted && i+1 < len(p):
			if p[i+1] >= 0x80 {
				return "", 0, errors.New("invalid escape sequence: a backslash before a byte above 127")
			}
			quoted = p[i+1] == 'Q'
			if p[i+1] == 'p' || p[i+1] == 'P' {
				classes++
			}
			b.WriteByte(c)
			i++
			b.WriteByte(p[i])
		case c == '\\' && quoted && i+1 < len(p) && p[i+1] == 'E':
			quoted = false
			b.WriteString(`\E`)
			i++
		case c >= 0x80 && quoted:
			b.WriteString(`\E\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			b.WriteString(`\Q`)
		case c >= 0x80:
			b.WriteString(`\x`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		default:
			b.WriteByte(c)
		}
	}
	if quoted {
		b.WriteString(`\E`)
	}
	return b.String(), classes, nil
}

// regexSize is the estimated size of a pattern's compiled form.
type regexSize struct {
	nodes int64 // approximate number of instructions
	runes int64 // of character classes
}

const (
	// nodeCost is the memory of an instruction in bytes: 40, the same for its copy in the one-pass
	// program, and about 100 more in the matching machine.
	nodeCost = 200
	// runeCost is the memory of one bound of a character class in bytes: a rune in both programs.
	runeCost = 8
	// classCost is the size of the largest Unicode class in bytes.
	classCost = 10 << 10
	// regexSizeMax caps sizes so that they cannot overflow. It exceeds every limit.
	regexSizeMax = 1 << 40
)

func (s regexSize) cost() int64 { return s.nodes*nodeCost + s.runes*runeCost }

func (s regexSize) plus(o regexSize) regexSize {
	return regexSize{s.nodes + o.nodes, s.runes + o.runes}
}

func (s regexSize) times(n int64) regexSize {
	return regexSize{min(s.nodes*n, regexSizeMax), min(s.runes*n, regexSizeMax)}
}

// regexSizeOf estimates the size of re with its repetitions expanded. It only walks the parsed tree
// and expands nothing.
func regexSizeOf(re *syntax.Regexp) regexSize {
	size := regexSize{nodes: 1}
	switch re.Op {
	case syntax.OpLiteral:
		return regexSize{nodes: max(1, int64(len(re.Rune)))}
	case syntax.OpCharClass:
		return regexSize{1, int64(len(re.Rune))}
	case syntax.OpRepeat:
		// x{2,5} expands to xx(x(x(x)?)?)?, and x{2,} to xx+.
		most := max(re.Min, re.Max, 1)
		size.nodes += 2 * int64(max(re.Max-re.Min, 0))
		return size.plus(regexSizeOf(re.Sub[0]).times(int64(most)))
	}
	for _, sub := range re.Sub {
		size = size.plus(regexSizeOf(sub))
	}
	return size
}

// regexParts appends the parts of a concatenation, with groups flattened.
func regexParts(re *syntax.Regexp, parts []*syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpCapture:
		return regexParts(re.Sub[0], parts)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			parts = regexParts(sub, parts)
		}
		return parts
	case syntax.OpEmptyMatch:
		return parts
	}
	return append(parts, re)
}

// stripAnchors drops the anchors at both ends of a concatenation. They are redundant, since the
// whole input must match.
func stripAnchors(parts []*syntax.Regexp) []*syntax.Regexp {
	for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts = parts[1:]
	}
	for len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText {
		parts = parts[:len(parts)-1]
	}
	return parts
}

// A wildcard is a star or plus of "any byte" or of "any byte except newline".
type wildcard struct {
	min  int
	line bool
}

func regexWildcard(re *syntax.Regexp) (wildcard, bool) {
	if re.Op != syntax.OpStar && re.Op != syntax.OpPlus {
		return wildcard{}, false
	}
	w := wildcard{}
	if re.Op == syntax.OpPlus {
		w.min = 1
	}
	switch re.Sub[0].Op {
	case syntax.OpAnyChar:
		return w, true
	case syntax.OpAnyCharNotNL:
		w.line = true
		return w, true
	}
	return wildcard{}, false
}

// regexLiteral returns the bytes of a case-sensitive literal.
func regexLiteral(re *syntax.Regexp) (string, bool) {
	if re.Op != syntax.OpLiteral || re.Flags&syntax.FoldCase != 0 {
		return "", false
	}
	b := make([]byte, len(re.Rune))
	for i, r := range re.Rune {
		if r > 0xff {
			return "", false
		}
		b[i] = byte(r)
	}
	return string(b), true
}

// simpleMatcher returns a matcher for an optional wildcard, a literal and an optional wildcard, or
// nil if parts have another form.
func simpleMatcher(parts []*syntax.Regexp) *matcher {
	var before, after *wildcard
	if len(parts) > 0 {
		if w, ok := regexWildcard(parts[0]); ok {
			before, parts = &w, parts[1:]
		}
	}
	if before != nil && len(parts) == 0 {
		return &matcher{op: matchAny, min: before.min, line: before.line, exact: !before.line && before.min == 0}
	}
	if len(parts) > 0 {
		if w, ok := regexWildcard(parts[len(parts)-1]); ok {
			after, parts = &w, parts[:len(parts)-1]
		}
	}
	var lit []byte
	for _, p := range parts {
		s, ok := regexLiteral(p)
		if !ok {
			return nil
		}
		lit = append(lit, s...)
	}
	return wildcardMatcher(before, lit, after)
}

func wildcardMatcher(before *wildcard, lit []byte, after *wildcard) *matcher {
	switch {
	case before == nil && after == nil:
		return literalMatcher([]string{string(lit)})
	case before == nil:
		m := &matcher{op: matchPrefix, lit: lit, min: after.min, line: after.line, within: prefixRange(lit)}
		m.exact = m.min == 0 && !m.line
		return m
	case before.min > 0 || after != nil && after.min > 0:
		return nil
	case after == nil:
		return &matcher{op: matchSuffix, lit: lit, line: before.line}
	case before.line == after.line && !(before.line && bytes.IndexByte(lit, '\n') >= 0):
		return &matcher{op: matchContains, lit: lit, line: before.line}
	}
	return nil
}

// literalMatcher returns a matcher for the strings in set, which must not be empty.
func literalMatcher(set []string) *matcher {
	slices.Sort(set)
	set = slices.Compact(set)
	m := &matcher{op: matchOneOf, set: set}
	if len(set) == 1 {
		m = &matcher{op: matchLiteral, lit: []byte(set[0]), exact: true}
	}
	m.within = ByteRange{Closed([]byte(set[0])), Closed([]byte(set[len(set)-1]))}
	return m
}

// regexLiterals returns every string that re matches, if there are at most maxLiterals.
func regexLiterals(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		lit, ok := regexLiteral(re)
		return []string{lit}, ok
	case syntax.OpCapture:
		return regexLiterals(re.Sub[0])
	case syntax.OpQuest:
		set, ok := regexLiterals(re.Sub[0])
		return append(set, ""), ok && len(set) < maxLiterals
	case syntax.OpCharClass:
		return classLiterals(re.Rune)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			set, ok := regexLiterals(sub)
			if all = append(all, set...); !ok || len(all) > maxLiterals {
				return nil, false
			}
		}
		return all, true
	case syntax.OpConcat:
		return concatLiterals(re.Sub)
	}
	return nil, false
}

func concatLiterals(parts []*syntax.Regexp) ([]string, bool) {
	all := []string{""}
	for _, p := range parts {
		set, ok := regexLiterals(p)
		if !ok || len(all)*len(set) > maxLiterals {
			return nil, false
		}
		all = appendProduct(make([]string, 0, len(all)*len(set)), all, set)
	}
	return all, true
}

func appendProduct(dst, heads, tails []string) []string {
	for _, h := range heads {
		for _, t := range tails {
			dst = append(dst, h+t)
		}
	}
	return dst
}

// classLiterals returns the bytes of a character class, given as pairs of first and last.
func classLiterals(ranges []rune) ([]string, bool) {
	var set []string
	for i := 0; i < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1] && r <= 0xff; r++ {
			if len(set) == maxLiterals {
				return nil, false
			}
			set = append(set, string([]byte{byte(r)}))
		}
	}
	return set, true
}

// prefixRange returns the range of strings that start with prefix.
func prefixRange(prefix []byte) ByteRange {
	if len(prefix) == 0 {
		return ByteRange{}
	}
	r := ByteRange{Start: Closed(prefix)}
	if next := prefixSuccessor(prefix); next != nil {
		r.End = Open(next)
	}
	return r
}

// prefixSuccessor returns the smallest byte string greater than every string that starts with
// prefix, or nil if there is none.
func prefixSuccessor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			next := slices.Clone(prefix[:i+1])
			next[i]++
			return next
		}
	}
	return nil
}
