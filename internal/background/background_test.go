package background

import "testing"

func TestGroup(t *testing.T) {
	g := New()
	ended := false
	if !g.Go(func() { <-g.Context().Done(); ended = true }) || g.Stopped() {
		t.Fatal("a new group is stopped")
	}
	g.Stop()
	if g.Go(func() { t.Error("ran after Stop") }) || !g.Stopped() {
		t.Error("a stopped group runs more")
	}
	g.Wait()
	if !ended {
		t.Error("Wait did not wait")
	}
	g.Stop()
}
