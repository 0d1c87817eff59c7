package tablet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/tombstone"
)

// position is a token of a change stream.
type position struct {
	start, end []byte
	next       uint64
}

// follower reads a change stream by positions, and rebuilds the table from it.
type follower struct {
	positions []position
	m         *model
	last      map[string]uint64 // sequence number of each row's last change
	changes   int
	clears    int
	problems  []string
}

// newFollower returns a follower that begins with the table's first change.
func newFollower() *follower {
	return &follower{positions: []position{{next: 1}}, m: newModel(map[string]rule{"three": {versions: 3}}), last: map[string]uint64{}}
}

// step reads a page at one position, and reports whether it had changes or divided the position.
func (f *follower) step(route func(row string) *Server, r *rand.Rand) (progress bool, err error) {
	i := r.IntN(len(f.positions))
	at := f.positions[i]
	p, err := route(string(at.start)+"\x00").For(nil).ReadChanges(context.Background(), testTable,
		ChangesRequest{Start: at.start, End: at.end, Next: at.next, Bytes: int64(1 + r.IntN(20_000)), Wait: time.Duration(r.IntN(2)) * time.Millisecond, Clears: true})
	if err != nil {
		if !errors.Is(err, api.ErrUnavailable) && !expected(err) {
			f.problems = append(f.problems, fmt.Sprintf("read changes at %q %d: %v", at.start, at.next, err))
		}
		return false, err
	}
	defer p.Release()
	for _, c := range p.Changes {
		if c.Cleared != nil {
			f.clear(&c, &at, p.End)
			continue
		}
		row := string(c.Row)
		if c.Seq <= f.last[row] || c.Seq < at.next || !inRange(at.start, at.end, c.Row) {
			f.problems = append(f.problems, fmt.Sprintf("row %q: change %d after %d at position %d", row, c.Seq, f.last[row], at.next))
		}
		f.last[row] = c.Seq
		f.m.apply(row, 0, c.Mutations)
		f.changes++
	}
	if p.Next < at.next {
		f.problems = append(f.problems, fmt.Sprintf("position %d is followed by %d", at.next, p.Next))
	}
	f.positions[i] = position{at.start, p.End, p.Next}
	divided := compareEnds(p.End, at.end) < 0
	if divided {
		f.positions = append(f.positions, position{p.End, at.end, at.next})
	}
	return divided || p.Next > at.next, nil
}

// clear makes a clear, which is of rows at < row <= end. The rows that were changed before get its number: a later change must have a larger one, and
// another clear, too.
func (f *follower) clear(c *changes.Change, at *position, end []byte) {
	rows := c.Cleared
	if clipped := (tombstone.Range{Start: rows.Start, End: rows.End}).Clip(at.start, end); string(clipped.Start) != string(rows.Start) || string(clipped.End) != string(rows.End) {
		f.problems = append(f.problems, fmt.Sprintf("clear of rows %q to %q, above %q up to %q", rows.Start, rows.End, at.start, end))
	}
	for row, last := range f.last {
		if row < string(rows.Start) || len(rows.End) > 0 && row >= string(rows.End) {
			continue
		}
		if c.Seq <= last || c.Seq < at.next {
			f.problems = append(f.problems, fmt.Sprintf("row %q: clear %d after %d at position %d", row, c.Seq, last, at.next))
		}
		f.last[row] = c.Seq
	}
	f.m.clear(rows.Start, rows.End)
	f.clears++
}

// drain reads until there are no more changes.
func (f *follower) drain(t *testing.T, route func(row string) *Server) {
	r := rand.New(rand.NewPCG(1, 1))
	for idle := 0; idle < 20*len(f.positions); {
		progress, err := f.step(route, r)
		if err != nil {
			t.Fatalf("read changes: %v", err)
		}
		if idle++; progress {
			idle = 0
		}
	}
}

// check compares the rebuilt table with its rows.
func (f *follower) check(fail func(format string, args ...any), want map[string][]string) {
	if len(f.problems) > 0 {
		fail("%d problems, such as %s", len(f.problems), f.problems[0])
	}
	got := map[string][]string{}
	for row := range f.m.rows {
		if cells := cellStrings(f.m.read(row, 0)); len(cells) > 0 {
			got[row] = cells
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		for row := range want {
			if !slices.Equal(got[row], want[row]) {
				fail("row %q by its changes: %.300q, want %.300q", row, got[row], want[row])
			}
		}
		fail("%d rows by their changes, want %d", len(got), len(want))
	}
}

// TestChangesAfterCrash (CS1, CS2): power cuts and disk errors at any operation lose no change and repeat none.
func TestChangesAfterCrash(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(20)) {
		changesAfterCrash(t, seed+run)
	}
}

func changesAfterCrash(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 21))
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, FilesMerge: 3, CompactionBytesPerSecond: -1}
	e := newEnv(t, cfg, "all", "three:versions=3,group=g2", streamed)
	f, w := newFollower(), &crashWorker{r: r, acked: newModel(map[string]rule{"three": {versions: 3}}), clears: true}
	route := func(string) *Server { return e.Server }
	for range 4 {
		fault := diskFault(r.IntN(int(faults)))
		fault.arm(e.fs, 1+r.Int64N(120), new(atomic.Bool))
		for w.run(e.Server, 5) && r.IntN(12) > 0 {
			_, _ = f.step(route, r)
			if r.IntN(8) == 0 {
				_, _, _ = e.Split(context.Background(), lastTablet, []byte(w.row()))
			}
		}
		_, _ = f.step(route, r)
		e.crash()
		e.fs.SetHook(nil)
		e.open()
		if err := w.check(e); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkOffline(t, e)
	}
	fail := func(format string, args ...any) { t.Errorf("seed %d: %s", seed, fmt.Sprintf(format, args...)) }
	again := newFollower()
	f.drain(t, route)
	again.drain(t, route)
	f.check(fail, e.rowsOf(testTable))
	again.check(fail, e.rowsOf(testTable))
}

// TestChangesRetention (CS3, CS4): change files older than the retention are dropped and deleted, and a position in them is out of range.
func TestChangesRetention(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", streamed)
	read := func(r ChangesRequest) (*ChangesPage, error) { return e.For(nil).ReadChanges(ctx, testTable, r) }
	e.mustApply("a", setCell("1"))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	files := e.Served().find(lastTablet).meta.current.Changes.Files
	if len(files) != 1 || !blobExists(e, files[0].Handle) {
		t.Fatalf("change files %v", files)
	}
	first, err := read(ChangesRequest{Next: 1})
	if err != nil || len(first.Changes) != 1 {
		t.Fatalf("changes %v, %v", first, err)
	}
	e.clock.micros.Add((25 * time.Hour).Microseconds())
	e.queueExpiredChanges()
	e.mustApply("b", setCell("2"))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	e.deletions.Run(ctx)
	if blobExists(e, files[0].Handle) {
		t.Error("an expired change file is there")
	}
	var old *api.OutOfRangeError
	if _, err := read(ChangesRequest{Next: 1}); !errors.As(err, &old) || old.Oldest != first.Changes[0].Time+1 {
		t.Errorf("position 1: %v", err)
	}
	if _, err := read(ChangesRequest{Since: first.Changes[0].Time}); !errors.Is(err, api.ErrOutOfRange) {
		t.Errorf("since the first change: %v", err)
	}
	for name, r := range map[string]ChangesRequest{"after the first": {Next: first.Next}, "by time": {Since: first.Changes[0].Time + 1}} {
		if p, err := read(r); err != nil || len(p.Changes) != 1 || string(p.Changes[0].Row) != "b" || p.Watermark <= p.Changes[0].Time-1 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if p, err := read(ChangesRequest{}); err != nil || len(p.Changes) != 0 || p.Next <= first.Next {
		t.Errorf("from now on: %+v, %v", p, err)
	}
	e.clock.micros.Add((23 * time.Hour).Microseconds()) // a file is rewritten without the changes that are too old
	e.mustApply("d", setCell("4"))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	e.clock.micros.Add((2 * time.Hour).Microseconds())
	e.mustApply("e", setCell(string(make([]byte, 200))))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	if _, err := read(ChangesRequest{Next: first.Next}); !errors.Is(err, api.ErrOutOfRange) {
		t.Errorf("position of a change that was left out: %v", err)
	}
	if set := e.Served().find(lastTablet).meta.current.Changes; len(set.Files) != 1 || set.Files[0].Records != 2 {
		t.Errorf("change files %+v", set)
	}
	plain := e.schema.Clone()
	plain.ChangeRetention = 0
	if err := e.SetSchema(plain); err != nil {
		t.Fatal(err)
	}
	if _, err := read(ChangesRequest{Next: first.Next}); !errors.Is(err, api.ErrNoChangeStream) {
		t.Errorf("of a table without a stream: %v", err)
	}
	e.mustApply("c", setCell("3"))
	if err := e.SetSchema(e.schema); err != nil {
		t.Fatal(err)
	}
	if _, err := read(ChangesRequest{Next: first.Next}); !errors.Is(err, api.ErrOutOfRange) {
		t.Errorf("of a stream that was interrupted: %v", err)
	}
}

func blobExists(e *env, h blobfs.Handle) bool {
	r, err := e.store.OpenBlob(context.Background(), h)
	if err == nil {
		r.Close()
	}
	return err == nil
}

// TestChangesWait: a read waits for a change, and no longer than it may.
func TestChangesWait(t *testing.T) {
	e := newEnv(t, Config{}, "f", streamed)
	p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Wait: time.Millisecond})
	if err != nil || len(p.Changes) != 0 || p.Watermark == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	done := make(chan error)
	go func() {
		p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: p.Next, Wait: time.Hour})
		if err == nil && (len(p.Changes) != 1 || string(p.Changes[0].Mutations[0].Value) != "v") {
			err = fmt.Errorf("changes %+v", p.Changes)
		}
		done <- err
	}()
	e.mustApply("row", table.Set("f", []byte("q"), table.ServerTimestamp, []byte("v")))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPositionAfterEntryWithoutRecord (CS6): a write that began without a change stream is visible at each position after it, also if the stream is turned on
// and the position is read, or the row with it, while the write is applied.
func TestPositionAfterEntryWithoutRecord(t *testing.T) {
	position := func(e *env) (uint64, error) {
		p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{})
		if err != nil {
			return 0, err
		}
		return p.Next, nil
	}
	ofRow := func(e *env) (uint64, error) {
		var at api.RowPosition
		value := ""
		err := e.For(nil).Positioned(&at).ReadRow(t.Context(), testTable, []byte("row"), nil, func(_ []byte, cells []table.Cell) error {
			value = string(cells[0].Value)
			return nil
		})
		if value != "late" {
			t.Errorf("position %d with value %q", at.Next, value)
		}
		return at.Next, err
	}
	for _, read := range []func(e *env) (uint64, error){position, ofRow} {
		e := newEnv(t, Config{}, "f:versions=1", streamed)
		e.mustApply("row", setCell("before"))
		tablet := e.tabletOfTest()
		plain := e.schema.Clone()
		plain.ChangeRetention = 0
		body, ops, _, err := appendBody(nil, newSchema(plain, nil), &table.RowMutation{Row: []byte("row"), Mutations: []table.Mutation{setCell("late")}})
		if err != nil {
			t.Fatal(err)
		}
		first := tablet.views.applied.Load() + 1
		// The first half of memWriter.apply.
		if err := tablet.writer.add(body, first, ops, e.clock.now().Add(time.Minute).UnixMicro()); err != nil {
			t.Fatal(err)
		}
		got := make(chan uint64, 1)
		go func() {
			next, err := read(e)
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		select {
		case next := <-got:
			t.Errorf("position %d, while entry %d is not visible", next, first)
		case <-time.After(100 * time.Millisecond):
			tablet.views.applied.Store(first)
			tablet.views.changed.Wake()
			if next := <-got; next != first+1 {
				t.Errorf("position %d, want %d", next, first+1)
			}
		}
	}
}

// TestRowPosition: a row is read with the position of its state, while it is written: the state is that after the changes before the position.
func TestRowPosition(t *testing.T) {
	e := newEnv(t, Config{MemtableBytes: 64 << 10}, "f:versions=1", streamed)
	const writes = 2000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range writes {
			e.mustApply([]string{"other", "row"}[i%2], table.Set("f", []byte("q"), table.ServerTimestamp, fmt.Appendf(nil, "%d%0100d", i, 0)))
		}
	}()
	states := map[uint64]string{}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		var at api.RowPosition
		value := ""
		err := e.For(nil).Positioned(&at).ReadRow(t.Context(), testTable, []byte("row"), nil, func(_ []byte, cells []table.Cell) error {
			value = string(cells[0].Value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		states[at.Next] = value
	}
	changed := map[uint64]string{}
	for next := uint64(1); ; {
		p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: next})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Changes {
			if string(c.Row) == "row" {
				changed[c.Seq] = string(c.Mutations[0].Value)
			}
		}
		if len(p.Changes) == 0 {
			break
		}
		next = p.Next
	}
	for at, got := range states {
		last, want := uint64(0), ""
		for seq, value := range changed {
			if seq < at && seq > last {
				last, want = seq, value
			}
		}
		if got != want {
			t.Errorf("position %d: the row is of change %.10s, want %.10s", at, got, want)
		}
	}
	if len(states) == 0 || len(changed) != writes/2 {
		t.Errorf("%d states and %d changes", len(states), len(changed))
	}
}

// lostByCut returns what a reader misses if the power fails once a minor compaction has changed METADATA the first time.
func lostByCut(t *testing.T) (problem string) {
	e := newEnv(t, Config{}, "f", streamed)
	e.mustApply("row", setCell("v"))
	changed := 0
	e.meta.setFaults(func() (before, after error) {
		if changed++; changed > 1 {
			before = errDisconnected
		}
		return before, nil
	}, nil)
	_ = e.Compact(context.Background(), testTable, false)
	e.crash()
	e.meta.setFaults(nil, nil)
	e.open()
	f := newFollower()
	f.drain(t, func(string) *Server { return e.Server })
	f.check(func(format string, args ...any) { problem = fmt.Sprintf(format, args...) }, e.rowsOf(testTable))
	return problem
}

// TestChangesWithRedoPoint (CS1): the redo point and the change file are one change of METADATA.
func TestChangesWithRedoPoint(t *testing.T) {
	if problem := lostByCut(t); problem != "" {
		t.Error(problem)
	}
}

// TestHiddenChangesReleaseMemory: pages that have only changes which the caller may not read hold no memory once the read ends.
func TestHiddenChangesReleaseMemory(t *testing.T) {
	e := newEnv(t, Config{MemtablesBytesMax: 256 << 20}, "f", "g", streamed)
	for i := range 2*changesScanned/(2<<20) + 2 {
		e.mustApply(fmt.Sprint("row", i), table.Set("g", []byte("q"), table.ServerTimestamp, make([]byte, 2<<20)))
	}
	for range 3 {
		p, err := e.For(&script{visible: Visibility{Families: []uint64{1}}}).ReadChanges(t.Context(), testTable, ChangesRequest{Next: 1, Wait: time.Millisecond})
		if err != nil || len(p.Changes) > 0 {
			t.Fatalf("%d changes, %v", len(p.Changes), err)
		}
		p.Release()
	}
	if gate := e.Server.largeReads; !gate.TryReserve(gate.Total()) {
		t.Error("memory for large reads is held")
	}
}

// TestChangesSince: a read by time returns no change of before that time, however many older ones are in between.
func TestChangesSince(t *testing.T) {
	e := newEnv(t, Config{MemtablesBytesMax: 256 << 20, MemtableBytes: 128 << 20}, "f", streamed)
	last := int64(0)
	for i := range 24 {
		e.clock.micros.Add(1000)
		last = e.mustApply(fmt.Sprintf("row%02d", i), table.Set("f", []byte("q"), table.ServerTimestamp, make([]byte, 1<<20)))
	}
	p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Since: last})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for _, c := range p.Changes {
		if c.Time < last {
			t.Errorf("row %s: change of %d, since %d was requested", c.Row, c.Time, last)
		}
	}
}

// TestInterruptedChangesAfterCrash (CS3): a position before an interruption of the stream is out of range, also after the tablet was recovered (CS3).
func TestInterruptedChangesAfterCrash(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		f := newCluster(t, Config{}, 1, "f:", streamed)
		s := f.servers[0]
		apply := func(row string) {
			t.Helper()
			if _, err := applySync(s.Server, row, setCell(row)); err != nil {
				t.Fatal(err)
			}
		}
		apply("a")
		if flushed {
			if err := s.Compact(t.Context(), testTable, false); err != nil {
				t.Fatal(err)
			}
		}
		first, err := s.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: 1})
		if err != nil || len(first.Changes) != 1 {
			t.Fatal(first, err)
		}
		plain := f.schema.Clone()
		plain.ChangeRetention = 0
		if err := s.SetSchema(plain); err != nil {
			t.Fatal(err)
		}
		apply("lost")
		if err := s.SetSchema(f.schema); err != nil {
			t.Fatal(err)
		}
		apply("b")
		_, err = s.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: first.Next})
		t.Log("before the crash:", err)
		runs := f.kill(s)
		s = f.start()
		f.servers = append(f.servers, s)
		if err := f.load(s, nil, runs); err != nil {
			t.Fatal(err)
		}
		p, err := s.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: first.Next})
		if !errors.Is(err, api.ErrOutOfRange) {
			t.Errorf("flushed %t: after the crash: %v", flushed, err)
			for _, c := range p.Changes {
				t.Logf("position %d: change of row %s", first.Next, c.Row)
			}
		}
	}
}

// TestChangesSinceBeforeStream: a read since a time before the stream began, or of while it was interrupted, is out of range, also if no write had the server's timestamp (CS3).
func TestChangesSinceBeforeStream(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		e := newEnv(t, Config{}, "f", streamed)
		plain := e.schema.Clone()
		plain.ChangeRetention = 0
		if err := e.SetSchema(plain); err != nil {
			t.Fatal(err)
		}
		before := e.clock.now()
		e.clock.micros.Add(time.Minute.Microseconds())
		e.mustApply("lost", table.Set("f", []byte("q"), 5, []byte("1"))) // a minute later than before, without a change stream
		if flushed {
			if err := e.Compact(t.Context(), testTable, false); err != nil {
				t.Fatal(err)
			}
		}
		e.clock.micros.Add(time.Minute.Microseconds())
		if err := e.SetSchema(e.schema); err != nil {
			t.Fatal(err)
		}
		e.mustApply("kept", table.Set("f", []byte("q"), 5, []byte("2")))
		p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Since: before.UnixMicro()})
		if !errors.Is(err, api.ErrOutOfRange) {
			t.Errorf("flushed %t: since before both writes: %d changes, %v; want out of range", flushed, len(p.Changes), err)
		}
	}
}
