package table

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const day = 24 * time.Hour

func genPolicy(t *rapid.T, depth int) GCPolicy {
	switch kind := pick(t, "kind", 4); {
	case kind == 0 || depth <= 1 && kind == 2:
		return MaxVersions(1 + pick(t, "versions", 5))
	case kind == 1 || depth <= 1:
		unit := sample(t, "unit", []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour, day})
		return MaxAge(time.Duration(1+pick(t, "age", 5)) * unit)
	default:
		rules := make([]GCPolicy, 2+pick(t, "rules", 2))
		for i := range rules {
			rules[i] = genPolicy(t, depth-1)
		}
		if kind == 2 {
			return Union(rules...)
		}
		return Intersection(rules...)
	}
}

func TestGCPolicyText(t *testing.T) {
	week := 7 * day
	tests := []struct {
		text  string
		want  GCPolicy
		canon string // "" is text
	}{
		{"none", GCPolicy{}, ""},
		{"", GCPolicy{}, "none"},
		{"  none ", GCPolicy{}, "none"},
		{"versions=3", MaxVersions(3), ""},
		{"age=30d", MaxAge(30 * day), ""},
		{"age=36h", MaxAge(36 * time.Hour), ""},
		{"age=48h", MaxAge(2 * day), "age=2d"},
		{"age=90m", MaxAge(90 * time.Minute), ""},
		{"age=1500us", MaxAge(1500 * time.Microsecond), ""},
		{"age=20ms", MaxAge(20 * time.Millisecond), ""},
		{"versions=3 or age=30d", Union(MaxVersions(3), MaxAge(30*day)), ""},
		{"(versions=3)", MaxVersions(3), "versions=3"},
		{"versions=1 and (age=7d or versions=5)", Intersection(MaxVersions(1), Union(MaxAge(week), MaxVersions(5))), ""},
		{"versions=1 or age=7d and versions=5", Union(MaxVersions(1), Intersection(MaxAge(week), MaxVersions(5))),
			"versions=1 or (age=7d and versions=5)"},
		{"versions=1 or versions=2 or versions=3", Union(MaxVersions(1), MaxVersions(2), MaxVersions(3)), ""},
		{"(versions=1 or versions=2) or versions=3", Union(Union(MaxVersions(1), MaxVersions(2)), MaxVersions(3)), ""},
		{"\tversions=1or(age=7d)", Union(MaxVersions(1), MaxAge(week)), "versions=1 or age=7d"},
	}
	for _, tc := range tests {
		p, err := ParseGCPolicy(tc.text)
		if err != nil || !p.Equal(&tc.want) {
			t.Errorf("%q: got %+v, %v", tc.text, p, err)
		}
		if tc.canon == "" {
			tc.canon = tc.text
		}
		if s := tc.want.String(); s != tc.canon {
			t.Errorf("%+v: text %q, want %q", tc.want, s, tc.canon)
		}
	}
}

func TestGCPolicyTextErrors(t *testing.T) {
	for text, want := range map[string]string{
		"versions":                "at byte 0: expected",
		"versions=":               "at byte 9: expected a number",
		"versions=0":              "expected a number of versions from 1",
		"versions=-1":             "expected a number",
		"versions=2147483648":     "from 1 to 2147483647",
		"versions=3 age=1d":       `at byte 11: expected "and", "or" or the end`,
		"age=1":                   "at byte 5: expected a unit",
		"age=1y":                  "expected a unit",
		"age=0d":                  "age is zero",
		"age=106752d":             "over 292 years",
		"age=99999999999999999d":  "over 292 years",
		"age=999999999999999999d": "over 292 years",
		"age=1dd":                 "expected a unit",
		"none or versions=1":      `"none" must stand alone`,
		"versions=1 or none":      `"none" must stand alone`,
		"(versions=1":             `expected "and", "or" or ")"`,
		"versions=1 or":           `at byte 13: expected "versions="`,
		"versions=1 orage=1d":     `at byte 11: expected "and", "or" or the end`,
	} {
		_, err := ParseGCPolicy(text)
		var pe *GCPolicyError
		if !errors.As(err, &pe) || !errors.Is(err, ErrBadGCPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %q, want a *GCPolicyError with %q", text, err, want)
		}
	}
	for _, text := range []string{
		strings.Repeat("(", 1000) + "versions=1" + strings.Repeat(")", 1000),
		strings.Repeat("versions=1 or ", 100) + "versions=1",
		strings.Repeat("(versions=1 or ", 20) + "versions=1" + strings.Repeat(")", 20),
		strings.Repeat("(", 1<<20),
	} {
		if _, err := ParseGCPolicy(text); !errors.Is(err, ErrLimit) {
			t.Errorf("%.40q…: error %v, want ErrLimit", text, err)
		}
	}
}

func TestGCPolicyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPolicy(t, 4)
		if err := p.Validate(nil); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		q, err := ParseGCPolicy(p.String())
		if err != nil || !q.Equal(&p) {
			t.Fatalf("%q: got %q, %v", p.String(), q.String(), err)
		}
	})
}

// refGarbage is the reference for a version outranked by rank newer versions, with no deletes in
// its column.
func refGarbage(p *GCPolicy, rank int, age time.Duration) bool {
	some, all := false, true
	for i := range p.Rules {
		g := refGarbage(&p.Rules[i], rank, age)
		some, all = some || g, all && g
	}
	switch p.Kind {
	case GCMaxVersions:
		return rank >= p.Versions
	case GCMaxAge:
		return age > p.Age
	case GCUnion:
		return some
	case GCIntersection:
		return all
	}
	return false
}

func TestGCPolicyGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPolicy(t, 4)
		leaves := p.VersionLeaves()
		if !slices.IsSorted(leaves) || len(slices.Compact(slices.Clone(leaves))) != len(leaves) {
			t.Fatalf("%s: leaves %v", p.String(), leaves)
		}
		for rank := range 7 {
			for _, age := range []time.Duration{-time.Second, 0, time.Microsecond, 3 * time.Second, day, 3 * day, 100 * day} {
				out := func(n int) bool {
					if !slices.Contains(leaves, n) {
						t.Fatalf("%s queries versions=%d, leaves are %v", p.String(), n, leaves)
					}
					return rank >= n
				}
				got := p.Garbage(out, age.Microseconds())
				if got != refGarbage(&p, rank, age) {
					t.Fatalf("%s: rank %d, age %v: garbage %v", p.String(), rank, age, got)
				}
				if n := p.MaxVersions(); n != 0 && rank >= n && !got {
					t.Fatalf("%s: MaxVersions %d, but rank %d of age %v is kept", p.String(), n, rank, age)
				}
				if d := p.MaxAge(); d != 0 && age > d && !got {
					t.Fatalf("%s: MaxAge %v, but rank %d of age %v is kept", p.String(), d, rank, age)
				}
			}
		}
	})
}

func TestGCPolicyBounds(t *testing.T) {
	for text, want := range map[string]struct {
		versions int
		age      time.Duration
	}{
		"none":                                 {0, 0},
		"versions=3":                           {3, 0},
		"age=1d":                               {0, day},
		"versions=3 or age=1d":                 {3, day},
		"versions=3 or versions=2":             {2, 0},
		"versions=3 and versions=2":            {3, 0},
		"versions=3 and age=1d":                {0, 0},
		"(versions=3 and age=1d) or age=9d":    {0, 9 * day},
		"age=1d and age=2d and (age=1s)":       {0, 2 * day},
		"versions=9 or versions=1 and age=10d": {9, 0},
	} {
		p, err := ParseGCPolicy(text)
		if err != nil || p.MaxVersions() != want.versions || p.MaxAge() != want.age {
			t.Errorf("%q: %d versions, age %v, %v; want %+v", text, p.MaxVersions(), p.MaxAge(), err, want)
		}
	}
}

func TestGCPolicyValidate(t *testing.T) {
	bad := []GCPolicy{
		{Kind: 9}, {Kind: GCMaxVersions}, {Kind: GCMaxVersions, Versions: -1}, {Kind: GCMaxAge}, {Kind: GCMaxAge, Age: 1500},
		{Kind: GCMaxVersions, Versions: 1, Age: day}, {Kind: GCMaxAge, Age: day, Versions: 1}, {Versions: 1},
		{Kind: GCUnion}, {Kind: GCUnion, Rules: []GCPolicy{MaxVersions(1)}},
		{Kind: GCIntersection, Rules: []GCPolicy{MaxVersions(1), {}}},
		{Kind: GCMaxVersions, Versions: 1, Rules: []GCPolicy{MaxVersions(1)}},
	}
	for _, p := range bad {
		if err := p.Validate(nil); !errors.Is(err, ErrBadGCPolicy) {
			t.Errorf("%+v: error %v", p, err)
		}
	}
	wide := GCPolicy{Kind: GCUnion, Rules: make([]GCPolicy, 64)}
	for i := range wide.Rules {
		wide.Rules[i] = MaxVersions(1)
	}
	if err := wide.Validate(nil); !errors.Is(err, ErrLimit) {
		t.Errorf("65 rules: error %v", err)
	}
	// Union and Intersection drop redundant rules.
	for _, p := range []GCPolicy{
		Union(GCPolicy{}, MaxVersions(2)), Intersection(MaxVersions(2)), Union(MaxVersions(2)),
	} {
		if want := MaxVersions(2); !p.Equal(&want) {
			t.Errorf("got %s", p.String())
		}
	}
	for _, p := range []GCPolicy{Union(), Intersection(), Intersection(MaxVersions(1), GCPolicy{})} {
		if p.Kind != GCNone {
			t.Errorf("got %s, want none", p.String())
		}
	}
}

func TestGCPolicyAllocs(t *testing.T) {
	p, err := ParseGCPolicy("versions=1 and (age=7d or versions=5)")
	if err != nil {
		t.Fatal(err)
	}
	rank, garbage := 3, 0
	if n := testing.AllocsPerRun(100, func() {
		if p.Garbage(func(n int) bool { return rank >= n }, 5) {
			garbage++
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
