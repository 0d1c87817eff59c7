package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steledb/stele/internal/netlab"
	_ "github.com/steledb/stele/node" // the nodes are built from it: rerun cached tests when it changes
)

const (
	// roleEnv makes the test binary run as a client or user instead of a test.
	roleEnv    = "FAULTS_ROLE"
	programEnv = "FAULTS_PROGRAM" // path of the program, once built
	programDir = "../../cmd/stele"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "client":
		os.Exit(runClient())
	case "user":
		os.Exit(runUser())
	}
	os.Exit(run(m))
}

// run builds the program, while the machine's network can still download missing modules, and runs
// the tests.
func run(m *testing.M) int {
	if netlab.Inside() {
		return netlab.Main(m)
	}
	dir, err := os.MkdirTemp("", "stele-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "stele")
	clock, err := overlay(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	args := []string{"build", "-buildvcs=false", "-overlay", clock, "-o", path}
	if os.Getenv("STELE_RACE") != "" { // nodes with the race detector are slow
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, programDir)...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n", err)
		return 1
	}
	if err := os.Setenv(programEnv, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return netlab.Main(m)
}

// program returns the path of the program under test.
func program() string { return os.Getenv(programEnv) }

// TestProgramSources opens the program's sources, so that "go test" does not use a cached result of
// an older program.
func TestProgramSources(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(programDir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("program sources not found: %v", err)
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			t.Fatal(err)
		}
	}
}

// soakRuns returns the number of runs of a random test: one, or STELE_SOAK.
func soakRuns() int {
	if n, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && n > 0 {
		return n
	}
	return 1
}

// faultsRequested returns the number of faults in one run from STELE_FAULTS, or 0 if it is not set.
func faultsRequested(t *testing.T) int {
	t.Helper()
	text := os.Getenv("STELE_FAULTS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("STELE_FAULTS: %q is not a positive number", text)
	}
	return n
}

// soakShare returns the deadline of a random test. It divides the remaining time by tests, so that
// later tests, in the order of their files, have time too. STELE_SOAK_END is the deadline of the
// package in seconds since 1970.
func soakShare(tests int64) time.Time {
	left := 365 * 24 * time.Hour
	if end, err := strconv.ParseInt(os.Getenv("STELE_SOAK_END"), 10, 64); err == nil {
		left = time.Until(time.Unix(end, 0))
	}
	return time.Now().Add(left / time.Duration(tests))
}

// now reads the monotonic clock, which all processes of the machine share, in nanoseconds.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("BUG: no monotonic clock: " + err.Error())
	}
	return ts.Nano()
}

// await calls f until it returns nil, for at most the given time, and returns its last error.
func await(atMost time.Duration, f func() error) error {
	for end := time.Now().Add(atMost); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
