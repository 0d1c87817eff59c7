//go:build !faketime

package machine

// Without the patched runtime the package compiles, so that tools can check what imports it, and
// panics.

func seed(uint64)                { panic(unpatched) }
func current() int               { panic(unpatched) }
func enter(int)                  { panic(unpatched) }
func setState(int, uint8)        { panic(unpatched) }
func setClock(int, int64, int64) { panic(unpatched) }
func setLate(int, uint64, int64) { panic(unpatched) }
func nanotime() int64            { panic(unpatched) }
func counters() (uint64, uint64) { panic(unpatched) }
func goroutines(int) int         { panic(unpatched) }
func ticksOf(int) uint64         { panic(unpatched) }

const unpatched = "simulation: this program was not built by test/simulation/simulate"
