package bigtable

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	quickstart "github.com/steledb/stele/cmd/stele/bigtable"
)

// TestQuickstart: the program in Go that the command line prints works as printed. make test-bigtable runs those in other languages.
func TestQuickstart(t *testing.T) {
	text, err := quickstart.Quickstart("go")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	n := startNode(t)
	for range 2 { // the table exists the second time
		run := exec.Command("go", "run", file) // with the client of this module
		run.Env = append(os.Environ(), "BIGTABLE_EMULATOR_HOST="+n.BigtableAddr())
		if out, err := run.CombinedOutput(); err != nil || string(out) != "row0: hello\nrow1: bonjour\nrow2: hallo\n" {
			t.Errorf("%v:\n%s", err, out)
		}
	}
	if _, err := quickstart.Quickstart("cobol"); err == nil {
		t.Error("there is a program in COBOL")
	}
}
