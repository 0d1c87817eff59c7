package table

import (
	"slices"
	"time"
)

// GCKind is the kind of a GCPolicy. Values are stored: append only.
type GCKind uint8

// The kinds of policy.
const (
	// GCNone keeps everything.
	GCNone GCKind = 0
	// GCMaxVersions collects versions that are not among the newest N.
	GCMaxVersions GCKind = 1
	// GCMaxAge collects versions older than Age.
	GCMaxAge GCKind = 2
	// GCUnion collects what any of Rules collects.
	GCUnion GCKind = 3
	// GCIntersection collects what all of Rules collect.
	GCIntersection GCKind = 4
)

// A GCPolicy decides which versions of a column are garbage. The zero policy keeps everything.
// Policies are immutable values: copies share their Rules.
type GCPolicy struct {
	Kind GCKind
	// Versions is the N of GCMaxVersions: at least 1.
	Versions int
	// Age is the maximum age of GCMaxAge: whole microseconds, at least 1 µs.
	Age time.Duration
	// Rules are the parts of GCUnion and GCIntersection: at least 2, none GCNone.
	Rules []GCPolicy
}

// MaxVersions returns a policy that keeps the newest n versions of a column.
func MaxVersions(n int) GCPolicy { return GCPolicy{Kind: GCMaxVersions, Versions: n} }

// MaxAge returns a policy that keeps versions no older than d.
func MaxAge(d time.Duration) GCPolicy { return GCPolicy{Kind: GCMaxAge, Age: d} }

// Union returns a policy that collects what any of rules collects. Rules that collect nothing are
// ignored. If one rule remains, Union returns that rule; if none remains, it returns the zero
// policy.
func Union(rules ...GCPolicy) GCPolicy {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r GCPolicy) bool { return r.Kind == GCNone })
	switch len(rules) {
	case 0:
		return GCPolicy{}
	case 1:
		return rules[0]
	}
	return GCPolicy{Kind: GCUnion, Rules: rules}
}

// Intersection returns a policy that collects what all of rules collect. It returns the zero policy
// if one of them collects nothing, or if there are none.
func Intersection(rules ...GCPolicy) GCPolicy {
	for i := range rules {
		if rules[i].Kind == GCNone {
			return GCPolicy{}
		}
	}
	switch len(rules) {
	case 0:
		return GCPolicy{}
	case 1:
		return rules[0]
	}
	return GCPolicy{Kind: GCIntersection, Rules: slices.Clone(rules)}
}

// Equal reports whether both policies have the same form. "versions=1 or age=1d" is not equal to
// "age=1d or versions=1", although both collect the same versions.
func (p *GCPolicy) Equal(o *GCPolicy) bool {
	return p.Kind == o.Kind && p.Versions == o.Versions && p.Age == o.Age &&
		slices.EqualFunc(p.Rules, o.Rules, func(a, b GCPolicy) bool { return a.Equal(&b) })
}

// Garbage reports whether the policy collects a version. ageMicros is now minus the version's
// timestamp, by the clock rule of the package comment. outranked reports whether the version is out
// of versions=n, by the sticky versions rule. It is called only for the n in VersionLeaves, and not
// retained.
func (p *GCPolicy) Garbage(outranked func(n int) bool, ageMicros int64) bool {
	switch p.Kind {
	case GCMaxVersions:
		return outranked(p.Versions)
	case GCMaxAge:
		return ageMicros > p.Age.Microseconds()
	case GCUnion:
		for i := range p.Rules {
			if p.Rules[i].Garbage(outranked, ageMicros) {
				return true
			}
		}
	case GCIntersection:
		for i := range p.Rules {
			if !p.Rules[i].Garbage(outranked, ageMicros) {
				return false
			}
		}
		return len(p.Rules) > 0
	}
	return false
}

// VersionLeaves returns the distinct n of the versions=n rules in the policy, in ascending order,
// or nil if there are none.
func (p *GCPolicy) VersionLeaves() []int {
	n := p.appendLeaves(nil)
	slices.Sort(n)
	return slices.Compact(n)
}

func (p *GCPolicy) appendLeaves(n []int) []int {
	if p.Kind == GCMaxVersions {
		return append(n, p.Versions)
	}
	for i := range p.Rules {
		n = p.Rules[i].appendLeaves(n)
	}
	return n
}

// MaxVersions returns an N such that a version out of versions=N is garbage at any age: the
// smallest that follows from the form of the policy. It is 0 if there is none. A reader of newest
// versions may stop after N of them.
func (p *GCPolicy) MaxVersions() int {
	switch p.Kind {
	case GCMaxVersions:
		return p.Versions
	case GCUnion:
		least := 0
		for i := range p.Rules {
			if n := p.Rules[i].MaxVersions(); n != 0 && (least == 0 || n < least) {
				least = n
			}
		}
		return least
	case GCIntersection:
		most := 0
		for i := range p.Rules {
			n := p.Rules[i].MaxVersions()
			if n == 0 {
				return 0
			}
			most = max(most, n)
		}
		return most
	}
	return 0
}

// MaxAge returns the age beyond which every version is garbage at any rank: the smallest that
// follows from the form of the policy. It is 0 if there is none.
func (p *GCPolicy) MaxAge() time.Duration {
	switch p.Kind {
	case GCMaxAge:
		return p.Age
	case GCUnion:
		var least time.Duration
		for i := range p.Rules {
			if d := p.Rules[i].MaxAge(); d != 0 && (least == 0 || d < least) {
				least = d
			}
		}
		return least
	case GCIntersection:
		var most time.Duration
		for i := range p.Rules {
			d := p.Rules[i].MaxAge()
			if d == 0 {
				return 0
			}
			most = max(most, d)
		}
		return most
	}
	return 0
}

// Validate checks the policy against lim; nil means the defaults. Errors: ErrBadGCPolicy, ErrLimit.
func (p *GCPolicy) Validate(lim *Limits) error {
	l := lim.orDefault()
	nodes := int64(0)
	return p.validate(l, 1, &nodes)
}

func (p *GCPolicy) validate(l *Limits, depth int64, nodes *int64) error {
	if *nodes++; *nodes > l.GCPolicyNodes {
		return &LimitError{What: "rules in a gc policy", Limit: l.GCPolicyNodes, Got: *nodes}
	}
	if depth > l.GCPolicyDepth {
		return &LimitError{What: "levels of a gc policy", Limit: l.GCPolicyDepth, Got: depth}
	}
	if err := p.checkFields(depth); err != nil {
		return err
	}
	for i := range p.Rules {
		if err := p.Rules[i].validate(l, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// checkFields checks one node. Fields of other kinds must be zero, because they would not survive a
// round trip through text.
func (p *GCPolicy) checkFields(depth int64) error {
	bad := func(reason string) error { return &GCPolicyError{Reason: reason} }
	if p.Kind != GCMaxVersions && p.Versions != 0 {
		return bad("versions are set on a rule of another kind")
	}
	if p.Kind != GCMaxAge && p.Age != 0 {
		return bad("age is set on a rule of another kind")
	}
	if p.Kind != GCUnion && p.Kind != GCIntersection && len(p.Rules) != 0 {
		return bad("rules are set on a rule of another kind")
	}
	switch p.Kind {
	case GCNone:
		if depth > 1 {
			return bad(`"none" is part of another rule`)
		}
	case GCMaxVersions:
		if p.Versions < 1 || p.Versions > maxVersionsRule {
			return bad("versions are not from 1 to 2147483647")
		}
	case GCMaxAge:
		if p.Age < time.Microsecond || p.Age%time.Microsecond != 0 {
			return bad("age is not a whole number of microseconds above 0")
		}
	case GCUnion, GCIntersection:
		if len(p.Rules) < 2 {
			return bad("union or intersection of fewer than two rules")
		}
	default:
		return bad("unknown kind of rule")
	}
	return nil
}

// maxVersionsRule is the largest N of versions=N: 32 bits, as in Cloud Bigtable.
const maxVersionsRule = 1<<31 - 1
