package table

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// latin1 maps each byte to the character with the same number.
func latin1(b string) string {
	r := make([]rune, len(b))
	for i := range len(b) {
		r[i] = rune(b[i])
	}
	return string(r)
}

// oracle compiles pattern with the standard library, over text in which each character represents
// one byte (Latin-1 in RE2 terms). It does not support \C.
func oracle(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			switch {
			case quoted && pattern[i+1] == 'E':
				quoted = false
			case quoted:
				b.WriteByte('\\')
				continue
			case pattern[i+1] == 'Q':
				quoted = true
			case pattern[i+1] == 'C':
				b.WriteString("(?s:.)")
				i++
				continue
			}
			b.WriteString(pattern[i : i+2])
			i++
			continue
		}
		b.WriteByte(pattern[i])
	}
	text := b.String()
	if _, err := regexp.Compile(latin1(text)); err != nil {
		return nil, err
	}
	if quoted {
		text += `\E`
	}
	return regexp.Compile(`\A(?:` + latin1(text) + `)\z`)
}

var regexTokens = []string{
	"a", "b", "c", "ab", "\n", "\xff", "\xc3\xa9", ".", ".*", ".+", `\C`, `\C*`, `\C+`, "*", "+", "?", "|", "(", ")", "(?:",
	"[ab]", "[^a]", "[\xc3-\xff]", "^", "$", `\A`, `\z`, `\b`, `\Q`, `\E`, `\Q.\E`, "(?i)", "(?s)", "(?m)", "{2}", "{0,2}",
	`\x41`, `\xff`, `\x{e9}`, `\pL`, `\d`, `\.`, `(a|b)`, "[^\\n]", "\x00", "??", "(?i:A)",
}

// TestRegexAgainstStandardLibrary compares random patterns and strings with the standard library,
// including fast paths and ranges.
func TestRegexAgainstStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 7).Draw(t, "tokens") {
			b.WriteString(sample(t, "token", regexTokens))
		}
		pattern := b.String()
		m, _, err := compileRegex(pattern, 1<<20)
		want, wantErr := oracle(pattern)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("pattern %q: error %v, standard library %v", pattern, err, wantErr)
		}
		if err != nil {
			return
		}
		for range 8 {
			var b strings.Builder
			for range rapid.IntRange(0, 5).Draw(t, "length") {
				b.WriteString(sample(t, "piece", []string{"a", "b", "c", "A", "\n", "\xff", "\xc3", "\xa9", ".", "\x00"}))
			}
			in := b.String()
			got := m.match([]byte(in))
			if got != want.MatchString(latin1(in)) || got != m.matchString(in) {
				t.Fatalf("pattern %q (op %d) on %q: %v, as string %v", pattern, m.op, in, got, m.matchString(in))
			}
			if got && !m.within.Contains([]byte(in)) {
				t.Fatalf("pattern %q matches %q outside of %+q", pattern, in, m.within)
			}
			if m.exact && !got && m.within.Contains([]byte(in)) {
				t.Fatalf("pattern %q does not match %q inside of %+q", pattern, in, m.within)
			}
		}
	})
}

// TestRegexFastPaths pins which patterns are matched without the regexp engine.
func TestRegexFastPaths(t *testing.T) {
	for pattern, want := range map[string]matchOp{
		"":                  matchLiteral,
		"contents":          matchLiteral,
		`com\.cnn\.www`:     matchLiteral,
		"(contents)":        matchLiteral,
		"^a$":               matchLiteral,
		`\Qa.b`:             matchLiteral,
		"caf\xc3\xa9":       matchLiteral,
		"[a]":               matchLiteral,
		".*":                matchAny,
		`\C*`:               matchAny,
		".+":                matchAny,
		"(?s).*":            matchAny,
		"anchor.*":          matchPrefix,
		`com\.cnn\.\C+`:     matchPrefix,
		`\C*\.html`:         matchSuffix,
		".*cnn.*":           matchContains,
		"a|b|contents":      matchOneOf,
		"anchor[0-9]":       matchOneOf,
		"(a|b)c?":           matchOneOf,
		"^(a|b)$":           matchOneOf,
		"(?i)contents":      matchRegexp,
		"[^a]":              matchRegexp,
		"a.*b":              matchRegexp,
		".+cnn":             matchRegexp,
		`.*cnn\C*`:          matchRegexp,
		".*a\nb.*":          matchRegexp,
		"[a-z][a-z]":        matchRegexp,
		`\x{100}`:           matchRegexp,
		"(?m)^a$":           matchRegexp,
		"[a-z]{2}[0-9]{2}x": matchRegexp,
	} {
		m, _, err := compileRegex(pattern, 1<<20)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
		} else if m.op != want {
			t.Errorf("%q is matched by op %d, want %d", pattern, m.op, want)
		}
	}
}

// TestRegexCost: no pattern within the length limit allocates much memory; expensive patterns are
// rejected early.
func TestRegexCost(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat(`\pL{900}`, 500),
		strings.Repeat("(", 2000) + strings.Repeat(")", 2000),
		strings.Repeat("(?:", 1300) + "a",
		strings.Repeat("(a{30}){30}", 300),
		strings.Repeat("(x?){1000}", 400),
		strings.Repeat("a|", 2000),
		strings.Repeat(`[^\x00-\x{10FFFF}]`, 200),
		strings.Repeat("(?i)", 1000) + "a",
		strings.Repeat("a??", 1300),
		strings.Repeat("((a*)*)*", 400),
		strings.Repeat("x{0,1000}", 409),
		strings.Repeat("(?:x{0,30}){30}", 273),
		strings.Repeat(`\pL|`, 1023),
		"(?i)[" + strings.Repeat(`\PL`, 1360) + "]",
	} {
		var err error
		bytes := allocated(func() { _, _, err = compileRegex(pattern, defaultLimits.RegexCost) })
		t.Logf("%.20q… takes %d KiB (error %v)", pattern, bytes>>10, err)
		if bytes > 4<<20 {
			t.Errorf("%.40q… takes %d bytes (error %v)", pattern, bytes, err)
		}
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
