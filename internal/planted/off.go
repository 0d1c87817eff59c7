//go:build !plantedbugs

package planted

import "errors"

// On reports whether the bug is enabled.
func On(Bug) bool { return false }

// Choose returns an error if there are any names: only programs with the build tag have bugs.
func Choose(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	return errors.New("this program was built without the tag plantedbugs")
}
