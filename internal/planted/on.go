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

// On reports whether the bug is enabled.
func On(b Bug) bool { return (*chosen.Load())[b] }

// Choose enables the bugs with those names, and no others. If one is unknown, it returns an error
// and changes nothing. Safe for concurrent use; code that runs meanwhile may see either list.
func Choose(names ...string) error {
	enabled := map[Bug]bool{}
	for _, name := range names {
		if !slices.Contains(all, Bug(name)) {
			return fmt.Errorf("no planted bug is called %q", name)
		}
		enabled[Bug(name)] = true
	}
	chosen.Store(&enabled)
	return nil
}
