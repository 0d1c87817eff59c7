package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
)

// testLocator returns the locator of a client that makes no calls.
func testLocator(max int) *locator {
	c := newClient(context.Background(), Config{LocationsMax: max}.withDefaults(), []string{"a"})
	c.locator.mode.Store(modeMetadata)
	return c.locator
}

// Invariant C6: a cached location is the last one returned for each row, unless it was discarded
// since.
func TestKnownAgainstModel(t *testing.T) {
	const rows = 64
	row := func(i int) []byte { return []byte{byte(i)} }
	seed := testseed.New(t)
	for run := range soakRuns(200) {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		l := testLocator(0)
		tab := l.table("t")
		l.setID(tab, 16)
		var cached [rows]string // by row; empty: unknown
		for step := range 60 {
			from, at := rng.IntN(rows), 0
			if rng.IntN(4) == 0 { // a call to from's server was misrouted
				if loc := l.lookUp("t", row(from)); loc != nil {
					l.invalidate(destination{loc.node, loc}, broken, nil)
					for i := range rows {
						if loc.has(row(i)) {
							cached[i] = ""
						}
					}
				}
			} else {
				var run []*location
				start := row(from)
				for at = from; at < rows && len(run) < 1+rng.IntN(5); {
					end := min(at+rng.IntN(12), rows-1)
					server := fmt.Sprint("s", rng.IntN(3), "-", step)
					if rng.IntN(3) == 0 {
						server = "always" // the former tablet, if its end is the same
					}
					loc := &location{of: tab, start: start, end: row(end), server: server, node: l.pool.node(server)}
					if end == rows-1 {
						loc.end = nil
					}
					for ; at <= end; at++ {
						cached[at] = server
					}
					run, start = append(run, loc), successor(loc.end)
				}
				l.insert(tab, 16, run)
			}
			k := tab.known.Load()
			for i, loc := range k.all {
				if i > 0 && (k.all[i-1].end == nil || string(k.all[i-1].end) >= string(loc.start)) {
					t.Fatalf("run %d, step %d: location %d overlaps the one before", run, step, i)
				}
			}
			for i := range rows {
				// Locations that a run only touched may be discarded; nothing else may be cached.
				if loc := k.at(row(i)); loc != nil && (loc.server != cached[i] || !loc.has(row(i))) {
					t.Fatalf("run %d, step %d: row %d is cached at %s, want %q", run, step, i, loc.server, cached[i])
				} else if loc == nil && i >= from && i < at {
					t.Fatalf("run %d, step %d: row %d is not cached", run, step, i)
				}
			}
			if l.mu.count != len(k.all) {
				t.Fatalf("%d locations, counted %d", len(k.all), l.mu.count)
			}
		}
	}
}

// fillLocator gives the table name n tablets, which end at key(0) and on, with ten digits.
func (l *locator) fillLocator(name string, n int) {
	tab := l.table(name)
	l.setID(tab, 16)
	var start []byte
	for i := 0; i < n; i += lookupRows {
		var run []*location
		for j := i; j < min(i+lookupRows, n); j++ {
			loc := &location{of: tab, start: start, end: fmt.Appendf(nil, "%010d", j), node: l.pool.node(fmt.Sprint("s", j%10))}
			run, start = append(run, loc), successor(loc.end)
		}
		l.insert(tab, 16, run)
	}
}

func TestLocationsAreBounded(t *testing.T) {
	l := testLocator(1000)
	used := func(i int) ([]byte, string) { return fmt.Appendf(nil, "%010d", i), fmt.Sprint("s", i%10) }
	l.fillLocator("a", 900)
	for i := range 500 {
		row, server := used(i)
		if p, ok := l.cached("a", row); !ok || p.node.addr != server {
			t.Fatalf("row %s: %v, %v", row, p, ok)
		}
	}
	l.fillLocator("b", 300)
	for i := range 500 { // used locations stay
		row, server := used(i)
		if p, ok := l.cached("a", row); !ok || p.node.addr != server {
			t.Fatalf("row %s after an eviction: %v, %v", row, p, ok)
		}
	}
	for i := range 20 {
		l.fillLocator(fmt.Sprint("c", i), 700)
		for i := range 700 {
			row, _ := used(i)
			l.cached(fmt.Sprint("c", i), row)
		}
		if l.mu.count > 1000 {
			t.Fatalf("%d locations, want at most 1000", l.mu.count)
		}
	}
}

// A cached row is located without a lock and without an allocation.
func TestKnownRowsCostNothing(t *testing.T) {
	l := testLocator(0)
	l.fillLocator("t", 10_000)
	row, ctx := []byte("0000004711"), context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if p, err := l.locate(ctx, "t", row); err != nil || p.node.addr != "s1" {
			t.Fatalf("%v, %v", p, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLocate(b *testing.B) {
	for _, n := range []int{1, 100, 20_000} {
		b.Run(fmt.Sprint("tablets=", n), func(b *testing.B) {
			l := testLocator(0)
			l.fillLocator("t", n)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ctx, row := context.Background(), make([]byte, 10)
				for i := 0; pb.Next(); i++ {
					copy(row, fmt.Appendf(row[:0], "%010d", i%n))
					if _, err := l.locate(ctx, "t", row); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// A batch goes to each server once, and only misrouted rows are sent again.
func TestBatchesGoToTheirServers(t *testing.T) {
	f := newFakeCluster(newFake(t), 5)
	f.layout("t", []string{key(9), key(19), key(29)}, 2, 3, 4, 2)
	tb := f.open(Config{}).Table("t")
	var ms []*RowMutation
	var rows []string
	for i := range 40 {
		i = i * 7 % 40
		ms, rows = append(ms, put(key(i))), append(rows, key(i))
	}
	ms[3] = NewRowMutation(rows[3]).SetAt("nosuch:a", 1, nil)
	ms[4] = NewRowMutation("")
	apply := func(want ...string) {
		t.Helper()
		err := tb.ApplyAll(t.Context(), ms)
		batch, _ := err.(*BatchError)
		if batch == nil || batch.Failed != 2 || batch.Errs[3] == nil || batch.Errs[4] == nil {
			t.Errorf("apply all: %v", err)
		}
		got := slices.DeleteFunc(f.traced(), func(line string) bool { return line[:4] == "scan" || line[:4] == "root" })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("apply all took %q, want %q", got, want)
		}
	}
	check(t, tb.Apply(t.Context(), put("a"))) // locates all four tablets
	f.traced()
	apply("mutate_rows t@2", "mutate_rows t@3", "mutate_rows t@4")
	f.move("t", key(15), 2)
	apply("mutate_rows t@2", "mutate_rows t@2", "mutate_rows t@3", "mutate_rows t@4")
	found, err := tb.GetAll(t.Context(), rows)
	check(t, err)
	for i, row := range found {
		if i != 3 && i != 4 && (row == nil || string(row.Key) != rows[i]) {
			t.Errorf("row %d is %v, want %s", i, row, rows[i])
		}
	}
	f.traced()
	f.move("t", key(15), 4)
	if _, err = tb.GetAll(t.Context(), rows[10:]); err != nil {
		t.Error(err)
	}
	samples, err := tb.SampleRowKeys(t.Context())
	want := []RowSample{{Key: []byte(key(9)), Offset: 10}, {Key: []byte(key(19)), Offset: 20}, {Key: []byte(key(29)), Offset: 30}, {Key: []byte{}, Offset: 40}}
	if err != nil || !slices.EqualFunc(samples, want, func(a, b RowSample) bool { return string(a.Key) == string(b.Key) && a.Offset == b.Offset }) {
		t.Errorf("samples %v, %v", samples, err)
	}
}

// The next server's first batch is fetched before the caller has read the last row of the current
// one.
func TestScanReadsAheadAcrossServers(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	f.layout("t", []string{key(9), key(19), key(29)}, 1, 1, 2, 3)
	c := f.open(Config{})
	f.fill(c, 40)
	f.traced()
	before := f.count(f.executed, api.MethodScanOpen)
	s := c.Table("t").Scan(t.Context(), BatchRows(20))
	defer s.Close()
	if !s.Next() {
		t.Fatal(s.Err())
	}
	for deadline := time.Now().Add(10 * time.Second); f.count(f.executed, api.MethodScanOpen) < before+3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // for requests that the scan makes by itself
	}
	wantTrace(t, f, "one row", scanMetadata+"@1", "scan_open t@1", "scan_open t@2")
	keys := []string{string(s.Row().Key)}
	for s.Next() {
		keys = append(keys, string(s.Row().Key))
	}
	if s.Err() != nil || len(keys) != 40 || !slices.IsSorted(keys) {
		t.Errorf("%d rows, %v", len(keys), s.Err())
	}
	wantTrace(t, f, "the rest", "scan_open t@3")
	wantKeys(t, "limit over three servers", c.Table("t").Scan(t.Context(), Limit(25), BatchRows(7)), 0, 25)
	wantKeys(t, "limit at the end of a part", c.Table("t").Scan(t.Context(), Limit(20)), 0, 20)
	f.traced()
	wantKeys(t, "range that ends with a part", c.Table("t").Scan(t.Context(), End(key(19)+"\x00")), 0, 20)
	wantTrace(t, f, "a range that ends with a part", "scan_open t@1")
}

// The node that the client was given may leave the cluster for good.
func TestFirstNodeRemoved(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	f.layout("t", []string{"m"}, 2, 3)
	c := f.open(Config{})
	check(t, c.Table("t").Apply(t.Context(), put("a")))
	f.move("METADATA", "\x00", 1)
	f.kill(0)
	if _, err := c.Tables().List(t.Context()); err != nil {
		t.Errorf("tables: %v", err)
	}
	f.move("t", "a", 3)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := c.Table("t").Get(t.Context(), fmt.Sprint("a", i)); err != nil {
				t.Errorf("get: %v", err)
			}
		})
	}
	wg.Wait()
}
