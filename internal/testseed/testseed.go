// Package testseed gives random tests their seed. It is for tests only.
package testseed

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// New returns the seed of a random test: STELE_SEED if it is set, and otherwise a new one. It logs the command that repeats the test with
// this seed, at once, so that it is printed even if the test panics.
func New(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("STELE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			tb.Fatalf("STELE_SEED: %v", err)
		}
	}
	tb.Logf("to replay: STELE_SEED=%d go test ./%s -run '^%s$'", seed, folder(), tb.Name())
	return seed
}

// folder returns the folder of the package under test, which is the current one, from the folder of go.mod.
func folder() string {
	here, err := os.Getwd()
	if err != nil {
		return "..."
	}
	for dir := here; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if name, err := filepath.Rel(dir, here); err == nil {
				return filepath.ToSlash(name)
			}
		}
	}
	return "..."
}
