//go:build race

package table

// raceEnabled reports whether the race detector is on, in which case sync.Pool drops items at
// random.
const raceEnabled = true
