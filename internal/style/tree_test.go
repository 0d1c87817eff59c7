package style

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// sourceFile is one Go file of the tree.
type sourceFile struct {
	path string // from the root
	fset *token.FileSet
	ast  *ast.File
}

func (f *sourceFile) dir() string        { return filepath.Dir(f.path) }
func (f *sourceFile) test() bool         { return strings.HasSuffix(f.path, "_test.go") }
func (f *sourceFile) at(p token.Pos) int { return f.fset.Position(p).Line }

// listFiles returns the paths of the files with that extension, from the root: those that git knows, or would add.
func listFiles(t *testing.T, ext string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*"+ext)
	cmd.Dir = root
	out, err := cmd.Output()
	var paths []string
	if err == nil {
		paths = strings.Fields(string(out))
	} else { // no git, or no repository: a source archive
		err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ext) {
				rel, _ := filepath.Rel(root, path)
				paths = append(paths, rel)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := paths[:0]
	for _, p := range paths {
		if _, err := os.Stat(filepath.Join(root, p)); err == nil && !strings.Contains(p, "testdata/") {
			kept = append(kept, p)
		}
	}
	if len(kept) < 10 {
		t.Fatalf("only %d files end in %s", len(kept), ext)
	}
	return kept
}

// parseTree parses all Go files of the tree.
func parseTree(t *testing.T) []*sourceFile {
	t.Helper()
	var all []*sourceFile
	fset := token.NewFileSet()
	for _, path := range listFiles(t, ".go") {
		f, err := parser.ParseFile(fset, filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &sourceFile{path: filepath.ToSlash(path), fset: fset, ast: f})
	}
	return all
}
