package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// zipfTheta is YCSB's constant: the record of rank r is drawn in proportion to 1/r^theta.
const zipfTheta = 0.99

// A zipf draws ranks below n, low ranks most often, by the method of Gray et al., "Quickly
// generating billion-record synthetic databases" (SIGMOD 1994), as YCSB does.
type zipf struct {
	n, zeta, alpha, eta float64
}

// Normalization constants of zipfs: for two ranks, and for the ranks of scrambled, where it is
// YCSB's value for ten billion.
const (
	zetaOf2        = 1 + 0.5034777750283594 // 0.5^theta
	scrambledRanks = 10_000_000_000
	scrambledZeta  = 26.46902820178302
)

func newZipf(n uint64) zipf { return zipfOf(n, zeta(0, n)) }

func zipfOf(n uint64, zeta float64) zipf {
	return zipf{
		n: float64(n), zeta: zeta, alpha: 1 / (1 - zipfTheta),
		eta: (1 - math.Pow(2/float64(n), 1-zipfTheta)) / (1 - zetaOf2/zeta),
	}
}

// zeta sums the weights of the ranks from..n-1, counted from 0.
func zeta(from, n uint64) (sum float64) {
	for i := from; i < n; i++ {
		sum += math.Pow(float64(i+1), -zipfTheta)
	}
	return sum
}

// grow extends the range of ranks to n.
func (z *zipf) grow(n uint64) { *z = zipfOf(n, z.zeta+zeta(uint64(z.n), n)) }

func (z *zipf) draw(r *rand.Rand) uint64 {
	u := r.Float64()
	switch uz := u * z.zeta; {
	case uz < 1:
		return 0
	case uz < zetaOf2:
		return min(1, uint64(z.n)-1)
	}
	return min(uint64(z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)), uint64(z.n)-1)
}

// scrambled draws numbers below n with hot numbers spread over the range: YCSB's
// ScrambledZipfianGenerator.
type scrambled struct {
	zipf zipf
	n    uint64
}

func newScrambled(n uint64) *scrambled {
	return &scrambled{zipfOf(scrambledRanks, scrambledZeta), n}
}

func (s *scrambled) draw(r *rand.Rand) uint64 { return fnv64(s.zipf.draw(r)) % s.n }

// fnv64 is YCSB's hash of ranks: the absolute value of FNV-1a of the eight bytes of x.
func fnv64(x uint64) uint64 {
	const offset, prime = 0xcbf29ce484222325, 1099511628211
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], x)
	h := uint64(offset)
	for _, c := range b {
		h = (h ^ uint64(c)) * prime
	}
	if int64(h) < 0 {
		h = -h
	}
	return h
}

// latest draws numbers below a count, recent ones more often: YCSB's SkewedLatestGenerator.
type latest struct{ zipf zipf }

// zipfGrowth limits the error of latest: its distribution is recomputed when the count has grown by
// more than 1/zipfGrowth.
const zipfGrowth = 1000

func (l *latest) draw(r *rand.Rand, count uint64) uint64 {
	if n := uint64(l.zipf.n); count > n+n/zipfGrowth {
		l.zipf.grow(count)
	}
	return count - 1 - l.zipf.draw(r)
}
