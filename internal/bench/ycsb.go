package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// operation is a kind of YCSB operation.
type operation int

const (
	opRead operation = iota
	opUpdate
	opInsert
	opScan
	opReadModifyWrite
	operations
)

func (o operation) String() string {
	return [...]string{"read", "update", "insert", "scan", "read-modify-write"}[o]
}

// A blend is the mix of operations of a YCSB workload, as fractions of 1.
type blend struct {
	parts  [operations]float64
	latest bool // reads favor the latest inserts instead of hashed ranks
}

// blends are YCSB's core workloads, workloada to workloadf.
var blends = map[Workload]*blend{
	YCSBA: {parts: [operations]float64{opRead: 0.5, opUpdate: 0.5}},
	YCSBB: {parts: [operations]float64{opRead: 0.95, opUpdate: 0.05}},
	YCSBC: {parts: [operations]float64{opRead: 1}},
	YCSBD: {parts: [operations]float64{opRead: 0.95, opInsert: 0.05}, latest: true},
	YCSBE: {parts: [operations]float64{opScan: 0.95, opInsert: 0.05}},
	YCSBF: {parts: [operations]float64{opRead: 0.5, opReadModifyWrite: 0.5}},
}

// scanMax is the maximum number of records of a scan. Lengths from one are uniformly distributed.
const scanMax = 100

// ycsb returns the workload's mix, or nil if it is not a YCSB workload.
func (w Workload) ycsb() *blend { return blends[w] }

// prepareYCSB loads the records of a workload and returns its measured part.
func (b *Bench) prepareYCSB(ctx context.Context, w Workload) (*stage, error) {
	slot, scanned := &b.mixed, w.ycsb().parts[opScan] > 0
	if scanned {
		slot = &b.scanned // without the inserts of other workloads
	}
	if *slot == nil {
		r, err := b.createRecords(ctx, scanned)
		if err != nil {
			return nil, err
		}
		*slot = r
	}
	r := *slot
	if !r.written {
		if err := b.load(ctx, w, r); err != nil {
			return nil, err
		}
		if err := b.compact(ctx, w, r.table.Name()); err != nil {
			return nil, err
		}
		r.written = true
	}
	m := newMixed(r, w.ycsb(), b.cfg)
	return &stage{run: m.run, progress: &progress{&m.done, m.operations}, rows: int64(r.loaded)}, nil
}

func (b *Bench) createRecords(ctx context.Context, scanned bool) (*records, error) {
	spec, err := b.cfg.family(false)
	if err != nil {
		return nil, err
	}
	suffix := "-ycsb"
	if scanned {
		suffix += "-scan"
	}
	tablets := uint64(b.tabletsOf(b.cfg.Rows))
	var splits []string
	for i := uint64(1); i < tablets; i++ {
		splits = append(splits, string(appendHashKey(nil, math.MaxUint64/tablets*i)))
	}
	t, err := b.createTable(ctx, suffix, splits, spec)
	if err != nil {
		return nil, err
	}
	r := newRecords(t, mix(uint64(len(b.tables))), uint64(b.cfg.Rows), scanned)
	r.stamps.active = make([]activeStamp, b.cfg.Clients)
	return r, nil
}

// load writes the initial records.
func (b *Bench) load(ctx context.Context, w Workload, r *records) error {
	l := &loading{records: r, ranges: newRanges(r.loaded, loaders, loadBatch)}
	b.phase(fmt.Sprintf("%s: loading the records", w), &progress{&l.done, int64(r.loaded)})
	if err := l.run(ctx); err != nil {
		return fmt.Errorf("load the records: %w", err)
	}
	return nil
}

// mutation makes m write a whole record.
func (r *records) mutation(m *client.RowMutation, record uint64) {
	m.Reset(string(appendRecordKey(nil, record)))
	all := make([]byte, recordFields*fieldBytes)
	for f := range recordFields {
		value := all[f*fieldBytes:][:fieldBytes]
		r.fillField(value, record, f, 0)
		m.Add(table.Set(family, fieldNames[f], table.ServerTimestamp, value))
	}
}

// scanFrom scans n records from one on and reports whether the result is correct: all loaded
// records are there, only inserted records are between them, and only the end of the table shortens
// it.
func (r *records) scanFrom(ctx context.Context, from uint64, n int) (good bool, err error) {
	hash := hashOf(from)
	next, _ := slices.BinarySearch(r.sorted, hash)
	s := r.table.Scan(ctx, client.Start(string(appendHashKey(nil, hash))), client.Limit(int64(n)))
	defer s.Close()
	got, good := 0, true
	last := hash
	for ; s.Next(); got++ {
		row := s.Row()
		hash, record, ok := parseRecordKey(row.Key)
		switch {
		case !ok, got > 0 && hash <= last:
			good = false
		case record < r.loaded:
			if next == len(r.sorted) || r.sorted[next] != hash {
				good = false
			}
			next++
		case record >= r.loaded+r.inserted.issued.Load():
			good = false
		}
		good = good && r.good(row, record, &[recordFields]uint32{})
		last = hash
	}
	if err := s.Err(); err != nil {
		return false, err
	}
	return good && (got == n || got < n && next == len(r.sorted)), nil
}
