package table

import (
	"errors"
	"strings"
	"testing"
)

// TestRegexBytesAbove127: each byte above 127 in a pattern matches itself, also between \Q and \E
// and in a class.
func TestRegexBytesAbove127(t *testing.T) {
	for c := 0x80; c < 0x100; c++ {
		in := string([]byte{byte(c)})
		for pattern, want := range map[string]string{
			in:                    in,
			`\Q` + in:             in,
			`\Qa.` + in + `b\E.?`: "a." + in + "b",
			"[" + in + "]":        in,
			in + "[^a]*z+":        in + "zz",
			`(?s)\Q` + in + `\E.`: in + "x",
		} {
			m, _, err := compileRegex(pattern, 1<<20)
			if err != nil {
				t.Fatalf("pattern %+q: %v", pattern, err)
			}
			for d := 0x80; d < 0x100; d++ {
				other := strings.Replace(want, in, string([]byte{byte(d)}), 1)
				if got := m.match([]byte(other)); got != (d == c) {
					t.Errorf("pattern %+q on %+q: %v", pattern, other, got)
				}
			}
		}
	}
}

// TestRegexCostExactly: the cost of a pattern counts instructions, bounds of classes, and Unicode
// classes. A pattern exactly at the limit compiles.
func TestRegexCostExactly(t *testing.T) {
	for pattern, want := range map[string]int64{
		"":                         nodeCost,
		"a":                        nodeCost,
		"abc":                      3 * nodeCost,
		"[ab]":                     nodeCost + 2*runeCost,
		"[a-cx-z]":                 nodeCost + 4*runeCost,
		"a*":                       2 * nodeCost,
		"(?:abc)+":                 4 * nodeCost,
		"a{2}":                     3 * nodeCost,
		"a{2,5}":                   (1 + 2*3 + 5) * nodeCost,
		"a{2,}":                    3 * nodeCost,
		"(?:[ab]{3}){4}":           (1+4*(1+3))*nodeCost + 12*2*runeCost,
		"(?:(?:(?:a{9}){9}){9})":   (1 + 9*(1+9*(1+9))) * nodeCost,
		strings.Repeat("abc", 100): 300 * nodeCost,
	} {
		_, cost, err := compileRegex(pattern, want)
		if err != nil || cost != want {
			t.Errorf("pattern %q costs %d, %v: want %d", pattern, cost, err, want)
		}
		var over *LimitError
		if _, cost, err = compileRegex(pattern, want-1); !errors.As(err, &over) || over.Limit != want-1 || over.Got != want || cost != want {
			t.Errorf("pattern %q costs %d, over a limit of %d: %v", pattern, cost, want-1, err)
		}
	}
	var over *LimitError
	for pattern, want := range map[string]int64{`\pL`: classCost, `\pL\PN`: 2 * classCost, `\\pL`: 3 * nodeCost, `\QpL\pL`: 5 * nodeCost} {
		if _, _, err := compileRegex(pattern, want-1); !errors.As(err, &over) || over.Got != want {
			t.Errorf("pattern %q over a limit of %d: %v", pattern, want-1, err)
		}
	}
}

// TestRegexLiteralSets: a pattern of up to 64 strings becomes a set; a larger one uses the regexp
// engine.
func TestRegexLiteralSets(t *testing.T) {
	for pattern, want := range map[string]int{
		"[ab][ab][ab][ab][ab][ab]":     64,
		"[ab][ab][ab][ab][ab][ab][ab]": 0,
		"[ab][ab][ab][ab][ab][ab]x?":   0,
		"[ab][ab][ab][ab][ab]x?":       64,
		"(?:[a-zA-Z0-9]|--)":           63,
		"(?:[a-zA-Z0-9]|--|\\+\\+)":    64,
		"(?:[a-zA-Z0-9]|--|\\+\\+|//)": 0,
		"(?:[a-zA-Z0-9]|--|\\+\\+)?":   0,
		"(?:[a-zA-Z0-9]|--)?":          64,
		"[\\x00-\\x3f]":                64,
		"[\\x00-\\x40]":                0,
		"a|b|c":                        3,
		"(?i)ab":                       0,
	} {
		m, _, err := compileRegex(pattern, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if (m.op == matchOneOf) != (want > 0) || len(m.set) != want {
			t.Errorf("pattern %q: op %d with %d strings, want %d", pattern, m.op, len(m.set), want)
		}
	}
}

// TestRegexEdges covers the ends of patterns and quotes, and wildcards at the edges of the input.
func TestRegexEdges(t *testing.T) {
	for _, bad := range []string{`\`, `a\`, `a(`, "\\\x80", "\\\xff", "[\\\xc3]"} {
		if _, _, err := compileRegex(bad, 1<<20); err == nil {
			t.Errorf("pattern %+q compiles", bad)
		}
	}
	for pattern, cases := range map[string]map[string]bool{
		`\QaEb`:      {"aEb": true, "ab": false},
		`\QaE\EE+`:   {"aEE": true, "aE": false},
		`\Qa\`:       {`a\`: true, "a": false},
		`\Qa\b\Ec?`:  {`a\bc`: true, `a\b`: true, "a": false},
		`.+`:         {"": false, "a": true, "\n": false, "a\n": false},
		`.*`:         {"": true, "a": true, "\n": false},
		`\C+`:        {"": false, "\n": true},
		`\C*`:        {"": true, "\n": true},
		`a.+`:        {"a": false, "ab": true, "a\n": false, "b": false},
		`a\C*`:       {"a": true, "a\n": true, "": false},
		`.*a`:        {"a": true, "ba": true, "\na": false, "": false, "ab": false},
		`.*a.*`:      {"a": true, "bab": true, "\na": false, "a\n": false, "b": false},
		`\p{Greek}?`: {"": true, "a": false},
	} {
		m, _, err := compileRegex(pattern, classCost)
		if err != nil {
			t.Errorf("pattern %s: %v", pattern, err)
			continue
		}
		for in, want := range cases {
			if m.match([]byte(in)) != want || m.matchString(in) != want {
				t.Errorf("pattern %s on %q: %v, as string %v", pattern, in, m.match([]byte(in)), m.matchString(in))
			}
		}
	}
}

// TestCheapToCompile: filters without patterns, and with short patterns that do not expand, are
// cheap.
func TestCheapToCompile(t *testing.T) {
	for f, want := range map[Filter]bool{
		nil: true, CellsPerRowLimit(1): true, TimestampRange{Start: 1, End: Before(2)}: true,
		RowRegex("user.*"): true, ValueRegex(`(?:www|m)\.example\.com`): true, QualifierRegex(strings.Repeat("a", 256)): true,
		QualifierRegex(strings.Repeat("a", 257)): false, FamilyRegex("a{2}"): false, RowRegex("[a-z]"): false, ValueRegex(`\pL`): false,
		ValueRegex(`x\d`): false, ValueRegex(`\C*`): true, ValueRegex(`\Qa.b\E.*`): true,
	} {
		if got := CheapToCompile(f); got != want {
			t.Errorf("%v: %v, want %v", f, got, want)
		}
		if f != nil && (CheapToCompile(Chain{PassAll{}, f}) != want || CheapToCompile(Interleave{PassAll{}, f}) != want ||
			CheapToCompile(Condition{Predicate: f}) != want || CheapToCompile(Condition{Predicate: PassAll{}, True: f}) != want ||
			CheapToCompile(Condition{Predicate: PassAll{}, False: f}) != want) {
			t.Errorf("%v nested in others", f)
		}
	}
	half := RowRegex(strings.Repeat("a", 129))
	if CheapToCompile(Chain{half, half}) {
		t.Error("two patterns of 129 bytes are cheap")
	}
}
