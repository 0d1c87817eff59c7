//go:build !race

package twopass

const raceEnabled = false
