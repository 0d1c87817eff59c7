//go:build plantedbugs

package planted

import (
	"os"
	"slices"
	"strings"
)

var chosen = strings.Split(os.Getenv("STELE_BUG"), ",")

// On reports whether the bug is enabled.
func On(b Bug) bool { return slices.Contains(chosen, string(b)) }
