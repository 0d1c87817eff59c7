//go:build simulation

package machine_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/steledb/stele/test/simulation/machine/patch"
)

// TestMachine checks SM1 to SM6, by a program that runs on the machine.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "selftest")
	if err := patch.Build(t.Context(), dir, "github.com/steledb/stele/test/simulation/machine/selftest", program, nil); err != nil {
		t.Fatal(err)
	}
	run := func(seed string) string {
		out, err := exec.CommandContext(t.Context(), program, seed).CombinedOutput()
		if err != nil {
			t.Fatalf("seed %s: %v\n%s", seed, err, out)
		}
		return string(out)
	}
	first := run("1")
	for range 5 {
		if again := run("1"); again != first {
			t.Fatalf("two runs of a seed differ:\n%s\n%s", first, again)
		}
	}
	if run("2") == first {
		t.Fatal("two seeds are equal")
	}
}
