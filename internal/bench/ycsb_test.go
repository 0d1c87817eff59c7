package bench

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestYCSB: every workload does its mix of operations and reads correct data, on one tablet and on
// several.
func TestYCSB(t *testing.T) {
	const ops = 600
	for _, tablets := range []int{1, 5} {
		cfg := Config{Rows: 500, Operations: ops, Clients: 8, Workloads: YCSBWorkloads(), Tablets: tablets}
		c := startNode(t, cfg)
		got := run(t, c, cfg)
		for _, w := range YCSBWorkloads() {
			r := got[w]
			if r.Ops != ops || r.Bad != 0 || r.Rows != 500 || r.PerSecond <= 0 || r.PaperRatio != 0 || r.Latency.P50 <= 0 || r.Tablets != tablets {
				t.Errorf("%s: %+v", w, r)
			}
			kinds := map[string]Kind{}
			sum := int64(0)
			for _, k := range r.Kinds {
				kinds[k.Name] = k
				sum += k.Ops
			}
			if sum != r.Ops {
				t.Errorf("%s: kinds sum to %d of %d", w, sum, r.Ops)
			}
			for o, part := range blends[w].parts {
				k := kinds[operation(o).String()]
				if got := float64(k.Ops) / ops; math.Abs(got-part) > 0.1 || (part > 0) != (k.Latency.P50 > 0) {
					t.Errorf("%s: %.3f are %v, want %.3f; %+v", w, got, operation(o), part, k)
				}
			}
		}
		if schemas, err := c.Tables().List(context.Background()); err != nil || len(schemas) != 0 {
			t.Errorf("%d tables left, %v", len(schemas), err)
		}
	}
}

// TestBadRecordsAreCounted: BN4 and BN5, for a missing record, another record's value, lost updates,
// and scans that miss a record or find an unknown one.
func TestBadRecordsAreCounted(t *testing.T) {
	const rows = 100
	conn := startNode(t, Config{})
	for _, c := range []struct {
		what   string
		before Workload // the workload before which data is damaged
		spoil  func(b *Bench) *client.RowMutation
	}{
		{"missing", YCSBC, func(b *Bench) *client.RowMutation {
			return client.NewRowMutation(string(appendRecordKey(nil, 17))).DeleteRow()
		}},
		{"another's field", YCSBC, func(b *Bench) *client.RowMutation { return field(b.mixed, 17, 3, 18, 0) }},
		{"a stamp never issued", YCSBC, func(b *Bench) *client.RowMutation { return field(b.mixed, 17, 3, 17, 1e6) }},
		{"a lost update", YCSBB, func(b *Bench) *client.RowMutation {
			for record := range uint64(rows) {
				if least := b.mixed.floorsOf(record); least[3] > 0 {
					return field(b.mixed, record, 3, record, 0)
				}
			}
			t.Fatal("no update has raised a floor")
			return nil
		}},
		{"a scan's missing", YCSBE, func(b *Bench) *client.RowMutation {
			return client.NewRowMutation(string(appendRecordKey(nil, 17))).DeleteRow()
		}},
		{"a scan's too many", YCSBE, func(b *Bench) *client.RowMutation {
			m := &client.RowMutation{}
			b.scanned.mutation(m, 1<<40)
			return m
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			cfg := Config{Rows: rows, Operations: 2000, Clients: 4, Workloads: []Workload{c.before}}
			if c.before == YCSBE {
				cfg.Operations = 300
			}
			if c.before == YCSBB {
				cfg.Workloads = append(cfg.Workloads, YCSBA) // which raises floors
			}
			var b *Bench
			cfg.Measuring = func(w Workload) func() {
				if w == c.before {
					r := b.mixed
					if w == YCSBE {
						r = b.scanned
					}
					if err := r.table.Apply(context.Background(), c.spoil(b)); err != nil {
						t.Error(err)
					}
				}
				return func() {}
			}
			var err error
			if b, err = New(conn, cfg); err != nil {
				t.Fatal(err)
			}
			b.cfg.quiet = 1
			err = b.Run(context.Background(), func(r Result) {
				if spoilt := r.Workload == c.before; spoilt != (r.Bad > 0) || r.Bad == r.Ops {
					t.Errorf("%s has %d bad of %d", r.Workload, r.Bad, r.Ops)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestScanFrom: a scan is wrong exactly if it misses a record, even if it has the right number of
// rows.
func TestScanFrom(t *testing.T) {
	const rows, missing = 200, 17
	ctx := context.Background()
	cfg := Config{Rows: rows, Operations: 1, Clients: 1, Workloads: []Workload{YCSBE}}
	var b *Bench
	cfg.Measuring = func(Workload) func() {
		r := b.scanned
		if err := r.table.Apply(ctx, client.NewRowMutation(string(appendRecordKey(nil, missing))).DeleteRow()); err != nil {
			t.Error(err)
		}
		at := slices.Index(r.sorted, hashOf(missing))
		for first, hash := range r.sorted {
			for _, n := range []int{1, 2, 5} {
				good, err := r.scanFrom(ctx, recordOfHash(hash), n)
				if want := at < first || at >= first+n; err != nil || good != want {
					t.Errorf("%d records from the %dth on, of which the %dth is missing: %v, %v", n, first, at, good, err)
				}
			}
		}
		return func() {}
	}
	var err error
	if b, err = New(startNode(t, cfg), cfg); err != nil {
		t.Fatal(err)
	}
	b.cfg.quiet = 1
	if err := b.Run(ctx, func(Result) {}); err != nil {
		t.Error(err)
	}
}

// field writes to a record's field the value of another record or stamp.
func field(r *records, record uint64, at int, from uint64, stamp uint32) *client.RowMutation {
	value := make([]byte, fieldBytes)
	r.fillField(value, from, at, stamp)
	m := client.NewRowMutation(string(appendRecordKey(nil, record)))
	return m.Add(table.Set(family, fieldNames[at], table.ServerTimestamp, value))
}
