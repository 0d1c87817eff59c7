package style

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// declaredInvariant is a line of a package comment that states an invariant.
	declaredInvariant = regexp.MustCompile(`(?m)^\s*([A-Z]{1,2})([0-9]+)\. `)
	// systemInvariant is a row of ARCHITECTURE.md that states an invariant of the whole system.
	systemInvariant = regexp.MustCompile(`(?m)^\| (I)([0-9]+) \|`)
	// citedInvariants is the end of a comment's sentence that cites invariants: "(T3)", "(I1, T6)".
	citedInvariants = regexp.MustCompile(`\(([A-Z]{1,2}[0-9]+(?:(?:, | and | to )[A-Z]{1,2}[0-9]+)*)\)`)
	oneInvariant    = regexp.MustCompile(`([A-Z]{1,2})([0-9]+)`)
)

// TestInvariantNumbers checks that each package comment has its own prefix of invariants, no number is declared twice, and each cited
// invariant exists. So "(T4)" means the same in all files.
func TestInvariantNumbers(t *testing.T) {
	prefixes, declared := map[string]string{}, map[string]string{}
	declare := func(path, text string, pattern *regexp.Regexp) {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			prefix, number := m[1], m[1]+m[2]
			if other := prefixes[prefix]; other != "" && other != path {
				t.Errorf("%s declares %s, but the prefix %s is that of %s", path, number, prefix, other)
			}
			if declared[number] != "" {
				t.Errorf("%s declares %s twice", path, number)
			}
			prefixes[prefix], declared[number] = path, path
		}
	}
	architecture, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	declare("ARCHITECTURE.md", string(architecture), systemInvariant)
	files := parseTree(t)
	for _, f := range files {
		if f.ast.Doc != nil && filepath.Base(f.path) == "doc.go" {
			declare(f.path, f.ast.Doc.Text(), declaredInvariant)
		}
	}
	if len(declared) < 100 {
		t.Fatalf("only %d invariants found", len(declared))
	}
	check := func(path, text string) {
		for _, m := range citedInvariants.FindAllStringSubmatch(text, -1) {
			for _, cited := range oneInvariant.FindAllStringSubmatch(m[1], -1) {
				if prefixes[cited[1]] != "" && declared[cited[0]] == "" {
					t.Errorf("%s cites %s, which no package declares", path, cited[0])
				}
			}
		}
	}
	for _, f := range files {
		for _, c := range f.ast.Comments {
			check(f.path, strings.ReplaceAll(c.Text(), "\n", " "))
		}
	}
	for _, path := range listFiles(t, ".md") {
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		check(path, string(b))
	}
}
