package hll

import "math"

// Estimate returns the number of distinct values, approximately.
func (s *Sketch) Estimate() int64 {
	s.sortIn()
	if s.normal == nil {
		const m = 1 << sparsePrecision
		return int64(math.Round(m * math.Log(m/float64(m-len(s.sorted)))))
	}
	return atMost(math.Round(estimateNormal(s.normal)))
}

// atMost converts an estimate. That of registers which no values can have set is without bound.
func atMost(estimate float64) int64 {
	if estimate >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(estimate)
}

// estimateNormal is Ertl's improved raw estimator: algorithm 6 of arXiv:1702.01284.
func estimateNormal(normal []byte) float64 {
	var counts [rhoMax + 1]float64
	for _, rho := range normal {
		counts[rho]++
	}
	const m = registers
	z := m * tau(1-counts[rhoMax]/m)
	for k := rhoMax - 1; k > 0; k-- {
		z = (z + counts[k]) / 2
	}
	z += m * sigma(counts[0]/m)
	return m * m / (2 * math.Ln2 * z)
}

// sigma corrects the estimate for registers that are 0, whose part is x.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for last := -1.0; z != last; y += y {
		x *= x
		last = z
		z += x * y
	}
	return z
}

// tau corrects the estimate for registers that have the largest value. The part of the others is x.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for last := -1.0; z != last; {
		x = math.Sqrt(x)
		last = z
		y /= 2
		z -= (1 - x) * (1 - x) * y
	}
	return z / 3
}
