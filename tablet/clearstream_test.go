package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// streamOf returns the changes, and unless plain the clears, from a position on, as text, and the position after them.
func streamOf(t testing.TB, s *Server, start, end []byte, next uint64, plain bool) (all []string, after uint64) {
	t.Helper()
	for {
		p, err := s.For(nil).ReadChanges(context.Background(), testTable, ChangesRequest{Start: start, End: end, Next: next, Bytes: 1, Clears: !plain})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Changes {
			if c.Cleared != nil {
				all = append(all, fmt.Sprintf("clear %s-%s", c.Cleared.Start, c.Cleared.End))
			} else {
				all = append(all, string(c.Row))
			}
		}
		p.Release()
		if len(p.Changes) == 0 {
			return all, p.Next
		}
		next = p.Next
	}
}

func wantStream(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestClearsInStream (CS7): clears are between the changes before them and after them, also after a crash, compactions, a split and a merge. Readers that do
// not request them see only changes.
func TestClearsInStream(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", streamed)
	clear := func(start, end string) {
		t.Helper()
		if err := clearRows(ctx, e.Server, []byte(start), []byte(end)); err != nil {
			t.Fatal(err)
		}
	}
	clear("", "b")
	e.mustApply("a", setCell("1"), setCell("2")) // two sequence numbers
	clear("a", "c")
	clear("c", "e")
	e.mustApply("c", setCell("3"))
	clear("x", "")
	all := []string{"clear -b", "a", "clear a-c", "clear c-e", "c", "clear x-"}
	check := func(when string) {
		t.Helper()
		got, next := streamOf(t, e.Server, nil, nil, 1, false)
		wantStream(t, when, got, all...)
		if got, _ = streamOf(t, e.Server, nil, nil, next, false); len(got) > 0 {
			t.Errorf("%s: %q come twice", when, got)
		}
		got, _ = streamOf(t, e.Server, nil, nil, 1, true)
		wantStream(t, when+", without clears", got, "a", "c")
	}
	check("in memory")
	e.crash()
	e.open()
	check("after a crash")
	for _, major := range []bool{false, true} {
		if err := e.Compact(ctx, testTable, major); err != nil {
			t.Fatal(err)
		}
		check("after a compaction")
	}
	low, _, err := e.Split(ctx, lastTablet, []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := streamOf(t, e.Server, nil, []byte("b"), 1, false)
	wantStream(t, "lower rows", got, "clear -b", "a", "clear a-b\x00")
	got, _ = streamOf(t, e.Server, []byte("b"), nil, 1, false)
	wantStream(t, "upper rows", got, "clear b\x00-c", "clear c-e", "c", "clear x-")
	if err := e.Merge(ctx, low, lastTablet); err != nil {
		t.Fatal(err)
	}
	check("after a merge")
}

// TestClearWakesReaders: a reader that waits for changes gets a clear.
func TestClearWakesReaders(t *testing.T) {
	e := newEnv(t, Config{}, "f", streamed)
	_, next := streamOf(t, e.Server, nil, nil, 1, false)
	done := make(chan error)
	go func() {
		p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: next, Wait: 10 * time.Second, Clears: true})
		if err == nil && (len(p.Changes) != 1 || p.Changes[0].Cleared == nil || p.Changes[0].Seq < next) {
			err = fmt.Errorf("changes %+v from %d on", p.Changes, next)
		}
		done <- err
	}()
	time.Sleep(50 * time.Millisecond) // until it waits
	if err := clearRows(t.Context(), e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := <-done; err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestChangesAfterClearNumber (CS1): a reader that is above the number of a clear misses no change of a later server, even if all that the server finds of
// the tablet is older: the clear was of other rows of a tablet that was split, or the stream was off meanwhile.
func TestChangesAfterClearNumber(t *testing.T) {
	ctx := context.Background()
	for _, how := range []string{"split", "interrupted", "split, and cleared without a stream"} {
		specs := []string{"f:", streamed}
		if how == "split, and cleared without a stream" {
			specs = specs[:1]
		}
		f := newCluster(t, Config{}, 1, specs...)
		s := f.servers[0]
		write := func(s *clusterServer, row string) {
			t.Helper()
			if _, err := applySync(s.Server, row, setCell(row)); err != nil {
				t.Fatal(err)
			}
		}
		write(s, "z")
		if err := s.Compact(ctx, testTable, false); err != nil { // the memtable is empty
			t.Fatal(err)
		}
		for range 5 {
			if err := clearRows(ctx, s.Server, nil, []byte("c")); err != nil {
				t.Fatal(err)
			}
		}
		plain := f.schema.Clone()
		plain.ChangeRetention = 0
		f.schema = testSchema(t, "f:", streamed)
		if err := s.SetSchema(f.schema); err != nil {
			t.Fatal(err)
		}
		served := s.served.all()[0]
		v, _, err := served.views.acquire()
		if err != nil {
			t.Fatal(err)
		}
		next := v.lastChange(served.views.applied.Load()) + 1 // of a reader that begins now
		v.release()
		if how != "interrupted" {
			if _, _, err := s.Split(ctx, lastTablet, []byte("m")); err != nil {
				t.Fatal(err)
			}
			for _, c := range s.served.all() {
				if last := c.meta.current.lastSeq(); last < next-1 {
					t.Errorf("%s: the tablet up to row %q has entries up to %d, and readers are at %d", how, c.meta.current.End, last, next)
				}
			}
		} else {
			if err := s.SetSchema(plain); err != nil {
				t.Fatal(err)
			}
			s.served.all()[0].minor.tablet.server.queueExpiredChanges()
			if err := s.Compact(ctx, testTable, true); err != nil { // the tombstones go, and the set of changes
				t.Fatal(err)
			}
		}
		runs := f.kill(s)
		s = f.start()
		f.servers = append(f.servers, s)
		if err := f.load(s, nil, runs); err != nil {
			t.Fatal(err)
		}
		write(s, "zz")
		got, _ := streamOf(t, s.Server, []byte("m"), nil, next, false)
		wantStream(t, how, got, "zz")
	}
}

// TestViewsBeforeClear (T13, CS6): a view of before a clear never gets entries of after it: a read would show cleared cells beside them, at a position after the clear.
func TestViewsBeforeClear(t *testing.T) {
	e := newEnv(t, Config{}, "f", streamed)
	e.mustApply("row", setCell("before"))
	if err := e.Compact(t.Context(), testTable, false); err != nil { // the memtable is empty
		t.Fatal(err)
	}
	var old *view
	e.meta.setFaults(func() (before, after error) {
		if old == nil {
			var err error
			if old, _, err = e.tabletOfTest().views.acquire(); err != nil {
				t.Error(err)
			}
		}
		return nil, nil
	}, nil)
	if err := clearRows(t.Context(), e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	defer old.release()
	cleared := old.lastChange(e.tabletOfTest().views.applied.Load())
	e.mustApply("row", setCell("after"))
	entries := 0
	old.eachMem(func(m *mem) { entries += m.Len() })
	if last := old.lastChange(e.tabletOfTest().views.applied.Load()); entries != 0 || last != cleared {
		t.Errorf("the view of before the clear has %d entries in memory and position %d, want 0 and %d", entries, last, cleared)
	}
}

// TestClearCutInStream (CS7): after a crash of the server amidst a clear, either the rows are cleared and the stream has the clear, or neither.
func TestClearCutInStream(t *testing.T) {
	for name, fault := range map[string]func() (before, after error){
		"before METADATA is changed": func() (before, after error) { return errDisconnected, nil },
		"after METADATA was changed": func() (before, after error) { return nil, errDisconnected },
	} {
		e := newEnv(t, Config{}, "f", streamed)
		e.mustApply("row", setCell("1"))
		crashed, cut := make(chan struct{}), false
		e.meta.setFaults(func() (before, after error) {
			if !cut {
				cut = true
				go func() { e.life.end(); close(crashed) }() // the clear gives up with an unknown outcome
			}
			return fault()
		}, nil)
		err := clearRows(t.Context(), e.Server, nil, nil)
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		<-crashed
		e.crash()
		e.meta.setFaults(nil, nil)
		e.open()
		got, next := streamOf(t, e.Server, nil, nil, 1, false)
		want := []string{"row"}
		if len(scanned(t, e.Server, false)) == 0 {
			want = append(want, "clear -")
		} else if err == nil {
			t.Errorf("%s: the rows are back", name)
		}
		wantStream(t, name, got, want...)
		e.mustApply("row", setCell("2"))
		got, _ = streamOf(t, e.Server, nil, nil, next, false)
		wantStream(t, name+", then", got, "row")
	}
}

// TestWatermarkBeforeClear: no watermark is above the time of a clear that is not visible yet.
func TestWatermarkBeforeClear(t *testing.T) {
	e := newEnv(t, Config{}, "f", streamed)
	watermark := int64(0)
	e.meta.setFaults(func() (before, after error) {
		e.clock.micros.Add(1000)
		p, err := e.For(nil).ReadChanges(context.Background(), testTable, ChangesRequest{Next: 1, Clears: true})
		if err != nil || len(p.Changes) > 0 {
			t.Errorf("%+v, %v", p, err)
			return nil, nil
		}
		watermark = p.Watermark
		return nil, nil
	}, nil)
	if err := clearRows(t.Context(), e.Server, nil, nil); err != nil {
		t.Fatal(err)
	}
	p, err := e.For(nil).ReadChanges(t.Context(), testTable, ChangesRequest{Next: 1, Clears: true})
	if err != nil || len(p.Changes) != 1 || p.Watermark == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if at := p.Changes[0].Time; watermark > at {
		t.Errorf("watermark %d before the clear of time %d", watermark, at)
	}
}

// TestForgottenClears (CS7): a reader of clears is out of range if clears from its position on are not kept, and other readers are not.
func TestForgottenClears(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f", streamed)
	e.mustApply("row", setCell("1"))
	tablet := e.tabletOfTest()
	first := uint64(0)
	for i := range 300 { // more than a set keeps
		if err := clearRows(ctx, e.Server, []byte("a"), []byte("b")); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = tablet.meta.current.Changes.LastClear
		}
	}
	read := func(r ChangesRequest) error {
		p, err := e.For(nil).ReadChanges(ctx, testTable, r)
		if err == nil {
			p.Release()
		}
		return err
	}
	if err := read(ChangesRequest{Next: 1}); err != nil {
		t.Errorf("without clears: %v", err)
	}
	for _, next := range []uint64{1, first} {
		if err := read(ChangesRequest{Next: next, Clears: true}); !errors.Is(err, api.ErrOutOfRange) {
			t.Errorf("from the position %d on: %v", next, err)
		}
	}
	oldest := tablet.meta.current.Changes.Clears[0]
	if err := read(ChangesRequest{Next: oldest.Seq, Clears: true}); err != nil {
		t.Errorf("from the oldest clear on: %v", err)
	}
	_, before := tablet.meta.current.Changes.ClearFloor(nil, nil)
	if err := read(ChangesRequest{Since: before, Clears: true}); !errors.Is(err, api.ErrOutOfRange) {
		t.Errorf("since a time before the oldest clear: %v", err)
	}
	e.clock.micros.Add((25 * time.Hour).Microseconds()) // longer than changes are kept
	e.mustApply("row", table.Set("f", nil, 1, nil))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	if err := read(ChangesRequest{Next: oldest.Seq, Clears: true}); !errors.Is(err, api.ErrOutOfRange) {
		t.Errorf("from an expired clear on: %v", err)
	}
}
