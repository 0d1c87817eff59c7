package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// partOf writes rows to a part, which the caller commits.
func partOf(t testing.TB, s *Server, id PartID, rows ...table.RowMutation) *BulkPart {
	t.Helper()
	p, err := s.For(nil).BeginBulk(context.Background(), testTable, &rows[0], id)
	if err == nil {
		err = p.Add(context.Background(), s.For(nil), rows...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bulk commits rows as a part. The clock advances until the rate of parts permits it.
func (e *env) bulk(id byte, rows ...table.RowMutation) error {
	e.t.Helper()
	return e.commitPart(partOf(e.t, e.Server, PartID{id}, rows...))
}

func (e *env) commitPart(p *BulkPart) error {
	for {
		err := p.Commit(context.Background(), e.For(nil))
		var over *api.OverloadedError
		if !errors.As(err, &over) || !strings.Contains(over.Reason, "too fast") {
			return err
		}
		e.clock.micros.Add(over.RetryAfter.Microseconds() + 1)
	}
}

// committed reports whether a part was committed to the tablet of a row.
func committed(t testing.TB, s *Server, row string, id byte) bool {
	t.Helper()
	is, err := s.For(nil).CommittedBulk(context.Background(), testTable, []byte(row), PartID{id})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func rowMutation(row string, ms ...table.Mutation) table.RowMutation {
	return table.RowMutation{Row: []byte(row), Mutations: ms}
}

// T19: the rows of a part are later than all writes before its commit, and earlier than those after it, in every kind of read and after
// restarts and compactions.
func TestBulkOrder(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", "g:group=second")
	q := []byte("q")
	set := func(at int64, value string) table.Mutation { return table.Set("f", q, at, []byte(value)) }
	e.mustApply("a", set(7, "old, in a file"), table.Set("g", q, 7, []byte("stays")))
	e.mustApply("b", set(7, "old"), set(6, "old"), table.Set("g", q, 7, nil))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	e.mustApply("b", table.DeleteRow())
	e.mustApply("c", set(7, "old, in memory"), set(9, "newer timestamp"))
	e.mustApply("d", table.DeleteRow())
	if err := e.bulk(1,
		rowMutation("a", set(7, "bulk")), rowMutation("b", set(7, "bulk"), table.Set("g", q, 5, []byte("bulk"))), rowMutation("c", set(7, "bulk")),
		rowMutation("d", set(7, "bulk")), rowMutation("e", set(8, "bulk"), set(7, "bulk")), rowMutation("f", set(7, "bulk")),
	); err != nil {
		t.Fatal(err)
	}
	e.mustApply("e", table.DeleteColumnRange("f", q, 8, table.Before(9)))
	e.mustApply("f", set(7, "later"))
	want := []string{
		"a f:q@7=bulk g:q@7=stays", "b f:q@7=bulk g:q@5=bulk", "c f:q@9=newer timestamp f:q@7=bulk", "d f:q@7=bulk", "e f:q@7=bulk", "f f:q@7=later",
	}
	check := func(when string) {
		t.Helper()
		var rows []string
		if _, err := e.Scan(ctx, testTable, Range{}, nil, func(key []byte, cells []table.Cell) error {
			rows = append(rows, string(key)+" "+strings.Join(cellStrings(cells), " "))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rows, want) {
			t.Errorf("%s: %q", when, rows)
		}
		back := scanned(t, e.Server, true)
		if slices.Reverse(back); !slices.Equal(back, []string{"a", "b", "c", "d", "e", "f"}) {
			t.Errorf("%s: rows of a reversed scan %v", when, back)
		}
		for range 4 { // the last ones may be from the scan cache
			for _, row := range want {
				if got := strings.Join(append([]string{row[:1]}, e.read(row[:1], nil)...), " "); got != row {
					t.Errorf("%s: read %q, want %q", when, got, row)
				}
			}
		}
	}
	check("after the commit")
	e.crash()
	checkOffline(t, e)
	e.open()
	check("after a crash")
	if !committed(t, e.Server, "a", 1) || committed(t, e.Server, "a", 2) {
		t.Error("the part is not known as committed after a crash, or another one is")
	}
	for _, major := range []bool{false, true} {
		if err := e.Compact(ctx, testTable, major); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("after a compaction, major: %v", major))
	}
	e.close()
	checkOffline(t, e)
	e.open()
	check("after a restart")
}

// bulk commits a random part to the model's table, within one tablet.
func (rr *randomRun) bulk() {
	ref, err := refOfRow(rr.Server, []byte(rr.row()))
	if err != nil {
		rr.t.Fatal(err)
	}
	var rows []table.RowMutation
	for i := range 6 {
		row := fmt.Sprintf("row\x00%d", i)
		if of, err := refOfRow(rr.Server, []byte(row)); err != nil || of != ref || rr.r.IntN(2) == 0 {
			continue
		}
		var ms []table.Mutation
		for range 1 + rr.r.IntN(5) {
			rr.count++
			at := rr.clock.micros.Load() - rr.r.Int64N(10)*30_000_000
			ms = append(ms, table.Set(rr.plainFamily(), rr.qualifier(), at, fmt.Appendf(nil, "v%d", rr.count)))
		}
		slices.SortFunc(ms, compareSets)
		ms = slices.CompactFunc(ms, func(a, b table.Mutation) bool { return compareSets(a, b) == 0 })
		rows = append(rows, rowMutation(row, ms...))
	}
	if len(rows) == 0 {
		return
	}
	rr.count++
	if err := rr.commitPart(partOf(rr.t, rr.Server, PartID{byte(rr.count), byte(rr.count >> 8)}, rows...)); err != nil {
		rr.t.Fatal(err)
	}
	for i := range rows {
		rr.m.apply(string(rows[i].Row), 0, rows[i].Mutations)
	}
}

func compareSets(a, b table.Mutation) int {
	return table.CompareCells(&table.Cell{Family: a.Family, Qualifier: a.Qualifier, Timestamp: a.Timestamp}, &table.Cell{Family: b.Family, Qualifier: b.Qualifier, Timestamp: b.Timestamp})
}

// T19, I1, I3: random parts among writes, deletions, clears, compactions, splits, merges, restarts and power cuts agree with the model.
func TestBulkModel(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(6)) {
		rr := newRandomRun(t, seed+run)
		rr.r = rand.New(rand.NewPCG(seed+run, 9))
		for range 2000 {
			switch k := rr.r.IntN(100); {
			case k < 5:
				rr.bulk()
			case k < 6:
				rr.splitOrMerge()
			case k < 7:
				rr.clear()
			case k < 8:
				rr.checkAll()
			default:
				rr.step()
			}
		}
		rr.checkAll()
		rr.close()
		checkOffline(t, rr.env)
	}
}

// A part that breaks a rule ends with an error that names it, and leaves nothing behind.
func TestBulkRejects(t *testing.T) {
	e := newEnv(t, Config{}, "f", "sum:aggregate=sum", "w")
	e.mustApply("m", table.Set("f", nil, 1, nil))
	ref, err := refOfRow(e.Server, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Split(context.Background(), ref, []byte("m")); err != nil {
		t.Fatal(err)
	}
	blobs := len(e.store.Blobs())
	cell := func(at int64) table.Mutation { return table.Set("f", nil, at, nil) }
	first := rowMutation("a", cell(1))
	limit := func(err error) bool { return errors.Is(err, table.ErrLimit) }
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for name, c := range map[string]struct {
		rows []table.RowMutation
		want func(error) bool
	}{
		"rows in descending order":     {[]table.RowMutation{rowMutation("b", cell(1)), rowMutation("a", cell(1))}, is(api.ErrBulkOrder)},
		"a cell twice":                 {[]table.RowMutation{rowMutation("a", cell(1)), rowMutation("a", cell(1))}, is(api.ErrBulkOrder)},
		"timestamps ascending":         {[]table.RowMutation{rowMutation("a", cell(1), cell(2))}, is(api.ErrBulkOrder)},
		"families in descending order": {[]table.RowMutation{rowMutation("a", table.Set("w", nil, 1, nil), cell(1))}, is(api.ErrBulkOrder)},
		"a row of another tablet":      {[]table.RowMutation{rowMutation("a", cell(1)), rowMutation("n", cell(1))}, is(api.ErrBulkExpired)},
		"a deletion":                   {[]table.RowMutation{rowMutation("a", table.DeleteRow())}, is(table.ErrBadOp)},
		"no timestamp":                 {[]table.RowMutation{rowMutation("a", cell(table.ServerTimestamp))}, is(table.ErrBadTimestamp)},
		"no family":                    {[]table.RowMutation{rowMutation("a", table.Set("x", nil, 1, nil))}, is(table.ErrNoFamily)},
		"an aggregate family":          {[]table.RowMutation{rowMutation("a", table.Set("sum", nil, 1, table.Integer(1)))}, is(table.ErrAggregate)},
		"an operand":                   {[]table.RowMutation{rowMutation("a", table.Add("sum", nil, 1, 1))}, is(table.ErrBadOp)},
		"a token":                      {[]table.RowMutation{{Row: []byte("a"), Mutations: []table.Mutation{cell(1)}, Token: &table.Token{ID: make([]byte, 16), Start: e.clock.now().UnixMicro()}}}, is(table.ErrBadToken)},
		"no row key":                   {[]table.RowMutation{rowMutation("", cell(1))}, is(table.ErrBadRowKey)},
		"no mutations":                 {[]table.RowMutation{rowMutation("a")}, is(table.ErrNoMutations)},
		"a large value":                {[]table.RowMutation{rowMutation("a", table.Set("f", nil, 1, make([]byte, 101<<20)))}, limit},
		"a large part": {[]table.RowMutation{rowMutation("a", table.Set("f", nil, 1, make([]byte, 90<<20))), rowMutation("b", table.Set("f", nil, 1, make([]byte, 90<<20))),
			rowMutation("c", table.Set("f", nil, 1, make([]byte, 90<<20)))}, limit},
	} {
		p, err := e.For(nil).BeginBulk(context.Background(), testTable, &first, PartID{1})
		if err == nil {
			err = p.Add(context.Background(), e.For(nil), c.rows...)
		}
		if !c.want(err) || !p.Ended() || p.charged != 0 {
			t.Errorf("%s: %v, ended: %v, %d bytes of memory charged", name, err, p.Ended(), p.charged)
		}
		if err := p.Commit(context.Background(), e.For(nil)); !errors.Is(err, api.ErrBulkExpired) {
			t.Errorf("%s: commit after it: %v", name, err)
		}
	}
	p, err := e.For(nil).BeginBulk(context.Background(), testTable, &first, PartID{1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(context.Background(), e.For(nil)); !errors.Is(err, table.ErrNoMutations) {
		t.Errorf("a part without rows: %v", err)
	}
	e.deletions.Run(context.Background())
	if n := len(e.store.Blobs()); n != blobs {
		t.Errorf("%d blobs, want %d", n, blobs)
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"m"}) {
		t.Errorf("rows %v", got)
	}
}

// A table with a change stream accepts no parts: the stream would lack them. One that had a stream loses its change files, since a later
// stream must not seem to be complete.
func TestBulkAndChangeStream(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", streamed)
	e.mustApply("a", table.Set("f", nil, 1, nil))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	row := rowMutation("a", table.Set("f", nil, 1, nil))
	if _, err := e.For(nil).BeginBulk(ctx, testTable, &row, PartID{1}); !errors.Is(err, api.ErrBulkRefused) || !strings.Contains(err.Error(), "--bulk") {
		t.Fatalf("with a change stream: %v", err)
	}
	plain := *e.schema
	plain.ChangeRetention = 0
	if err := e.SetSchema(&plain); err != nil {
		t.Fatal(err)
	}
	if err := e.bulk(1, rowMutation("b", table.Set("f", nil, 1, nil))); err != nil {
		t.Fatal(err)
	}
	m, err := e.meta.Load(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Changes != nil {
		t.Error("change files of the former stream are kept")
	}
	if err := e.SetSchema(e.schema); err != nil {
		t.Fatal(err)
	}
	if seq, _ := m.knownChanges().Floor(nil, nil); seq < m.Redo {
		t.Errorf("the new stream begins at %d, before the part with %d", seq, m.Redo)
	}
}

// A part ends when its tablet is split, merged or unloaded, or its schema changes. It is committed as a whole or not at all, and each tablet
// that has its rows afterwards knows which.
func TestBulkAndTabletChanges(t *testing.T) {
	ctx := context.Background()
	cells := []table.RowMutation{rowMutation("b", table.Set("f", nil, 5, nil)), rowMutation("x", table.Set("f", nil, 5, nil))}
	more := rowMutation("y", table.Set("f", nil, 5, nil))
	for name, c := range map[string]struct {
		change func(e *env) error
		want   error
	}{
		"split": {func(e *env) error {
			_, _, err := e.Split(ctx, lastTablet, []byte("m"))
			return err
		}, api.ErrNotServing},
		"unload": {func(e *env) error { return e.Unload(ctx, lastTablet) }, api.ErrNotServing},
		"drop":   {func(e *env) error { return e.DropTable(testTable) }, api.ErrNotServing},
		"schema": {func(e *env) error {
			s, err := e.schema.Apply(table.FamilySpec{Name: "other"})
			if err != nil {
				return err
			}
			return e.SetSchema(s)
		}, api.ErrBulkExpired},
	} {
		for _, complete := range []bool{false, true} {
			e := newEnv(t, Config{}, "f")
			e.mustApply("a", table.Set("f", nil, 1, nil))
			e.mustApply("z", table.Set("f", nil, 1, nil))
			p := partOf(t, e.Server, PartID{1}, cells...)
			if complete {
				if err := p.finish(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.change(e); err != nil {
				t.Fatal(name, err)
			}
			var err error
			if complete {
				err = p.Commit(ctx, e.For(nil))
			} else {
				err = p.Add(ctx, e.For(nil), more)
			}
			if !errors.Is(err, c.want) || !p.Ended() {
				t.Errorf("%s: %v, want %v; ended: %v", name, err, c.want, p.Ended())
			}
			if name != "unload" && name != "drop" {
				if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a", "z"}) {
					t.Errorf("%s: rows %v", name, got)
				}
				if committed(t, e.Server, "b", 1) || committed(t, e.Server, "x", 1) {
					t.Errorf("%s: the part is known as committed", name)
				}
			}
		}
	}
	e := newEnv(t, Config{}, "f")
	if err := e.bulk(1, cells...); err != nil {
		t.Fatal(err)
	}
	lower, _, err := e.Split(ctx, lastTablet, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	if !committed(t, e.Server, "b", 1) || !committed(t, e.Server, "x", 1) {
		t.Error("a half of a split does not know the part")
	}
	if err := e.bulk(2, cells[0]); err != nil {
		t.Fatal(err)
	}
	if err := e.bulk(3, cells[1]); err != nil {
		t.Fatal(err)
	}
	if err := e.Merge(ctx, lower, lastTablet); err != nil {
		t.Fatal(err)
	}
	for id := byte(1); id <= 3; id++ {
		if !committed(t, e.Server, "b", id) {
			t.Errorf("the merged tablet does not know part %d", id)
		}
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"b", "x"}) {
		t.Errorf("rows %v", got)
	}
	e.clock.micros.Add(partsKept.Microseconds() + 1)
	if err := e.bulk(4, cells[0]); err != nil {
		t.Fatal(err)
	}
	if m, err := e.meta.Load(ctx, 1, nil); err != nil || len(m.Parts) != 1 {
		t.Errorf("%d parts are kept, want 1: %v", len(m.Parts), err)
	}
}

// The number of committed parts that METADATA names is bounded.
func TestBulkPartsBounded(t *testing.T) {
	e := newEnv(t, Config{FilesMerge: 30}, "f")
	tablet := e.served.all()[0]
	tablet.meta.mu.Lock()
	m := cloneMeta(tablet.meta.current)
	for range partsMax {
		m.Parts = append(m.Parts, CommittedPart{Time: e.clock.now()})
	}
	tablet.meta.set(m)
	tablet.meta.mu.Unlock()
	p := partOf(t, e.Server, PartID{1}, rowMutation("a", table.Set("f", nil, 5, nil)))
	if err := p.Commit(context.Background(), e.For(nil)); !errors.Is(err, api.ErrOverloaded) || p.Ended() {
		t.Fatalf("%v, ended: %v", err, p.Ended())
	}
	e.clock.micros.Add(partsKept.Microseconds() + 1)
	if err := p.Commit(context.Background(), e.For(nil)); err != nil || !committed(t, e.Server, "a", 1) {
		t.Fatal(err)
	}
}

// A commit whose METADATA change has an unknown outcome repeats it until it is known. If the server loses the tablet, the outcome is
// reported as unknown, and the next server knows it.
func TestBulkOutcomeUnknown(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	tries := 0
	e.meta.setFaults(func() (before, after error) {
		switch tries++; tries {
		case 1:
			return errDisconnected, nil
		case 2:
			return nil, errDisconnected
		}
		return nil, nil
	}, nil)
	if err := e.bulk(1, rowMutation("a", table.Set("f", nil, 5, nil))); err != nil || tries < 2 {
		t.Fatalf("after %d tries: %v", tries, err)
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a"}) {
		t.Errorf("rows %v", got)
	}

	for _, made := range []bool{false, true} {
		c := newCluster(t, Config{}, 2, "f:")
		s, other := c.servers[0], c.servers[1]
		p := partOf(t, s.Server, PartID{1}, rowMutation("row001", table.Set("f", nil, 5, nil)))
		if made {
			c.meta.disconnectAfter(s.name, 1)
		} else {
			c.meta.disconnectAfter(s.name, 0)
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			c.meta.assign(metaKey(1, nil), other.name)
			c.meta.disconnectAfter(s.name, 100)
		}()
		err := p.Commit(context.Background(), s.For(nil))
		var unknown *UnknownOutcomeError
		if !errors.As(err, &unknown) || errors.Is(err, ErrMetaLost) || !p.Ended() {
			t.Fatalf("made: %v: %v", made, err)
		}
		m, err := other.cfg.Metadata.Load(context.Background(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Load(context.Background(), Load{Meta: m, Schema: c.schema}); err != nil {
			t.Fatal(err)
		}
		if is := committed(t, other.Server, "row001", 1); is != made || len(scanned(t, other.Server, false)) == 1 != made {
			t.Errorf("committed: %v, rows %v, want %v", is, scanned(t, other.Server, false), made)
		}
	}
}

// I2, I3: while parts are committed, no reader sees a part of a row, or an older state after a newer one, and no write is lost.
func TestBulkBesideWrites(t *testing.T) {
	e := newEnv(t, Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, FilesMerge: 3, CompactionBytesPerSecond: -1}, "f", "g:group=second")
	const rounds = 40
	state := func(n int) []table.Mutation {
		value := fmt.Appendf(nil, "%06d", n)
		return []table.Mutation{table.Set("f", nil, 5, value), table.Set("g", nil, 5, value)}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { // reads row "both", which only parts write, one after the other
		last := ""
		for {
			select {
			case <-done:
				return
			default:
			}
			got := strings.Join(e.read("both", nil), " ")
			if len(got) > 0 && (got[len(got)-6:] < last || got != fmt.Sprintf("f:@5=%s g:@5=%[1]s", got[len(got)-6:])) {
				t.Errorf("read %q after %q", got, last)
				return
			}
			last = got[max(0, len(got)-6):]
		}
	})
	running.Go(func() { // a counter, which parts do not touch
		for n := 0; ; n++ {
			select {
			case <-done:
				if got := e.read("own", nil); !slices.Equal(got, []string{fmt.Sprintf("f:@5=%06d", n-1)}) {
					t.Errorf("own row: %q after %d writes", got, n)
				}
				return
			default:
			}
			if _, err := e.apply("own", state(n)[0]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range rounds {
		// A later write of the same cells wins over a part that was committed, an earlier one does not.
		e.mustApply("mixed", state(10*n)...)
		if err := e.bulk(byte(n), rowMutation("both", state(n)...), rowMutation("mixed", state(10*n+1)...)); err != nil {
			t.Fatal(err)
		}
		if got := e.read("mixed", nil); got[0] != fmt.Sprintf("f:@5=%06d", 10*n+1) {
			t.Fatalf("read %q", got)
		}
		e.mustApply("mixed", state(10*n+2)...)
		if got := e.read("mixed", nil); got[1] != fmt.Sprintf("g:@5=%06d", 10*n+2) {
			t.Fatalf("read %q", got)
		}
	}
	close(done)
	running.Wait()
	e.crash()
	e.open()
	if got := e.read("both", nil); !slices.Equal(got, []string{fmt.Sprintf("f:@5=%06d", rounds-1), fmt.Sprintf("g:@5=%06d", rounds-1)}) {
		t.Errorf("after a crash: %q", got)
	}
}

// I2: no write comes between what is before a part and the part.
func TestBulkFencesWrites(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	saved, done := 0, make(chan error, 1)
	e.meta.setFaults(func() (before, after error) {
		if saved++; saved > 1 {
			return nil, nil
		}
		rm := rowMutation("a", table.Set("f", nil, 5, []byte("later")))
		if e.ApplyNow(testTable, &rm, func(int64, error) {}) {
			t.Error("a write begins while the part is being saved")
		}
		go e.Apply(testTable, &rm, func(_ int64, err error) { done <- err })
		return nil, nil
	}, nil)
	if err := e.bulk(1, rowMutation("a", table.Set("f", nil, 5, []byte("bulk")))); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := e.read("a", nil); !slices.Equal(got, []string{"f:@5=later"}) {
		t.Errorf("read %q", got)
	}
}

// I1: the redo point of a part skips no write that was acknowledged after the tablet was written out, and before its writes were fenced.
func TestBulkRedoPoint(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 5, nil))
	saved := 0
	e.meta.setFaults(func() (before, after error) {
		if saved++; saved == 1 { // by the minor compaction before the fence
			e.mustApply("b", table.Set("f", nil, 5, nil))
		}
		return nil, nil
	}, nil)
	if err := e.bulk(1, rowMutation("c", table.Set("f", nil, 5, nil))); err != nil {
		t.Fatal(err)
	}
	e.crash()
	e.open()
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a", "b", "c"}) || saved != 3 {
		t.Errorf("rows %v after %d changes of METADATA", got, saved)
	}
}

// I1, I3: whenever the power fails or a disk operation fails, a part that was acknowledged is there, and of another one either all rows or none.
func TestBulkCrashPoints(t *testing.T) {
	for fault := range faults {
		for n := range int64(40) {
			e := newEnv(t, Config{}, "f", "g:group=second")
			e.mustApply("a", table.Set("f", nil, 5, []byte("old")))
			rows := []table.RowMutation{rowMutation("a", table.Set("f", nil, 5, []byte("bulk")), table.Set("g", nil, 5, []byte("bulk"))), rowMutation("b", table.Set("f", nil, 5, nil))}
			var cut atomic.Bool
			fault.arm(e.fs, n, &cut)
			e.meta.setFaults(func() (before, after error) {
				if cut.Load() {
					before = ErrMetaLost
				}
				return before, nil
			}, nil)
			p, err := e.For(nil).BeginBulk(context.Background(), testTable, &rows[0], PartID{1})
			if err == nil {
				err = p.Add(context.Background(), e.For(nil), rows...)
			}
			if err == nil {
				err = p.Commit(context.Background(), e.For(nil))
			}
			e.crash()
			e.open()
			is := committed(t, e.Server, "a", 1)
			if err == nil && !is {
				t.Fatalf("fault %d at operation %d: an acknowledged part is lost", fault, n)
			}
			want := []string{"f:@5=old"}
			if is {
				want = []string{"f:@5=bulk", "g:@5=bulk"}
			}
			if got := e.read("a", nil); !slices.Equal(got, want) || len(e.read("b", nil)) > 0 != is {
				t.Fatalf("fault %d at operation %d, committed %v: read %q and %q", fault, n, is, got, e.read("b", nil))
			}
			checkOffline(t, e)
			e.close()
		}
	}
}

// Committed parts survive encoding, and metadata of earlier versions has none.
func TestPartsInMeta(t *testing.T) {
	at := time.UnixMicro(1_000_000)
	m := &Meta{ID: 1, Table: 1, LastMajor: at, Parts: []CommittedPart{{PartID{1}, at}, {PartID{2}, at.Add(time.Second)}}}
	again, err := DecodeMeta(EncodeMeta(m))
	if err != nil || !reflect.DeepEqual(again.Parts, m.Parts) || again.Changes != nil {
		t.Errorf("decoded: %+v, %v", again, err)
	}
	m.Parts = nil
	if again, err = DecodeMeta(EncodeMeta(m)); err != nil || again.Parts != nil {
		t.Errorf("decoded: %+v, %v", again, err)
	}
}

// A source of a bulk file has the file's sequence number in its keys, also where a search begins within a column.
func TestNumberedSource(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	if err := e.bulk(1, rowMutation("a", table.Set("f", nil, 6, nil), table.Set("f", nil, 5, nil))); err != nil {
		t.Fatal(err)
	}
	v, err := e.served.all()[0].views.acquireFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer v.release()
	f := v.groups[0].files[0]
	sources, gate := rewriteSources([]*file{f}, 1<<20, nil)
	defer gate.close()
	at := func(ts int64, seq uint64) []byte {
		key := ikey.AppendFamily(ikey.AppendRow(nil, []byte("a")), "f", e.schema.Family("f").ID)
		return ikey.AppendCell(ikey.AppendColumn(key, nil), ts, seq)
	}
	seq := f.meta.MinSeq
	for _, c := range []struct {
		key  []byte
		want []byte
	}{
		{at(6, seq+1), at(6, seq)}, {at(6, seq), at(6, seq)}, {at(6, seq-1), at(5, seq)}, {at(6, 0), at(5, seq)}, {at(5, seq-1), nil},
	} {
		ok := sources[0].SeekGE(c.key)
		if ok != (c.want != nil) || ok && string(sources[0].Key()) != string(c.want) {
			t.Errorf("search for %x: found %v at %x, want %x", c.key, ok, sources[0].Key(), c.want)
		}
	}
}
