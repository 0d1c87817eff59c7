package logproto

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
)

var scenarios = []scenario{
	{name: "one recovery", submits: [2]int{2, 0}, recoveries: 1, cuts: 2, seqs: 1, places: []string{"ab"}},
	{name: "three replicas", submits: [2]int{1, 0}, recoveries: 1, cuts: 2, seqs: 1, places: []string{"abc"}},
	{name: "two recoveries at once", submits: [2]int{1, 0}, recoveries: 2, cuts: 1, seqs: 1, places: []string{"ab"}},
	{name: "two recoveries at once, standby", submits: [2]int{1, 0}, recoveries: 2, cuts: 1, seqs: 2, places: []string{"ab", "bc"}},
	{name: "two recoveries at once, unknown outcomes", submits: [2]int{1, 0}, recoveries: 2, cuts: 1, unknowns: 1, seqs: 1, places: []string{"ab"}},
	{name: "to the standby", submits: [2]int{2, 0}, recoveries: 1, fails: 1, cuts: 2, seqs: 2, places: []string{"ab", "bc"}},
	{name: "to an extent that is registered first", submits: [2]int{1, 0}, recoveries: 1, fails: 2, cuts: 2, seqs: 3, places: []string{"ab", "bc", "ac"}},
	{name: "zombie and successor", submits: [2]int{1, 1}, recoveries: 1, take: true, cuts: 2, seqs: 2, places: []string{"ab", "ab"}},
	{name: "three appends", submits: [2]int{3, 0}, seqs: 1, places: []string{"ab"}},
	{name: "one replica each", submits: [2]int{1, 0}, recoveries: 1, fails: 2, cuts: 1, seqs: 3, places: []string{"a", "b", "c"}},
	{name: "sealed by its writer", submits: [2]int{2, 0}, fails: 1, cuts: 2, seqs: 3, places: []string{"a", "bc", "ac"}},
	{name: "two extents fail", submits: [2]int{1, 0}, fails: 2, cuts: 1, seqs: 3, places: []string{"ab", "bc", "ac"}},
	{name: "successor is recovered too", submits: [2]int{1, 1}, recoveries: 2, take: true, cuts: 1, seqs: 2, places: []string{"ab", "ab"}},
	{name: "opened too late", recoveries: 1, fails: 1, cuts: 0, seqs: 3, places: []string{"ab", "bc", "ac"}},
	{name: "crashes", submits: [2]int{2, 0}, recoveries: 1, crashes: 1, cuts: 2, seqs: 1, places: []string{"ab"}},
	{name: "duplicates", submits: [2]int{1, 0}, recoveries: 1, dups: 1, cuts: 2, seqs: 1, places: []string{"ab"}},
}

func (t *trail) print(b *strings.Builder) {
	if t == nil {
		return
	}
	t.before.print(b)
	if strings.HasPrefix(t.what, "deliver") {
		fmt.Fprintf(b, "  %s %v", t.what, t.args[0])
	} else {
		fmt.Fprintf(b, "  "+t.what, t.args...)
	}
	b.WriteString("\n")
}

func explore(s *scenario, limit int, seed uint64) *explorer {
	x := &explorer{scenario: s, limit: limit, rng: rand.New(rand.NewPCG(seed, 1))}
	x.run()
	return x
}

func (x *explorer) story() string {
	var b strings.Builder
	x.found.trail.print(&b)
	return fmt.Sprintf("%s: %s, after\n%s", x.name, x.found.wrong, b.String())
}

// exploring is held by the one test that explores, since theFlaw is global. These tests are
// parallel so that the others, which take milliseconds, run first.
var exploring sync.Mutex

// TestExplore visits all states of the small scenarios and a part of those of the others. L1 to L5.
func TestExplore(t *testing.T) {
	t.Parallel()
	exploring.Lock()
	defer exploring.Unlock()
	limit, total := 25_000, 0
	if os.Getenv("STELE_SOAK") != "" {
		limit = 4_000_000
	}
	seed := testseed.New(t)
	for i := range scenarios {
		begin := time.Now()
		x := explore(&scenarios[i], limit, seed)
		if x.found != nil {
			t.Fatal(x.story())
		}
		total += len(x.seen)
		t.Logf("%s: %d states, all of them: %t; something acknowledged in %d, recovered in %d; %v", x.name, len(x.seen), !x.cut, x.acks, x.closed, time.Since(begin))
	}
	t.Logf("%d states", total)
}

// plants are the planted mistakes, each with a scenario that reveals it.
var plants = []struct {
	flaw     flaw
	what     string
	scenario string
}{
	{flawAppendFenced, "a replica takes appends of an epoch that is fenced", "one recovery"},
	{flawAppendCut, "a replica takes appends after it was cut", "sealed by its writer"},
	{flawOpenFenced, "a fenced node opens an extent of a lower epoch", "opened too late"},
	{flawFenceBackward, "a fence of a lower epoch replaces a higher one", "two recoveries at once"},
	{flawStartAnywhere, "the first append to arrive determines the standby's start", "three appends"},
	{flawGap, "a replica accepts an append that leaves a gap", "three appends"},
	{flawCutShort, "a replica that is short is cut without being refilled", "one recovery"},
	{flawReadUncut, "a replica serves what was not cut", "one recovery"},
	{flawAckSome, "an append is acknowledged when one replica has it", "one recovery"},
	{flawAckAfterSeal, "the writer acknowledges after it has proposed a length", "two extents fail"},
	{flawGoOnUnsaved, "the writer goes on in an extent that is not registered", "two extents fail"},
	{flawKeepSent, "what was sent and not acknowledged is not sent again", "sealed by its writer"},
	{flawClaimSame, "a recovery takes another's claim of the same epoch for its own", "two recoveries at once"},
	{flawCutUnsaved, "a recovery cuts before the length is recorded", "one recovery"},
	{flawIgnoreStandby, "a recovery does not look at the standby", "one replica each"},
	{flawRecoverUnclaimed, "a recovery does not raise the epoch in the list", "one replica each"},
}

// TestPlanted plants one mistake at a time and expects the explorer to find it.
func TestPlanted(t *testing.T) {
	t.Parallel()
	exploring.Lock()
	defer exploring.Unlock()
	defer func() { theFlaw = flawNone }()
	for _, p := range plants {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == p.scenario })
		theFlaw = p.flaw
		x := explore(&scenarios[i], 300_000, 1)
		if x.found == nil {
			t.Errorf("not found in %d states: %s", len(x.seen), p.what)
			continue
		}
		t.Logf("%s: found after %d states: %.100s", p.what, len(x.seen), x.found.wrong)
	}
	if len(plants) != int(flawCount)-1 {
		t.Errorf("%d mistakes are planted, of %d", len(plants), flawCount-1)
	}
}
