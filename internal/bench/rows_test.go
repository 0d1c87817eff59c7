package bench

import (
	"bytes"
	"compress/flate"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// TestKeys: BN1, and keys sort like their numbers.
func TestKeys(t *testing.T) {
	var last []byte
	for _, i := range []uint64{0, 1, 9, 10, 99, 100, 12345, 999_999, 1_000_000, 9_999_999_999_999_999} {
		key := appendKey(nil, i)
		if want := fmt.Sprintf("%016d", i); string(key) != want {
			t.Errorf("key of row %d is %q, want %q", i, key, want)
		}
		if bytes.Compare(last, key) >= 0 {
			t.Errorf("key %q is not after %q", key, last)
		}
		last = key
	}
}

// TestValues: BN1 and BN4.
func TestValues(t *testing.T) {
	for _, size := range []int{8, 9, 15, 16, 1000, 4099} {
		v, other := values{seed: 7, size: size}, values{seed: 8, size: size}
		a, b := make([]byte, size), make([]byte, size)
		seen := map[string]uint64{}
		for i := range uint64(1000) {
			v.fill(a, i)
			v.fill(b, i)
			if !bytes.Equal(a, b) || !v.good(a, i) {
				t.Fatalf("value of row %d, %d bytes, is not the same again", i, size)
			}
			if j, again := seen[string(a)]; again {
				t.Fatalf("rows %d and %d have the same value", i, j)
			}
			seen[string(a)] = i
			if v.good(a, i+1) || other.good(a, i) || v.good(a[:size-1], i) || v.good(nil, i) {
				t.Fatalf("value of row %d, %d bytes, counts as another", i, size)
			}
			at := int(i) % size
			a[at] ^= 1
			if v.good(a, i) {
				t.Fatalf("value of row %d, %d bytes, counts as good though byte %d is not", i, size, at)
			}
		}
	}
}

// TestValuesIncompressible: single values, and many together.
func TestValuesIncompressible(t *testing.T) {
	v := values{seed: 3, size: 1000}
	var all []byte
	for i := range uint64(100) {
		value := make([]byte, v.size)
		v.fill(value, i)
		all = append(all, value...)
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(all); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if out.Len() < len(all) {
		t.Errorf("%d bytes became %d", len(all), out.Len())
	}
}

// TestPermutation: BN2.
func TestPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 1023, 1024, 1025, 65_537, 200_000} {
		orders := map[string]bool{}
		for seed := range uint64(4) {
			o := permuted(n, seed)
			seen := make([]bool, n)
			head := []uint64{}
			for i := range n {
				row := o.at(i)
				if row >= n || seen[row] {
					t.Fatalf("n %d, seed %d: position %d is row %d, out of range or repeated", n, seed, i, row)
				}
				seen[row] = true
				if i < 20 {
					head = append(head, row)
				}
			}
			orders[fmt.Sprint(head)] = true
			if n >= 1000 && slices.IsSorted(head) {
				t.Errorf("n %d, seed %d: begins with %v", n, seed, head)
			}
		}
		if n >= 100 && len(orders) < 4 {
			t.Errorf("n %d: only %d orders for 4 seeds", n, len(orders))
		}
	}
}

// TestPermutationSpreads: each stretch of positions spreads over the rows, and consecutive rows are
// far apart.
func TestPermutationSpreads(t *testing.T) {
	const n, parts, stretch = 1_000_000, 100, 10_000
	for seed := range uint64(3) {
		o := permuted(n, seed)
		for from := uint64(0); from < n; from += n / 10 {
			var in [parts]int
			near := 0
			for i := range uint64(stretch) {
				row := o.at(from + i)
				in[row*parts/n]++
				if next := o.at((from + i + 1) % n); next-row+1000 < 2000 {
					near++
				}
			}
			for part, count := range in {
				if count < stretch/parts/2 || count > stretch/parts*2 {
					t.Errorf("seed %d: of %d places from %d on, %d are in part %d of %d", seed, stretch, from, count, part, parts)
				}
			}
			if near > stretch/100 { // by chance 1 in 500
				t.Errorf("seed %d: of %d places from %d on, %d are followed by a row nearby", seed, stretch, from, near)
			}
		}
	}
}

// TestRanges: BN3.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		n       uint64
		clients int
		unit    uint64
	}{{10, 64, 1}, {1000, 64, 1}, {1000, 3, 7}, {999, 4, 1000}, {123_457, 64, 100}, {100_000, 1, 1000}} {
		r := newRanges(c.n, c.clients, c.unit)
		var mu sync.Mutex
		var group sync.WaitGroup
		seen := make([]int, c.n)
		for range 8 {
			group.Go(func() {
				for {
					pass, from, to := r.take()
					if pass >= 2 {
						return
					}
					mu.Lock()
					for i := from; i < to; i++ {
						seen[i]++
					}
					if from%c.unit != 0 || from >= to {
						t.Errorf("%+v: range from %d to %d", c, from, to)
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		for i, count := range seen {
			if count != 2 {
				t.Fatalf("%+v: row %d was handed out %d times in two passes", c, i, count)
			}
		}
	}
}

func BenchmarkValue(b *testing.B) {
	v := values{seed: 1, size: 1000}
	value := make([]byte, v.size)
	for i := range b.N {
		v.fill(value, uint64(i))
		if !v.good(value, uint64(i)) {
			b.Fatal("not good")
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	o := permuted(1_000_000, 1)
	for i := range b.N {
		_ = o.at(uint64(i) % o.n)
	}
}
