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
	hold(t, "files", files, packageFiles)
	hold(t, "methods", methods, typeMethods)
	for dir, all := range lines {
		slices.Sort(all)
		if p90 := all[len(all)*9/10]; len(all) >= 10 && p90 > functionLines90 {
			t.Errorf("%s: one function in ten has %d lines or more, want %d at most", dir, p90, functionLines90)
		}
	}
}

// hold reports what has more than the limit.
func hold(t *testing.T, what string, have map[string]int, limit int) {
	t.Helper()
	for name, n := range have {
		if n > limit {
			t.Errorf("%s has %d %s, want %d at most", name, n, what, limit)
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
