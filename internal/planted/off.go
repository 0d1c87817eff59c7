//go:build !plantedbugs

package planted

// On tells whether the process makes the mistake.
func On(Bug) bool { return false }
