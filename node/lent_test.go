package node

import "testing"

// TestConnectionsTakeFromCaches (I13): what connections take the caches have less, those from before there were caches as well; and a
// node takes no more of them than an eighth of its memory is for.
func TestConnectionsTakeFromCaches(t *testing.T) {
	var c reservation
	c.change(connBytes)
	c.change(connBytes)
	var got int64
	c.from(func(bytes int64) { got = bytes })
	if got != 2*connBytes {
		t.Errorf("two connections take %d", got)
	}
	c.change(connBytes)
	c.change(-connBytes)
	c.change(-connBytes)
	if got != connBytes {
		t.Errorf("one connection takes %d", got)
	}
	for memory, want := range map[int64]int{MemoryMin: 512, 1 << 30: 2048, 2 << 30: connsMost, 64 << 30: connsMost} {
		cfg := Config{MemoryBytes: memory}
		if got := cfg.connsMax(); got != want {
			t.Errorf("memory %d: %d connections", memory, got)
		}
		if most, b := int64(cfg.connsMax())*connBytes, cfg.budget(); most > memory/8 || most > b.cache*7/8 {
			t.Errorf("memory %d: connections take up to %d, of caches of %d", memory, most, b.cache)
		}
	}
}
