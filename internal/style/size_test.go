package style

import (
	"go/ast"
	"slices"
	"testing"
)

// The limits of packages, types and functions.
const (
	packageFiles    = 40 // beside tests
	typeMethods     = 40
	functionLines90 = 30 // of nine functions in ten
)

// Exceptions to the limits, with what they have now. They may only shrink.
var (
	largePackages = map[string]int{}
	largeTypes    = map[string]int{}
	longFunctions = map[string]int{
		"node": 31,
	}
)

// TestSizes holds packages, types and functions to their limits.
func TestSizes(t *testing.T) {
	files, methods, lines := map[string]int{}, map[string]int{}, map[string][]int{}
	for _, f := range parseTree(t) {
		if f.test() {
			continue
		}
		files[f.dir()]++
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn.Body != nil {
				lines[f.dir()] = append(lines[f.dir()], f.at(fn.End())-f.at(fn.Pos())+1)
			}
			if fn.Recv != nil {
				methods[f.dir()+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	hold(t, "files", files, packageFiles, largePackages)
	hold(t, "methods", methods, typeMethods, largeTypes)
	for dir, all := range lines {
		slices.Sort(all)
		if p90 := all[len(all)*9/10]; len(all) >= 10 && p90 > max(functionLines90, longFunctions[dir]) {
			t.Errorf("%s: one function in ten has %d lines or more, want %d at most", dir, p90, max(functionLines90, longFunctions[dir]))
		}
	}
}

// hold reports what has more than it may.
func hold(t *testing.T, what string, have map[string]int, limit int, exceptions map[string]int) {
	t.Helper()
	for name, n := range have {
		may := max(limit, exceptions[name])
		if n > may {
			t.Errorf("%s has %d %s, want %d at most", name, n, what, may)
		}
	}
	for name, may := range exceptions {
		if have[name] < may {
			t.Logf("%s has %d %s: lower its exception, %d", name, have[name], what, may)
		}
	}
}

func receiver(x ast.Expr) string {
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return ""
		}
	}
}
