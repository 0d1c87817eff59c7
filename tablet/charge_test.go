package tablet

import (
	"testing"

	"github.com/steledb/stele/table"
)

// TestWritesAreCharged (I13): a mutation that is not in a memtable yet is charged to the memory for
// writes: its size there, its encoded form, and that of a large one in a log batch. The charge is
// released.
func TestWritesAreCharged(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	f := newFullCluster(t)
	s := f.start(0, Config{MemtablesBytesMax: 64 << 20})
	f.load(s, 0, "m", nil, nil)
	rm := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, size))}}
	if n := s.writes.chargeBytes(rm); n < 3*size-s.cfg.LogBatchBytes {
		t.Errorf("a value of %d bytes is charged %d", size, n)
	}
	for _, size := range []int{1000, 300 << 10} {
		small := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, size))}}
		if n, m := s.writes.chargeBytes(small), rowMutationBytes(small); n != 2*m {
			t.Errorf("a value of %d bytes is charged %d, and takes %d twice", size, n, m)
		}
	}
	huge := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, make([]byte, 4*size))}}
	if n, m := s.writes.chargeBytes(huge), rowMutationBytes(huge); n > max(m, 32<<20) {
		t.Errorf("a value of half the memory is charged %d: it waits for all others to be written out", n)
	}
	for range 20 { // more than fits at once
		if _, err := applySync(s, "a", rm.Mutations...); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.writeMemory.Charged(); n != 0 {
		t.Errorf("%d bytes stay charged", n)
	}
}
