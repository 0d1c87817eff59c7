package budget

import "testing"

// TestConnectionsTakeFromCaches (I13): what connections take the caches have less, those from before there were caches as well; and a
// node takes no more of them than an eighth of its memory is for.
func TestConnectionsTakeFromCaches(t *testing.T) {
	var c Reservation
	c.Change(ConnBytes)
	c.Change(ConnBytes)
	var got int64
	c.From(func(bytes int64) { got = bytes })
	if got != 2*ConnBytes {
		t.Errorf("two connections take %d", got)
	}
	c.Change(ConnBytes)
	c.Change(-ConnBytes)
	c.Change(-ConnBytes)
	if got != ConnBytes {
		t.Errorf("one connection takes %d", got)
	}
	for memory, want := range map[int64]int{256 << 20: 512, 1 << 30: 2048, 2 << 30: 4096, 8 << 30: 16384, 64 << 30: 16384} {
		if got := ConnsMax(memory); got != want {
			t.Errorf("memory %d: %d connections", memory, got)
		}
		if most, b := int64(ConnsMax(memory))*ConnBytes, Of(memory, fixed(memory, 0)); most > memory/8 || most > b.Cache*7/8 {
			t.Errorf("memory %d: connections take up to %d, of caches of %d", memory, most, b.Cache)
		}
	}
}
