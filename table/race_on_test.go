//go:build race

package table

// raceEnabled tells that sync.Pool drops items at random.
const raceEnabled = true
