package style

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// logPage has the table of all keys of log lines.
const logPage = "docs/logging.md"

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	keyLine   = regexp.MustCompile("(?m)^\\| `([^`]*)` \\|")
)

// logMethods are the methods that write or prepare log lines, with the number of arguments before the keys.
var logMethods = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "WarnError": 3, "With": 0}

// TestLogKeys holds the keys of log lines to the table of docs/logging.md.
func TestLogKeys(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, logPage))
	if err != nil {
		t.Fatal(err)
	}
	documented, used := map[string]bool{}, map[string]bool{}
	for _, m := range keyLine.FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
	}
	for _, f := range parseTree(t) {
		if f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if x, ok := n.(*ast.BasicLit); ok {
				if s, ok := literal(x); ok {
					used[s] = true // keys may be passed on by a function
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range logKeys(call) {
				switch {
				case !snakeCase.MatchString(key):
					t.Errorf("%s:%d: the log key %q is not in snake_case", f.path, f.at(call.Pos()), key)
				case !documented[key]:
					t.Errorf("%s:%d: the log key %q is not in %s", f.path, f.at(call.Pos()), key, logPage)
				}
			}
			return true
		})
	}
	for key := range documented {
		if !used[key] {
			t.Errorf("%s has the key %q, which no log line has", logPage, key)
		}
	}
}

// logKeys returns the keys of a call of a logger.
func logKeys(call *ast.CallExpr) (keys []string) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	skip, ok := logMethods[sel.Sel.Name]
	if !ok || len(call.Args) < skip+2 || (len(call.Args)-skip)%2 != 0 {
		return nil
	}
	if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "t" || x.Name == "b" || x.Name == "http") {
		return nil
	}
	for i := skip; i < len(call.Args); i += 2 {
		s, ok := literal(call.Args[i])
		if !ok {
			return nil
		}
		keys = append(keys, s)
	}
	return keys
}

func literal(x ast.Expr) (string, bool) {
	l, ok := x.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil && !strings.Contains(s, "\n")
}
