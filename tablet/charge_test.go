package tablet

import (
	"testing"

	"github.com/steledb/stele/table"
)

// TestLargeWritesAreCharged (I13): what a large value takes until it is in the memtable counts within the memory for writes, and
// what was charged is given back.
func TestLargeWritesAreCharged(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	f := newFullFleet(t)
	s := f.start(0, Config{MemtablesBytesMax: 64 << 20})
	f.load(s, 0, "m", nil, nil)
	rm := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, size))}}
	if n := s.chargeBytes(rm); n < 3*size-2*largeMutation {
		t.Errorf("a value of %d bytes is charged %d", size, n)
	}
	small := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, 1000))}}
	if n, m := s.chargeBytes(small), rowMutationBytes(small); n != m {
		t.Errorf("a small value is charged %d, and takes %d", n, m)
	}
	huge := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, 4*size))}}
	if n, m := s.chargeBytes(huge), rowMutationBytes(huge); n > max(m, 32<<20) {
		t.Errorf("a value of half the memory is charged %d: it waits for all others to be written out", n)
	}
	for range 20 { // more than there is at once
		if _, err := applySync(s, "a", rm.Mutations...); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.charged.Load(); n != 0 {
		t.Errorf("%d bytes stay charged", n)
	}
}
