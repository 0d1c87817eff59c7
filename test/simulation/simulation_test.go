package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/planted"
)

// program is the simulation's program, which all tests share; empty with -short.
var program string

func TestMain(m *testing.M) {
	o := parse(nil) // before the flags of tests are parsed
	code, err := buildAndTest(m, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// buildAndTest builds the program, unless only short tests are wanted, and runs the tests.
func buildAndTest(m *testing.M, o options) (code int, err error) {
	for _, arg := range os.Args {
		if arg == "-test.short=true" {
			return m.Run(), nil
		}
	}
	dir, err := os.MkdirTemp("", "stele-simulation-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if program, err = build(context.Background(), o, dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// testOptions are those of tests: one seed at a time, since other tests run beside them.
func testOptions(seeds int, virtual time.Duration) options {
	o := parse(nil)
	o.jobs, o.seeds, o.virtual = 1, seeds, virtual
	return o
}

func simulate(t *testing.T, o options) {
	t.Helper()
	if program == "" {
		t.Logf("skipped: only in longer runs")
		return
	}
	if err := run(t.Context(), o, program, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// TestSameHistory runs the first 20 seeds twice, and a few with the phases that follow a long time of faults. Their histories must be equal in every
// event (SM6), and have no violation.
func TestSameHistory(t *testing.T) {
	o := testOptions(20, 2*time.Second)
	o.twice = true
	simulate(t, o)
	o.seeds, o.from, o.virtual = 3, 51, 10*time.Second
	simulate(t, o)
}

// TestSeeds runs further seeds, which must have no violation, with short times of faults; a few have long ones, and the phases that follow them.
// Soaks run others.
func TestSeeds(t *testing.T) {
	o := testOptions(50, 2*time.Second)
	o.from = 101
	simulate(t, o)
	o = testOptions(6, 30*time.Second)
	o.from = 201
	simulate(t, o)
}

// lost are the judges of which one finds a lost write: it depends on what is read next, and on the table, which may be METADATA.
var lost = []string{"rows", "scans", "final reads", "backups", "change streams", "SW2 one server", "SW3 METADATA"}

// followers are the judges of a follower.
var followers = []string{"followers", "SW18 follower"}

// TestBugsAreFound plants a bug of each layer, which a seed among the first must find, by a judge that looks for what the bug breaks. Each change
// of the program changes the histories, and so which seeds find a bug: these are bugs that a quarter of the seeds finds, or more.
func TestBugsAreFound(t *testing.T) {
	for _, test := range []struct {
		bug     planted.Bug
		virtual time.Duration
		judges  []string
	}{
		{planted.LoadWithoutRuns, shortFaults, lost}, {planted.UnloadWhileWritten, shortFaults, lost}, {planted.SplitLosesMemtable, shortFaults, lost},
		{planted.SchemaNotChecked, shortFaults, []string{"rows", "dropped tables", "views", "table names", "SW1 service"}}, {planted.DeletionsDroppedEarly, shortFaults, lost}, {planted.OperandDropped, shortFaults, lost},
		{planted.ClearUnpositioned, shortFaults, followers}, {planted.RowPositionIgnored, shortFaults, followers},
		{planted.GarbageForgotten, 30 * time.Second, []string{"SW8 garbage"}}, {planted.CacheForEver, shortFaults, []string{"SW1 service", "peace", "created tables"}},
	} {
		if program == "" {
			t.Logf("skipped: only in longer runs")
			return
		}
		o := testOptions(50, test.virtual)
		o.follower = slices.Equal(test.judges, followers)
		n, finding := search(t.Context(), o, program, string(test.bug), o.from)
		if n == 0 {
			t.Errorf("%s: not found in %d seeds", test.bug, o.seeds)
		} else if judge, _, _ := strings.Cut(finding, ":"); !slices.Contains(test.judges, judge) {
			t.Errorf("%s: the search finds %q with its seed %d, and only %q look for what it breaks", test.bug, finding, n, test.judges)
		}
	}
}

// shortFaults is a time of faults that few phases follow.
const shortFaults = 4 * time.Second
