//go:build faketime

package world

import "github.com/steledb/stele/internal/moment"

// atMoments makes the nodes call f at each moment of the program.
func atMoments(f func(name, detail string)) { moment.Passed = f }
