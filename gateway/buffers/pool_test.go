package buffers

import (
	"slices"
	"testing"
)

// TestPool: a buffer has the length that was requested, and is used again for lengths of its size only.
func TestPool(t *testing.T) {
	var p pool
	for _, n := range []int{0, 1, 512, 513, 16 << 10, 256 << 10, 288 << 10, 1 << 20, 2<<20 + 64<<10, 2<<20 + 64<<10 + 1, 5 << 20} {
		b := p.Get(n)
		if len(*b) != n {
			t.Fatalf("Get(%d) has %d bytes", n, len(*b))
		}
		if at, pooled := slices.BinarySearch(sizes[:], cap(*b)); pooled != (n <= sizes[len(sizes)-1]) || pooled && at > 0 && n <= sizes[at-1] {
			t.Errorf("Get(%d) has a capacity of %d bytes", n, cap(*b))
		}
		p.Put(b)
		if again := p.Get(n); len(*again) != n {
			t.Errorf("Get(%d) after Put has %d bytes", n, len(*again))
		}
	}
	grown := make([]byte, 0, 1000) // of a capacity that Get does not return
	p.Put(&grown)
	if b := p.Get(900); cap(*b) == cap(grown) {
		t.Errorf("Get(900) has a capacity of %d bytes", cap(*b))
	}
}

func BenchmarkGet(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Pool.Put(Pool.Get(256 << 10))
	}
}
