//go:build !faketime

package world

// atMoments does nothing: only a program for the simulated machine has moments.
func atMoments(func(name, detail string)) {}
