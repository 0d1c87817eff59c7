package planted

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declared returns the constants of bugs.go, by name in the code.
func declared(t *testing.T) map[string]Bug {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "bugs.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	bugs := map[string]Bug{}
	for _, d := range f.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		for _, s := range d.Specs {
			s := s.(*ast.ValueSpec)
			value, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			bugs[s.Names[0].Name] = Bug(value)
			if doc := s.Doc.Text(); !strings.HasPrefix(doc, s.Names[0].Name+": ") || !strings.Contains(doc, "Breaks:") {
				t.Errorf("%s has no comment that says what it is and what it breaks", s.Names[0].Name)
			}
		}
	}
	return bugs
}

// PB1: All has each bug once, and each is used somewhere.
func TestAllBugs(t *testing.T) {
	bugs, byName := declared(t), map[Bug]bool{}
	for name, b := range bugs {
		if !slices.Contains(All(), b) {
			t.Errorf("All does not have %s", name)
		}
		if byName[b] {
			t.Errorf("two bugs have the name %q", b)
		}
		byName[b] = true
	}
	if len(All()) != len(bugs) {
		t.Errorf("All has %d bugs, and %d are declared", len(All()), len(bugs))
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".g") || d.Name() == "test" || d.Name() == "planted"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		code, err := os.ReadFile(path)
		for name := range bugs {
			if strings.Contains(string(code), "."+name+")") || strings.Contains(string(code), "bugs."+name+",") {
				delete(bugs, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range bugs {
		t.Errorf("%s is planted nowhere", name)
	}
}
