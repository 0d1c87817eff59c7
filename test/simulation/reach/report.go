package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// share counts statements.
type share struct{ reached, all int }

func (s share) percent() float64 { return 100 * float64(s.reached) / float64(max(s.all, 1)) }

func (s *share) add(b *block) {
	s.all += b.statements
	if b.reached {
		s.reached += b.statements
	}
}

// table prints, for each package, how many of its statements were reached.
func table(w io.Writer, all []block) {
	packages, total := map[string]*share{}, &share{}
	for i := range all {
		b := &all[i]
		if packages[b.pkg()] == nil {
			packages[b.pkg()] = &share{}
		}
		packages[b.pkg()].add(b)
		total.add(b)
	}
	fmt.Fprint(w, "| package | statements | reached |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		s := packages[name]
		fmt.Fprintf(w, "| `%s` | %d | %.0f %% |\n", name, s.all, s.percent())
	}
	fmt.Fprintf(w, "| all | %d | %.1f %% |\n", total.all, total.percent())
}

// function is a function or method of a file.
type function struct {
	name       string
	start, end int // lines
}

// list prints the functions that no seed entered, and of the others the blocks that none executed.
func list(w io.Writer, all []block) error {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(b block) bool { return b.file != all[0].file })
		if n < 0 {
			n = len(all)
		}
		if err := listFile(w, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// listFile is list for the blocks of one file.
func listFile(w io.Writer, blocks []block) error {
	source, err := os.ReadFile(blocks[0].file)
	if err != nil {
		return err
	}
	functions, err := functionsOf(blocks[0].file, source)
	if err != nil {
		return err
	}
	lines := strings.Split(string(source), "\n")
	for _, f := range functions {
		var s share
		var missed []block
		for _, b := range blocks {
			if b.start < f.start || b.end > f.end {
				continue
			}
			s.add(&b)
			if !b.reached {
				missed = append(missed, b)
			}
		}
		switch {
		case len(missed) == 0:
		case s.reached == 0:
			fmt.Fprintf(w, "%s:%d: %s: never called, %d statements\n", blocks[0].file, f.start, f.name, s.all)
		default:
			for _, b := range missed {
				fmt.Fprintf(w, "%s:%d: %s: %s\n", b.file, b.start, f.name, strings.TrimSpace(lines[b.start-1]))
			}
		}
	}
	return nil
}

// functionsOf returns the functions of a file.
func functionsOf(name string, source []byte) (all []function, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			all = append(all, function{fn.Name.Name, files.Position(fn.Pos()).Line, files.Position(fn.End()).Line})
		}
	}
	return all, nil
}
