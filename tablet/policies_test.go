package tablet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A mergePolicy chooses what to merge, as pickMerge does.
type mergePolicy struct {
	name string
	pick func(sizes []int64) (from, to int)
}

// ratioPolicy merges, from filesMerge files on, from the oldest one that is no larger than ratio
// times all newer ones.
func ratioPolicy(name string, filesMerge int, ratio float64) mergePolicy {
	return mergePolicy{name, func(sizes []int64) (from, to int) {
		n := len(sizes)
		if n < filesMerge {
			return 0, 0
		}
		newer := int64(0)
		for _, size := range sizes {
			newer += size
		}
		for i, size := range sizes {
			newer -= size
			if float64(size) <= ratio*float64(newer) || n-i <= 2 {
				return i, n
			}
		}
		return 0, 0
	}}
}

// tieredPolicy merges neighbours of similar size: four that are within half and one and a half
// times their mean, like Cassandra's size tiers.
func tieredPolicy(sizes []int64) (from, to int) {
	const least, most = 4, 32
	for to = len(sizes); to >= least; to-- {
		sum := int64(0)
		for from = to - 1; from >= 0 && to-from <= most; from-- {
			sum += sizes[from]
			mean := float64(sum) / float64(to-from)
			run := sizes[from:to]
			if float64(slices.Min(run)) < mean/2 || float64(slices.Max(run)) > mean*3/2 {
				break
			}
		}
		if from++; to-from >= least {
			return from, to
		}
	}
	return 0, 0
}

func mergePolicies() []mergePolicy {
	return []mergePolicy{
		{"stele", func(sizes []int64) (from, to int) { return pickMerge(sizes, 6) }},
		ratioPolicy("3 files", 3, 1),
		ratioPolicy("12 files", 12, 1),
		ratioPolicy("levels of 4", 4, 4),
		ratioPolicy("levels of 10", 4, 10),
		ratioPolicy("half as large", 6, 0.5),
		{"size tiers", tieredPolicy},
		{"one file", func(sizes []int64) (from, to int) { return 0, len(sizes) * min(1, len(sizes)/2) }},
		{"none", func([]int64) (from, to int) { return 0, 0 }},
	}
}

// keyPattern is what a workload writes and reads of a tablet of n rows: keys from 0 to n-1.
type keyPattern struct {
	name   string
	loaded bool // the rows are preloaded, and writing them does not count
	writes func(rng *rand.Rand, n int) []uint32
	reads  func(rng *rand.Rand, n int) func(written int) uint32
}

func sequence(n int) []uint32 {
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	return keys
}

func permutation(rng *rand.Rand, n int) []uint32 {
	keys := sequence(n)
	rng.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func uniformReads(rng *rand.Rand, n int) func(int) uint32 {
	return func(int) uint32 { return uint32(rng.IntN(n)) }
}

// drawn returns a generator of numbers with the given weights.
func drawn(rng *rand.Rand, weights []float64) func() uint32 {
	sums, sum := make([]float64, len(weights)), 0.0
	for i, w := range weights {
		sum += w
		sums[i] = sum
	}
	return func() uint32 {
		i, _ := slices.BinarySearch(sums, rng.Float64()*sum)
		return uint32(min(i, len(sums)-1))
	}
}

func zipfWeight(rank int) float64 { return math.Pow(float64(rank+1), -0.99) }

// zipfKeys returns a generator of keys like YCSB's: of ten thousand million ranks, each of which
// belongs to a key. The first ones make keys hot; the others are spread evenly over all keys.
func zipfKeys(rng *rand.Rand, n int) func() uint32 {
	const first = 1 << 16
	weights, rest := make([]float64, n), 26.46902820178302 // the weight of all ranks
	anywhere := rand.New(rand.NewPCG(1, 1))
	for rank := range first {
		w := zipfWeight(rank)
		weights[anywhere.IntN(n)] += w
		rest -= w
	}
	for i := range weights {
		weights[i] += rest / float64(n)
	}
	return drawn(rng, weights)
}

func keyPatterns() []keyPattern {
	return []keyPattern{
		{"sequential write", false, func(_ *rand.Rand, n int) []uint32 { return sequence(n) }, uniformReads},
		{"random write, ycsb load, d, e", false, permutation, uniformReads},
		{"ycsb a, b, f: updates", true, func(rng *rand.Rand, n int) []uint32 {
			draw, keys := zipfKeys(rng, n), make([]uint32, 2*n)
			for i := range keys {
				keys[i] = draw()
			}
			return keys
		}, func(rng *rand.Rand, n int) func(int) uint32 {
			draw := zipfKeys(rng, n)
			return func(int) uint32 { return draw() }
		}},
		{"uniform updates", true, func(rng *rand.Rand, n int) []uint32 {
			keys := make([]uint32, 2*n)
			for i := range keys {
				keys[i] = uint32(rng.IntN(n))
			}
			return keys
		}, uniformReads},
	}
}

// amplification is the cost of a policy.
type amplification struct {
	write            float64 // entries written to files per entry put
	files, filesMost float64 // files that a scan merges
	point            float64 // files that a row read looks into: those that have it, and one in a hundred others
	space, spaceMost float64 // entries in files per existing row
	written, samples int
}

// policyRun is a locality group with its files, oldest first. A file is the ascending list of its
// rows.
type policyRun struct {
	Policy mergePolicy
	files  [][]uint32
	there  []bool
	rows   int
	amplification
}

func (r *policyRun) flush(mem map[uint32]bool) {
	file := make([]uint32, 0, len(mem))
	for k := range mem {
		file = append(file, k)
		if !r.there[k] {
			r.there[k] = true
			r.rows++
		}
	}
	slices.Sort(file)
	r.files = append(r.files, file)
	r.written += len(file)
	for {
		sizes := make([]int64, len(r.files))
		for i, f := range r.files {
			sizes[i] = int64(len(f))
		}
		from, to := r.Policy.pick(sizes)
		if to-from < 2 {
			return
		}
		merged := mergeKeys(r.files[from:to])
		r.written += len(merged)
		r.files = slices.Replace(r.files, from, to, merged)
	}
}

// mergeKeys returns the keys in any of the files, once each.
func mergeKeys(files [][]uint32) []uint32 {
	if len(files) == 1 {
		return files[0]
	}
	a, b := mergeKeys(files[:len(files)/2]), mergeKeys(files[len(files)/2:])
	all := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		k := min(a[0], b[0])
		all = append(all, k)
		if a[0] == k {
			a = a[1:]
		}
		if len(b) > 0 && b[0] == k {
			b = b[1:]
		}
	}
	return append(append(all, a...), b...)
}

func (r *policyRun) sample(key func() uint32) {
	r.samples++
	r.amplification.files += float64(len(r.files))
	r.filesMost = max(r.filesMost, float64(len(r.files)))
	entries := 0
	for _, f := range r.files {
		entries += len(f)
	}
	space := float64(entries) / float64(r.rows)
	r.space += space
	r.spaceMost = max(r.spaceMost, space)
	const reads = 100
	looks := 0.0
	for range reads {
		k := key()
		for _, f := range r.files {
			if _, has := slices.BinarySearch(f, k); has {
				looks++
			} else {
				looks += 0.01
			}
		}
	}
	r.point += looks / reads
}

// runPolicy writes and reads a group of n rows by the pattern, with memtables of memtable entries.
func runPolicy(p mergePolicy, pattern keyPattern, n, memtable int) amplification {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	r := &policyRun{Policy: p, there: make([]bool, n)}
	put := func(keys []uint32, after func(i int)) {
		mem, in := map[uint32]bool{}, 0
		for i, k := range keys {
			mem[k] = true
			if in++; in == memtable || i == len(keys)-1 {
				r.flush(mem)
				clear(mem)
				in = 0
				after(i)
			}
		}
	}
	if pattern.loaded {
		put(permutation(rng, n), func(int) {})
		r.written = 0
	}
	keys, read := pattern.writes(rng, n), pattern.reads(rng, n)
	put(keys, func(i int) { r.sample(func() uint32 { return read(i) }) })
	a, s := r.amplification, float64(r.samples)
	a.write, a.files, a.point, a.space = float64(a.written)/float64(len(keys)), a.files/s, a.point/s, a.space/s
	return a
}

// betterBy divides a cost: a policy is better if it costs less by more than this part.
const betterBy = 50

// beats reports whether a is no worse than b in writing, in scans, in reads of rows and in space,
// and better in one.
func (a *amplification) beats(b *amplification) bool {
	mine, its := [4]float64{a.write, a.files, a.point, a.space}, [4]float64{b.write, b.files, b.point, b.space}
	better := false
	for i := range mine {
		if mine[i] > its[i]*(1+1.0/betterBy) {
			return false
		}
		better = better || mine[i] < its[i]*(1-1.0/betterBy)
	}
	return better
}

// TestMergePolicies measures the cost of pickMerge and others, in entries, for the writes of the
// six workloads and YCSB's. No other policy may be better at writing, at reading and in space at
// once, and pickMerge must keep its bounds. -v prints the table. The result depends on the number
// of memtables, not of rows.
func TestMergePolicies(t *testing.T) {
	t.Parallel()
	const n = 1 << 16
	for _, parts := range []int{16, 128} { // memtables of a 16th and of a 128th of the tablet
		for _, pattern := range keyPatterns() {
			var table strings.Builder
			var ours amplification
			for _, p := range mergePolicies() {
				a := runPolicy(p, pattern, n, n/parts)
				fmt.Fprintf(&table, "\n| %-14s | %5.2f | %5.1f | %4.0f | %5.2f | %5.2f | %5.2f |", p.name, a.write, a.files, a.filesMost, a.point, a.space, a.spaceMost)
				if p.name == "stele" {
					ours = a
				} else if a.beats(&ours) {
					t.Errorf("%s, memtables of 1/%d: %s is better", pattern.name, parts, p.name)
				}
			}
			t.Logf("%s, memtables of 1/%d of %d rows: written, files, most, files of a row, space, most%s", pattern.name, parts, n, table.String())
			if ours.filesMost >= 6 {
				t.Errorf("%s: %.0f files, of fewer than 6", pattern.name, ours.filesMost)
			}
			if most := 1 + math.Log2(float64(parts)); !pattern.loaded && ours.write > most {
				t.Errorf("%s: each entry is written %.2f times, of at most %.2f", pattern.name, ours.write, most)
			}
		}
	}
}
