package main

import (
	"strings"
	"testing"
)

// profile has two seeds of this package's own source: one executed the second block.
const profile = `mode: set
github.com/steledb/stele/test/simulation/reach/a.go:3.10,5.2 2 0
github.com/steledb/stele/test/simulation/reach/a.go:6.10,7.2 1 0
github.com/steledb/stele/test/simulation/reach/a.go:6.10,7.2 1 1
github.com/steledb/stele/cmd/stele/main.go:3.1,4.2 9 1
`

// TestTable: a block counts once, and is reached if any seed executed it.
func TestTable(t *testing.T) {
	all, err := parse(strings.NewReader(profile), func(pkg string) bool { return pkg == "test/simulation/reach" })
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	table(&b, all)
	if want := "| `test/simulation/reach` | 3 | 33 % |\n| all | 3 | 33.3 % |\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("table %q, want %q at its end", b.String(), want)
	}
}

// TestFunctions: methods have the lines from their first to their last.
func TestFunctions(t *testing.T) {
	all, err := functionsOf("a.go", []byte("package a\n\nfunc f() {\n}\n\nfunc (x T) g() {\n\treturn\n}\n"))
	if err != nil || len(all) != 2 || all[1] != (function{"g", 6, 8}) {
		t.Errorf("functions %v, %v", all, err)
	}
}

// TestInProduct: a package counts by whole names of directories.
func TestInProduct(t *testing.T) {
	if !inProduct("tablet/sstable") || inProduct("tablets") || inProduct("cmd/stele") {
		t.Error("wrong packages count")
	}
}
