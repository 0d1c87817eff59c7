package tablet

import "testing"

// If the oldest entries of a long commit log are in a memtable that is frozen already, and that nothing
// will write out because its tablet is about to be replaced, the loop of minor compactions waits. It
// does not spin.
func TestRelieveWaits(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	if _, err := applySync(s.Server, "row001", setCell("row001")); err != nil {
		t.Fatal(err)
	}
	x := s.served.all()[0]
	s.minors.slot.Acquire() // the loop waits for it
	defer s.minors.slot.Release()
	s.minors.cfg.LogBytesMax = 0
	if !s.minors.relieve() {
		t.Fatal("the tablet with the oldest entries was not frozen")
	}
	if s.minors.queue.Take() != x {
		t.Fatal("the frozen tablet is not in the queue")
	}
	if s.minors.relieve() {
		t.Error("a tablet without a memtable to freeze was frozen; the loop would try again at once")
	}
}
