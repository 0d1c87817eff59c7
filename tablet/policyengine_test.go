package tablet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/table"
)

// policyScale is the size of the tablets with which policies are measured.
type policyScale struct {
	memtable int   // bytes
	cache    int64 // bytes
	rows     int   // of a thousand bytes
	reads    int   // measured operations between writes, after half as many to warm the cache
}

var (
	// A tablet is about 64 memtables, or 32, and the cache a third of it.
	policiesMeasured = policyScale{memtable: 256 << 10, cache: 4 << 20, rows: 13_000, reads: 500}
	policiesTested   = policyScale{memtable: 16 << 10, cache: 256 << 10, rows: 400, reads: 30}
)

// policyWorkloads are those of the paper and YCSB's, by their names in "stele bench".
var policyWorkloads = []string{"sequential-write", "random-write", "sequential-read", "random-read", "random-read-mem", "scan",
	"ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"}

// measurePolicy returns the counts of each workload. Reads are measured between writes, at all
// sizes of the tablet: the number of files after a certain number of memtables is random.
func measurePolicy(t testing.TB, p mergePolicy, scale policyScale) map[string]*policyCounts {
	counts := map[string]*policyCounts{}
	for _, w := range policyWorkloads {
		counts[w] = &policyCounts{}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	n := scale.rows
	rows := paperRows{newPolicyTablet(t, p, scale.memtable, scale.cache, ""), scale, sequence(n)}
	rows.measure(counts["sequential-write"], func(written int) {
		from := func() int { return rng.IntN(max(1, written-scale.reads)) }
		first := from()
		rows.during(counts["sequential-read"], func() {
			for i := range min(written, scale.reads) {
				rows.get(paperKey(uint32(first + i)))
			}
		})
		rows.during(counts["scan"], func() { rows.scan(paperKey(uint32(from())), scale.reads) })
	})
	rows = paperRows{newPolicyTablet(t, p, scale.memtable, scale.cache, ""), scale, permutation(rng, n)}
	rows.measure(counts["random-write"], rows.readRandomly(counts["random-read"]))
	rows = paperRows{newPolicyTablet(t, p, scale.memtable, int64(n)<<13, ",in-memory"), scale, permutation(rng, n/2)}
	rows.measure(&policyCounts{}, rows.readRandomly(counts["random-read-mem"]))
	for _, measure := range []func(y *ycsbRecords, n int, scale policyScale, counts map[string]*policyCounts){measureUpdates, measureInserts} {
		// Memtables hold less data if cells are smaller.
		measure(&ycsbRecords{policyTablet: newPolicyTablet(t, p, scale.memtable, scale.cache/2, "")}, n/2, scale, counts)
	}
	return counts
}

// randomCell returns the mutation of a cell of n bytes that do not compress.
func randomCell(rng *rand.Rand, qualifier string, n int) table.Mutation {
	value := make([]byte, 0, n+8)
	for len(value) < n {
		value = binary.LittleEndian.AppendUint64(value, rng.Uint64())
	}
	return table.Set("f", []byte(qualifier), table.ServerTimestamp, value[:n])
}

// paperRows is a tablet of the paper's rows, in the order in which they are written.
type paperRows struct {
	*policyTablet
	scale policyScale
	keys  []uint32
}

func paperKey(k uint32) []byte { return fmt.Appendf(nil, "%016d", k) }

// measure writes the rows, which counts for c. From a quarter of them on, read is called whenever a
// memtable was written out.
func (r *paperRows) measure(c *policyCounts, read func(written int)) {
	r.phase([]*policyCounts{c}, func() {
		written := 0
		for batch := range slices.Chunk(r.keys, 16) {
			for _, k := range batch {
				r.apply(paperKey(k), true, randomCell(r.rng, "", 1000))
			}
			written += len(batch)
			r.sampled = written >= len(r.keys)/4
			if r.settle() && r.sampled {
				read(written)
			}
		}
	})
}

func (r *paperRows) readRandomly(c *policyCounts) func(written int) {
	return func(written int) {
		read := func(n int) {
			for range n {
				r.get(paperKey(r.keys[r.rng.IntN(written)]))
			}
		}
		read(r.scale.reads / 2)
		r.during(c, func() { read(r.scale.reads) })
	}
}

// ycsbRecords is a tablet of YCSB's records: ten cells of a hundred bytes.
type ycsbRecords struct {
	*policyTablet
	records int
}

// recordKey returns the key of a record. The hash is injective.
func recordKey(record int) []byte {
	return fmt.Appendf(nil, "user%020d", uint64(record)*0x9e3779b97f4a7c15)
}

func recordField(i int) string { return fmt.Sprintf("field%d", i) }

func (y *ycsbRecords) insert() {
	var cells []table.Mutation
	for i := range 10 {
		cells = append(cells, randomCell(y.rng, recordField(i), 100))
	}
	y.apply(recordKey(y.records), true, cells...)
	y.records++
}

func (y *ycsbRecords) update(record int) {
	y.apply(recordKey(record), false, randomCell(y.rng, recordField(y.rng.IntN(10)), 100))
}

// mixed runs a workload: the given number of measured operations, after half as many others.
func (y *ycsbRecords) mixed(c *policyCounts, ops int, do func()) {
	run := func(n int) {
		for range n {
			do()
			y.settle()
		}
	}
	run(ops / 2)
	y.during(c, func() { run(ops) })
}

func (y *ycsbRecords) chance(percent int) bool { return y.rng.IntN(100) < percent }

// measureUpdates loads n records, and updates each on average twice as often as it has fields.
// ycsb-a runs all the time, the other workloads about every four memtables. Writes and space of the
// second half count for all of them.
func measureUpdates(y *ycsbRecords, n int, scale policyScale, counts map[string]*policyCounts) {
	for y.records < n {
		y.insert()
		y.settle()
	}
	y.flushNow()
	zipf := zipfKeys(y.rng, n)
	hot := func() int { return int(zipf()) }
	get := func(record int) { y.get(recordKey(record)) }
	a, b, f := counts["ycsb-a"], counts["ycsb-b"], counts["ycsb-f"]
	y.phase([]*policyCounts{a, b, f}, func() {
		updates := 20 * n
		for i := range updates {
			y.sampled = i >= updates/2
			y.during(a, func() { y.update(hot()); get(hot()) })
			if !y.settle() || !y.chance(25) {
				continue
			}
			y.mixed(b, scale.reads, func() {
				if get(hot()); y.chance(5) {
					y.update(hot())
				}
			})
			y.mixed(counts["ycsb-c"], scale.reads, func() { get(hot()) })
			y.mixed(f, scale.reads, func() {
				record := hot()
				if get(record); y.chance(50) {
					y.update(record)
				}
			})
		}
	})
}

// measureInserts inserts n records. From a quarter of them on, ycsb-d and ycsb-e read about every
// four memtables. Writes and space count for both.
func measureInserts(y *ycsbRecords, n int, scale policyScale, counts map[string]*policyCounts) {
	zipf := zipfKeys(y.rng, n)
	hot := func() int {
		for {
			if record := int(zipf()); record < y.records {
				return record
			}
		}
	}
	weights := make([]float64, n/4)
	for rank := range weights {
		weights[rank] = zipfWeight(rank)
	}
	age := drawn(y.rng, weights)
	d, e := counts["ycsb-d"], counts["ycsb-e"]
	y.phase([]*policyCounts{d, e}, func() {
		for y.records < n {
			y.insert()
			y.sampled = y.records >= n/4
			if !y.settle() || !y.sampled || !y.chance(25) {
				continue
			}
			y.mixed(d, scale.reads, func() {
				if y.chance(5) {
					y.insert()
				} else {
					y.get(recordKey(y.records - 1 - int(age())))
				}
			})
			y.mixed(e, scale.reads/10, func() {
				if y.chance(5) {
					y.insert()
				} else {
					y.scan(recordKey(hot()), 1+y.rng.IntN(100))
				}
			})
		}
	})
}

// report reports the cost of a workload.
func (c *policyCounts) report(b *testing.B, workload string) {
	b.ReportMetric(0, "ns/op")
	if c.samples > 0 {
		b.ReportMetric(c.written/c.samples, "written/put")
		b.ReportMetric(c.space/c.samples, "space")
		b.ReportMetric(c.spaceMost, "space-most")
	}
	if c.reads > 0 {
		b.ReportMetric(c.readFiles/c.reads, "files/read")
	}
	if c.scans > 0 {
		b.ReportMetric(c.scanFiles/c.scans, "files/scan")
	}
	if c.rows > 0 && workload != "random-read-mem" { // its files are loaded into memory some time after they are written
		b.ReportMetric(c.blocks/c.rows, "blocks/row")
		b.ReportMetric(c.disk/c.rowBytes, "disk/byte")
	}
}

// amplifications are the costs by which policies are compared: of rows written in order and at
// random, of updates and of inserts.
func amplifications(of map[string]*policyCounts) map[string]*amplification {
	get := func(write, scan, read string) *amplification {
		w, s, r := of[write], of[scan], of[read]
		a := &amplification{write: w.written / w.samples, files: w.files / w.samples, point: r.readFiles / r.reads,
			space: w.space / w.samples, spaceMost: w.spaceMost}
		if s != nil {
			a.files = s.scanFiles / s.scans
		}
		return a
	}
	return map[string]*amplification{
		"in order":  get("sequential-write", "scan", "sequential-read"),
		"at random": get("random-write", "", "random-read"),
		"updates":   get("ycsb-a", "", "ycsb-c"),
		"inserts":   get("ycsb-d", "ycsb-e", "ycsb-d"),
	}
}

// undominated fails if another policy is better than pickMerge in every respect, for any of the
// workloads' writes.
func undominated(t testing.TB, counts map[string]map[string]*policyCounts) {
	ours := amplifications(counts["stele"])
	for _, p := range mergePolicies() {
		if counts[p.name] == nil {
			continue // not selected
		}
		for what, a := range amplifications(counts[p.name]) {
			t.Logf("%s, %s: written %.2f, %.1f files, %.2f of a row, space %.2f, %.2f at most", p.name, what, a.write, a.files, a.point, a.space, a.spaceMost)
			if a.beats(ours[what]) {
				t.Errorf("%s: %s is better than pickMerge", what, p.name)
			}
		}
	}
}

// TestMergePoliciesMeasured is TestMergePolicies with tablets, at a small scale. It uses counts,
// which do not depend on the speed of the machine.
func TestMergePoliciesMeasured(t *testing.T) {
	t.Parallel()
	counts := map[string]map[string]*policyCounts{}
	for _, p := range mergePolicies() {
		counts[p.name] = measurePolicy(t, p, policiesTested)
	}
	undominated(t, counts)
	for what, ours := range amplifications(counts["stele"]) {
		if one, none := amplifications(counts["one file"])[what], amplifications(counts["none"])[what]; one.files != 1 || none.files < 2*ours.files {
			t.Errorf("%s: %.2f files where all are merged at once, %.2f where none are", what, one.files, none.files)
		}
		if ours.files >= 6 {
			t.Errorf("%s: %.2f files, of fewer than 6", what, ours.files)
		}
	}
}

// BenchmarkMergePolicies measures the cost of each policy for each workload: see
// scripts/bench-policies.sh.
func BenchmarkMergePolicies(b *testing.B) {
	counts := map[string]map[string]*policyCounts{}
	for _, p := range mergePolicies() {
		b.Run(p.name, func(b *testing.B) {
			c := measurePolicy(b, p, policiesMeasured)
			counts[p.name] = c
			for _, w := range policyWorkloads {
				b.Run(w, func(b *testing.B) { c[w].report(b, w) })
			}
		})
	}
	if counts["stele"] != nil { // otherwise not selected
		undominated(b, counts)
	}
}
