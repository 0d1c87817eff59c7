//go:build plantedbugs

package planted

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// chosen are the enabled bugs. Never changed, but replaced.
var chosen atomic.Pointer[map[Bug]bool]

func init() {
	enabled := map[Bug]bool{}
	for name := range strings.SplitSeq(os.Getenv("STELE_BUG"), ",") {
		enabled[Bug(name)] = true
	}
	chosen.Store(&enabled)
}

// reached counts the calls of On for enabled bugs.
var reached atomic.Int64

// On reports whether the bug is enabled.
func On(b Bug) bool {
	on := (*chosen.Load())[b]
	if on {
		reached.Add(1)
	}
	return on
}

// Reached returns how often the program came to an enabled bug. A bug that is reached and not found shows a
// test that does not look; one that is not reached shows a test that does not get there.
func Reached() int64 { return reached.Load() }

// Choose enables these bugs, and no others. If one is unknown, it returns an error
// and changes nothing. Safe for concurrent use; code that runs meanwhile may see either list.
func Choose(bugs ...Bug) error {
	enabled := map[Bug]bool{}
	for _, b := range bugs {
		if !slices.Contains(all, b) {
			return fmt.Errorf("no planted bug is called %q", b)
		}
		enabled[b] = true
	}
	chosen.Store(&enabled)
	return nil
}
