//go:build !plantedbugs

package planted

import "errors"

// On reports whether the bug is enabled.
func On(Bug) bool { return false }

// Reached returns 0.
func Reached() int64 { return 0 }

// Choose returns an error if there are any names: only programs with the build tag have bugs.
func Choose(bugs ...Bug) error {
	if len(bugs) == 0 {
		return nil
	}
	return errors.New("this program was built without the tag plantedbugs")
}
