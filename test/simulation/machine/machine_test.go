package machine_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/steledb/stele/test/simulation/machine/patch"
)

// selftestShift has the number of objects that the program keeps before it does anything else.
const selftestShift = "SHIFT"

// TestMachine checks SM1 to SM8, by a program that runs on the machine.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "selftest")
	if err := patch.Build(t.Context(), dir, "github.com/steledb/stele/test/simulation/machine/selftest", program, nil); err != nil {
		t.Fatal(err)
	}
	run := func(seed string, shift int) string {
		cmd := exec.CommandContext(t.Context(), program, seed)
		cmd.Env = []string{selftestShift + "=" + strconv.Itoa(shift)}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("seed %s: %v\n%s", seed, err, out)
		}
		return string(out)
	}
	first := run("1", 0)
	for i := range 5 {
		if again := run("1", i*100); again != first {
			t.Fatalf("two runs of a seed differ:\n%s\n%s", first, again)
		}
	}
	if run("2", 0) == first {
		t.Fatal("two seeds are equal")
	}
}
