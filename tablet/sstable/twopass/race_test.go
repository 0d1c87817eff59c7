//go:build race

package twopass

const raceEnabled = true
