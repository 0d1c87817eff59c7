package table

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// String returns the text of the policy, which ParseGCPolicy parses to an equal policy: "none",
// "versions=3", "age=30d", "versions=3 or age=30d", "versions=1 and (age=7d or versions=5)".
func (p *GCPolicy) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

// MarshalText returns what String returns.
func (p GCPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *GCPolicy) write(b *strings.Builder) {
	switch p.Kind {
	case GCNone:
		b.WriteString("none")
	case GCMaxVersions:
		b.WriteString("versions=")
		b.WriteString(strconv.Itoa(p.Versions))
	case GCMaxAge:
		b.WriteString("age=")
		b.WriteString(formatAge(p.Age))
	case GCUnion, GCIntersection:
		word := " or "
		if p.Kind == GCIntersection {
			word = " and "
		}
		for i := range p.Rules {
			if i > 0 {
				b.WriteString(word)
			}
			p.Rules[i].writePart(b)
		}
	}
}

// writePart writes a rule that is part of another, in parentheses if needed.
func (p *GCPolicy) writePart(b *strings.Builder) {
	if p.Kind != GCUnion && p.Kind != GCIntersection {
		p.write(b)
		return
	}
	b.WriteByte('(')
	p.write(b)
	b.WriteByte(')')
}

// ageUnits is ordered from long to short. It has no years or months because their lengths vary.
var ageUnits = []struct {
	name string
	d    time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"us", time.Microsecond},
}

// formatAge formats an age in the longest unit that divides it.
func formatAge(d time.Duration) string {
	for _, u := range ageUnits {
		if d%u.d == 0 {
			return strconv.FormatInt(int64(d/u.d), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns" // not a valid age; used in errors only
}

// ParseGCPolicy parses the text of a policy:
//
//	policy = "none" | any
//	any    = all { "or" all }
//	all    = rule { "and" rule }
//	rule   = "versions=" N | "age=" N unit | "(" any ")"
//	unit   = "d" | "h" | "m" | "s" | "ms" | "us"
//
// Spaces and tabs around words and parentheses are ignored. The empty text means "none". "or"
// collects what either side collects: "versions=3 or age=30d" keeps at most three versions, none
// older than 30 days. Errors: ErrBadGCPolicy, as a *GCPolicyError with the offset in the text, and
// ErrLimit.
func ParseGCPolicy(text string) (GCPolicy, error) {
	p := gcParser{text: text, lim: &defaultLimits}
	if p.space(); p.pos == len(text) || p.word("none") && p.atEnd() {
		return GCPolicy{}, nil
	}
	p.pos = 0
	policy, err := p.list(1, GCUnion)
	if err != nil {
		return GCPolicy{}, err
	}
	if !p.atEnd() {
		return GCPolicy{}, p.bad(`expected "and", "or" or the end`)
	}
	if err := policy.Validate(nil); err != nil {
		return GCPolicy{}, err
	}
	return policy, nil
}

// gcParser is a recursive-descent parser with bounded depth.
type gcParser struct {
	text string
	pos  int
	lim  *Limits
}

func (p *gcParser) bad(reason string) error {
	return &GCPolicyError{Text: p.text, Offset: p.pos, Reason: reason}
}

func (p *gcParser) space() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}

func (p *gcParser) atEnd() bool {
	p.space()
	return p.pos == len(p.text)
}

// word consumes w if it is next and not part of a longer word.
func (p *gcParser) word(w string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.text[p.pos:], w)
	if !ok || rest != "" && nameByte(rest[0]) {
		return false
	}
	p.pos += len(w)
	return true
}

// list parses rules joined by the word of kind: for GCUnion lists joined by "and", for
// GCIntersection single rules.
func (p *gcParser) list(depth int64, kind GCKind) (GCPolicy, error) {
	// One level of parentheses is two levels of recursion. A single rule adds no level to the
	// policy.
	if depth > 2*p.lim.GCPolicyDepth {
		return GCPolicy{}, &LimitError{What: "levels of a gc policy", Limit: p.lim.GCPolicyDepth, Got: depth / 2}
	}
	var rules []GCPolicy
	for {
		var r GCPolicy
		var err error
		if kind == GCUnion {
			r, err = p.list(depth+1, GCIntersection)
		} else {
			r, err = p.rule(depth + 1)
		}
		if err != nil {
			return GCPolicy{}, err
		}
		rules = append(rules, r)
		if int64(len(rules)) > p.lim.GCPolicyNodes {
			return GCPolicy{}, &LimitError{What: "rules in a gc policy", Limit: p.lim.GCPolicyNodes, Got: int64(len(rules))}
		}
		if kind == GCUnion && p.word("or") || kind == GCIntersection && p.word("and") {
			continue
		}
		if len(rules) == 1 {
			return rules[0], nil
		}
		return GCPolicy{Kind: kind, Rules: rules}, nil
	}
}

func (p *gcParser) rule(depth int64) (GCPolicy, error) {
	p.space()
	switch rest := p.text[p.pos:]; {
	case strings.HasPrefix(rest, "("):
		p.pos++
		r, err := p.list(depth, GCUnion)
		if err != nil {
			return GCPolicy{}, err
		}
		if p.space(); !strings.HasPrefix(p.text[p.pos:], ")") {
			return GCPolicy{}, p.bad(`expected "and", "or" or ")"`)
		}
		p.pos++
		return r, nil
	case strings.HasPrefix(rest, "versions="):
		p.pos += len("versions=")
		n, ok := p.number()
		if !ok || n < 1 || n > maxVersionsRule {
			return GCPolicy{}, p.bad("expected a number of versions from 1 to 2147483647")
		}
		return MaxVersions(int(n)), nil
	case strings.HasPrefix(rest, "age="):
		p.pos += len("age=")
		return p.age()
	case p.word("none"):
		return GCPolicy{}, p.bad(`"none" must stand alone`)
	}
	return GCPolicy{}, p.bad(`expected "versions=", "age=" or "("`)
}

func (p *gcParser) age() (GCPolicy, error) {
	n, ok := p.number()
	if !ok {
		return GCPolicy{}, p.bad("expected an age such as 30d, 12h, 90m, 5s, 20ms or 7us")
	}
	for _, u := range ageUnits {
		if p.word(u.name) {
			if n < 1 || n > int64(math.MaxInt64/u.d) {
				return GCPolicy{}, p.bad("age is zero or over 292 years")
			}
			return MaxAge(time.Duration(n) * u.d), nil
		}
	}
	return GCPolicy{}, p.bad("expected a unit of time: d, h, m, s, ms or us")
}

// number parses digits at the current position.
func (p *gcParser) number() (int64, bool) {
	end := p.pos
	for end < len(p.text) && '0' <= p.text[end] && p.text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(p.text[p.pos:end], 10, 64)
	if err != nil {
		return 0, false
	}
	p.pos = end
	return n, true
}
