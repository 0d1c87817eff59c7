package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/tombstone"
)

// clearRows clears the rows of a range in all tablets that have any.
func clearRows(ctx context.Context, s *Server, start, end []byte) error {
	for {
		ref, err := refOfRow(s, start)
		if err != nil {
			return err
		}
		_, last, err := s.Clear(ctx, ref, start, end)
		if err != nil {
			return err
		}
		if start = append(slices.Clone(last), 0); len(last) == 0 || len(end) > 0 && string(start) >= string(end) {
			return nil
		}
	}
}

// refOfRow returns the name of the tablet with a row.
func refOfRow(s *Server, row []byte) (Ref, error) {
	t, err := s.For(nil).tabletNow(testTable, row)
	if err != nil {
		return Ref{}, err
	}
	return t.ref(), nil
}

// clear clears rows of the model.
func (m *model) clear(start, end []byte) {
	for row := range m.rows {
		if row >= string(start) && (len(end) == 0 || row < string(end)) {
			delete(m.rows, row)
		}
	}
}

// scanned returns all rows of a scan.
func scanned(t testing.TB, s *Server, reversed bool) (rows []string) {
	t.Helper()
	if _, err := s.Scan(context.Background(), testTable, Range{Reversed: reversed}, nil, func(key []byte, _ []table.Cell) error {
		rows = append(rows, string(key))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// clearedOf returns the number of range tombstones and files of the only tablet.
func (e *env) clearedOf() (tombstones, files int) {
	e.t.Helper()
	m, err := e.meta.Load(context.Background(), 1, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return len(m.Cleared), len(filesOf(m))
}

// T13: a clear hides what was written before it, in files and memtables, from reads of all kinds, and nothing that is
// written after it. A crash does not bring the rows back from the commit log, and a major compaction removes them and the tombstone.
func TestClear(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f:versions=3", "g:group=second")
	put := func(from, to int, value string) {
		for i := from; i < to; i++ {
			e.mustApply(fmt.Sprintf("r%02d", i), table.Set("f", []byte("q"), 7, []byte(value)), table.Set("g", nil, 7, []byte(value)))
		}
	}
	put(0, 30, "in files")
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	put(10, 20, "in memory")
	if err := clearRows(ctx, e.Server, []byte("r05"), []byte("r25")); err != nil {
		t.Fatal(err)
	}
	put(12, 14, "after")
	want := []string{"r00", "r01", "r02", "r03", "r04", "r12", "r13", "r25", "r26", "r27", "r28", "r29"}
	check := func(when string) {
		t.Helper()
		if got := scanned(t, e.Server, false); !slices.Equal(got, want) {
			t.Errorf("%s: rows %v", when, got)
		}
		back := scanned(t, e.Server, true)
		if slices.Reverse(back); !slices.Equal(back, want) {
			t.Errorf("%s: rows of a reversed scan %v", when, back)
		}
		if got := e.read("r06", nil); got != nil {
			t.Errorf("%s: a cleared row: %q", when, got)
		}
		if got := e.read("r12", nil); !slices.Equal(got, []string{"f:q@7=after", "g:@7=after"}) {
			t.Errorf("%s: a row written later: %q", when, got)
		}
	}
	check("after the clear")
	e.crash()
	e.open()
	check("after a crash")
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	check("after a minor compaction")
	if n, _ := e.clearedOf(); n != 1 {
		t.Errorf("%d tombstones before a major compaction, want 1", n)
	}
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	check("after a major compaction")
	if n, files := e.clearedOf(); n != 0 || files != 2 {
		t.Errorf("%d tombstones and %d files after a major compaction, want 0 and 2", n, files)
	}
	m, err := e.meta.Load(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range filesOf(m) {
		if f.Entries != int64(len(want)) {
			t.Errorf("a file has %d entries after a major compaction, want %d", f.Entries, len(want))
		}
	}
}

// A clear of a whole tablet removes its files at once, and with them the space that they take.
func TestClearAllRemovesFiles(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", "g:group=second")
	for i := range 20 {
		e.mustApply(fmt.Sprintf("r%02d", i), table.Set("f", nil, 1, make([]byte, 1000)), table.Set("g", nil, 1, nil))
	}
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	if err := clearRows(ctx, e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n, files := e.clearedOf(); n != 1 || files != 0 {
		t.Errorf("%d tombstones and %d files, want 1 and 0", n, files)
	}
	e.deletions.Run(ctx)
	if blobs := e.store.Blobs(); len(blobs) > 2 { // commit logs
		t.Errorf("%d blobs after all rows were cleared", len(blobs))
	}
	if got := scanned(t, e.Server, false); got != nil {
		t.Errorf("rows %v", got)
	}
	e.mustApply("r", table.Set("f", nil, 1, nil))
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"r"}) {
		t.Errorf("rows %v after a write", got)
	}
}

// clear makes a random clear.
func (rr *randomRun) clear() {
	var start, end []byte
	if rr.r.IntN(3) > 0 {
		start = []byte(rr.row())
	}
	if rr.r.IntN(3) > 0 {
		end = []byte(rr.row())
	}
	if len(end) > 0 && string(start) >= string(end) {
		return
	}
	if err := clearRows(context.Background(), rr.Server, start, end); err != nil {
		rr.t.Fatal(err)
	}
	rr.m.clear(start, end)
}

// splitOrMerge splits a tablet, or merges two.
func (rr *randomRun) splitOrMerge() {
	ctx := context.Background()
	at := []byte(rr.row())
	ref, err := refOfRow(rr.Server, at)
	if err != nil {
		rr.t.Fatal(err)
	}
	if ref.End != string(at) {
		_, _, err = rr.Split(ctx, ref, at)
	} else if upper, lookErr := refOfRow(rr.Server, append(at, 0)); lookErr != nil {
		err = lookErr
	} else {
		err = rr.Merge(ctx, ref, upper)
	}
	if err != nil {
		rr.t.Fatal(err)
	}
}

// T13, I1, I3: random clears of ranges among writes, deletions, compactions, splits, merges, restarts and power cuts agree with the model.
func TestClearModel(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(6)) {
		rr := newRandomRun(t, seed+run)
		rr.r = rand.New(rand.NewPCG(seed+run, 8))
		for range 2000 {
			switch k := rr.r.IntN(100); {
			case k < 3:
				rr.clear()
			case k < 4:
				rr.splitOrMerge()
			case k < 5:
				rr.checkAll()
			default:
				rr.step()
			}
		}
		rr.checkAll()
		rr.close()
	}
}

// T13: a major compaction keeps a tombstone whose entries were still in a memtable when it began.
func TestTombstoneOutlivesMemtable(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 1, nil))
	tablet := e.served.all()[0]
	tablet.minor.mu.Lock() // the memtable is not written out
	if err := clearRows(ctx, e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := tablet.merge.major(ctx); err != nil {
		t.Fatal(err)
	}
	tablet.minor.mu.Unlock()
	if n, _ := e.clearedOf(); n != 1 {
		t.Errorf("%d tombstones while an entry is in memory", n)
	}
	e.crash()
	e.open()
	if got := scanned(t, e.Server, false); got != nil {
		t.Errorf("rows %v are back from the log", got)
	}
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	if n, files := e.clearedOf(); n != 0 || files != 0 {
		t.Errorf("%d tombstones and %d files", n, files)
	}
}

// I2: no write comes between what a clear deletes and when it takes effect: a counter that was read before could be written after.
func TestClearFencesWrites(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 1, nil))
	saved, done := 0, make(chan error, 1)
	e.meta.setFaults(func() (before, after error) {
		if saved++; saved > 1 {
			return nil, nil
		}
		rm := &table.RowMutation{Row: []byte("b"), Mutations: []table.Mutation{table.Set("f", nil, 1, nil)}}
		if e.ApplyNow(testTable, rm, func(int64, error) {}) {
			t.Error("a write begins while the tombstone is being saved")
		}
		go e.Apply(testTable, rm, func(_ int64, err error) { done <- err })
		return nil, nil
	}, nil)
	if err := clearRows(context.Background(), e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"b"}) {
		t.Errorf("rows %v", got)
	}
}

// A clear whose METADATA change has an unknown outcome repeats it until it is known.
func TestClearOutcomeUnknown(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 1, nil))
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
	if err := clearRows(context.Background(), e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, e.Server, false); got != nil || tries < 2 {
		t.Errorf("rows %v after %d tries", got, tries)
	}
}

// A clear that removes files ends a compaction of them: its output would bring them back.
func TestClearInterruptsCompaction(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	if _, err := applySync(s.Server, "row001", setCell("row001")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
	}
	b := &heldBlobs{Blobs: s.cfg.Blobs, armed: make(chan struct{}), called: make(chan struct{})}
	s.useBlobs(b)
	close(b.armed)
	compacted := make(chan error, 1)
	go func() { compacted <- s.Compact(ctx, "t", true) }()
	<-b.called
	if err := clearRows(ctx, s.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-compacted; err != nil {
		t.Errorf("the major compaction: %v", err)
	}
	if m, err := s.cfg.Metadata.Load(ctx, 1, nil); err != nil || len(filesOf(m)) > 0 {
		t.Errorf("%d files, %v", len(filesOf(m)), err)
	}
}

// I1: a server that loads a tablet gives its writes higher sequence numbers than all tombstones, which would hide them.
func TestWritesAboveLoadedTombstone(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	s := *e.schema
	s.Name, s.ID = "u", 2
	m := &Meta{ID: 2, Table: 2, LastMajor: e.clock.now(), Cleared: tombstone.List{{Seq: 1000}}}
	e.meta.create(m)
	if err := e.Load(context.Background(), Load{Meta: m, Schema: &s}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	e.Apply("u", &table.RowMutation{Row: []byte("a"), Mutations: []table.Mutation{table.Set("f", nil, 1, nil)}}, func(_ int64, err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rows := e.rowsOf("u"); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}

// The number of tombstones is bounded. At the bound a clear is rejected, and a major compaction removes them.
func TestClearsBounded(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	tablet := e.served.all()[0]
	tablet.minor.mu.Lock() // no major compaction begins
	var err error
	n := 0
	for ; err == nil && n < 10*clearsMax; n++ {
		row := fmt.Appendf(nil, "r%04d", 2*n)
		e.mustApply("written between", table.Set("f", nil, 1, nil)) // otherwise they join
		err = clearRows(ctx, e.Server, row, append(row, 0))
	}
	if over := (*api.OverloadedError)(nil); !errors.As(err, &over) || over.RetryAfter == 0 {
		t.Fatalf("after %d clears: %v", n, err)
	}
	if err := clearRows(ctx, e.Server, nil, nil); err != nil {
		t.Errorf("a clear of all rows, which needs one tombstone: %v", err)
	}
	for range clearsMax {
		row := fmt.Appendf(nil, "r%04d", 2*n)
		e.mustApply("written between", table.Set("f", nil, 1, nil))
		n++
		if err = clearRows(ctx, e.Server, row, append(row, 0)); err != nil {
			break
		}
	}
	tablet.minor.mu.Unlock()
	for due := true; due; due = tablet.meta.manyClears() {
		e.merges.queue.Add(tablet)
		runtime.Gosched()
	}
	if err := clearRows(ctx, e.Server, []byte("x"), []byte("y")); err != nil {
		t.Errorf("after the major compaction: %v", err)
	}
}

// The parts of a tombstone follow the bounds of tablets, also where METADATA has only the lower row of a split.
func TestTombstonesWithinTablet(t *testing.T) {
	m := &Meta{ID: 1, Table: 1, End: []byte("x"), Cleared: tombstone.List{{Start: []byte("c"), End: []byte("g"), Seq: 5}, {Start: []byte("p"), Seq: 6}}}
	again, err := DecodeMeta(EncodeMeta(m))
	if err != nil || !reflect.DeepEqual(again.Cleared, m.Cleared) {
		t.Errorf("decoded: %+v, %v", again, err)
	}
	if err := m.Narrow([]byte("e")); err != nil {
		t.Fatal(err)
	}
	if got := m.Cleared; len(got) != 2 || string(got[0].Start) != "e\x00" || string(got[0].End) != "g" {
		t.Errorf("narrowed: %+v", got)
	}
	m.Clip([]byte("f"), []byte("q"))
	if got := m.Cleared; len(got) != 2 || string(got[0].Start) != "f\x00" || string(got[1].End) != "q\x00" {
		t.Errorf("clipped: %+v", got)
	}
}
