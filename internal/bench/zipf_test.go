package bench

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// TestZipfFrequencies: ranks are drawn in proportion to their weights.
func TestZipfFrequencies(t *testing.T) {
	const n, draws = 1000, 1_000_000
	z := newZipf(n)
	r := rand.New(rand.NewPCG(1, 2))
	var count [n]int
	for range draws {
		count[z.draw(r)]++
	}
	total := zeta(0, n)
	sum := 0.0
	for rank, got := range count {
		want := math.Pow(float64(rank+1), -zipfTheta) / total
		sum += want
		// The method is exact for the first two ranks and approximate for the others.
		if near := 0.25; rank < 50 && math.Abs(float64(got)/draws/want-1) > near {
			t.Errorf("rank %d came %d times, want %.0f", rank, got, want*draws)
		}
	}
	head := 0
	for _, got := range count[:10] {
		head += got
	}
	if want := zeta(0, 10) / total; math.Abs(float64(head)/draws-want) > 0.02 {
		t.Errorf("the first ten came %.3f of the time, want %.3f", float64(head)/draws, want)
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("weights sum to %f", sum)
	}
}

// TestZetas checks the constants.
func TestZetas(t *testing.T) {
	if got := zeta(0, 2); math.Abs(got-zetaOf2) > 1e-12 {
		t.Errorf("zeta of 2 is %.15f", got)
	}
	// The sum of the first million, and the integral of the others (Euler and Maclaurin).
	const m, n = 1e6, float64(scrambledRanks)
	s := 1 - zipfTheta
	rest := (math.Pow(n, s)-math.Pow(m, s))/s + (math.Pow(n, -zipfTheta)-math.Pow(m, -zipfTheta))/2
	if got := zeta(0, m) + rest; math.Abs(got-scrambledZeta) > 1e-6 {
		t.Errorf("zeta of ten thousand million is %.9f", got)
	}
}

// TestZipfGrows: a grown zipf equals a new one of that size.
func TestZipfGrows(t *testing.T) {
	for _, n := range []uint64{1, 2, 10, 5000} {
		z := newZipf(n)
		z.grow(6000)
		if want := newZipf(6000); math.Abs(z.zeta-want.zeta) > 1e-9 || math.Abs(z.eta-want.eta) > 1e-9 || z.n != want.n {
			t.Errorf("from %d: %+v, want %+v", n, z, want)
		}
	}
}

// TestScrambled: draws stay in range, the most frequent number has the share of the first of ten
// billion ranks, and frequent numbers are spread.
func TestScrambled(t *testing.T) {
	const n, draws = 10_000, 500_000
	s := newScrambled(n)
	r := rand.New(rand.NewPCG(3, 4))
	var count [n]int
	for range draws {
		count[s.draw(r)]++
	}
	hot := fnv64(0) % n
	if share := float64(count[hot]) / draws; math.Abs(share-1/scrambledZeta) > 0.005 {
		t.Errorf("the hottest came %.4f of the time, want %.4f", share, 1/scrambledZeta)
	}
	half := 0
	for _, got := range count[:n/2] {
		half += got
	}
	if share := float64(half) / draws; share < 0.3 || share > 0.7 {
		t.Errorf("the lower half came %.2f of the time", share)
	}
}

func TestFNV(t *testing.T) {
	for _, x := range []uint64{0, 1, 255, 1 << 40, 0x0123456789abcdef} {
		h := fnv.New64a()
		for i := range 8 {
			h.Write([]byte{byte(x >> (8 * i))})
		}
		want := int64(h.Sum64())
		if want < 0 {
			want = -want
		}
		if got := fnv64(x); got != uint64(want) {
			t.Errorf("hash of %x is %x, want %x", x, got, want)
		}
	}
}

// TestLatest: recent records are drawn more often, also while records are added, and no missing
// record is drawn.
func TestLatest(t *testing.T) {
	const first, draws = 1000, 200_000
	l := latest{newZipf(first)}
	r := rand.New(rand.NewPCG(5, 6))
	newest, tenth := 0, 0
	for i := range draws {
		count := uint64(first + i/100)
		got := l.draw(r, count)
		if got >= count {
			t.Fatalf("drew %d of %d", got, count)
		}
		if got == count-1 {
			newest++
		}
		if got >= count-count/10 {
			tenth++
		}
	}
	if l.zipf.n < first+draws/100*0.99 {
		t.Errorf("after %d records it counts on %.0f", first+draws/100, l.zipf.n)
	}
	if share := float64(newest) / draws; share < 0.115 || share > 0.135 { // 1/zeta(1000..3000)
		t.Errorf("the newest came %.3f of the time", share)
	}
	if share := float64(tenth) / draws; share < 0.6 || share > 0.8 {
		t.Errorf("the newest tenth came %.3f of the time", share)
	}
}
