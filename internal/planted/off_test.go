//go:build !plantedbugs

package planted

import "testing"

// Without the tag no bug is enabled, and a choice fails rather than to be ignored.
func TestNoBugs(t *testing.T) {
	if err := Choose(); err != nil {
		t.Error(err)
	}
	if err := Choose(RedoTooFar); err == nil {
		t.Error("a program without bugs accepted the choice of one")
	}
	for _, b := range All() {
		if On(b) {
			t.Errorf("%s is enabled", b)
		}
	}
}
