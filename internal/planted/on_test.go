//go:build plantedbugs

package planted

import "testing"

func TestChoose(t *testing.T) {
	if err := Choose(RedoTooFar, ClockOnly); err != nil {
		t.Fatal(err)
	}
	if err := Choose("no-such-bug"); err == nil {
		t.Error("an unknown bug was chosen")
	}
	if !On(RedoTooFar) || !On(ClockOnly) || On(LateSnapshot) {
		t.Error("other bugs are enabled than those that were chosen")
	}
	if Reached() != 2 {
		t.Errorf("enabled bugs were reached %d times, want twice", Reached())
	}
	if err := Choose(); err != nil || On(RedoTooFar) {
		t.Errorf("a bug is enabled after none was chosen: %v", err)
	}
}
