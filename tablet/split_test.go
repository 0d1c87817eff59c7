package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
)

// fillRows writes rows, with a flush halfway, and returns their expected contents.
func fillRows(t *testing.T, s *Server, n int) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	for i := range n {
		row := fmt.Sprintf("row%03d", i)
		ts, err := applySync(s, row, setCell(row))
		if err != nil {
			t.Fatal(err)
		}
		want[row] = []string{fmt.Sprintf("f:q@%d=%s", ts, row)}
		if i == n/2 {
			if err := s.Compact(context.Background(), testTable, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	return want
}

func (f *cluster) mustHold(want map[string][]string) {
	f.t.Helper()
	got := f.scan()
	for row, cells := range want {
		if !slices.Equal(got[row], cells) {
			f.t.Errorf("scan: row %s: got %q, want %q", row, got[row], cells)
		}
		if point := f.read(row); !slices.Equal(point, cells) {
			f.t.Errorf("row %s: got %q, want %q", row, point, cells)
		}
	}
	if len(got) != len(want) {
		f.t.Errorf("scan: %d rows, want %d", len(got), len(want))
	}
	for i := range 100 {
		row := fmt.Sprintf("row%03d", i)
		if point := f.read(row); want[row] == nil && point != nil {
			f.t.Errorf("row %s should not be there: got %q", row, point)
		}
	}
	if f.t.Failed() {
		f.t.FailNow()
	}
}

func (f *cluster) blobThere(h blobfs.Handle) bool {
	r, err := f.store.OpenBlob(context.Background(), h)
	if err == nil {
		r.Close()
	}
	return err == nil
}

// I5, T6: children share the tablet's files, each within its bounds, and neither deletes what the
// other may need.
func TestSplitSharesFiles(t *testing.T) {
	ctx := context.Background()
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	want := fillRows(t, s.Server, 100)
	lower, id, err := s.Split(ctx, lastTablet, []byte("row049"))
	if err != nil {
		t.Fatal(err)
	}
	f.mustHold(want)
	if n := s.Stats().MemtableBytes; n < 0 {
		t.Fatalf("%d bytes of memtables", n)
	}
	low, err := f.meta.Load(ctx, 1, []byte("row049"))
	if err != nil {
		t.Fatal(err)
	}
	if low.ID != id || lower != refTo([]byte("row049")) {
		t.Fatalf("the lower row is of tablet %d, want %d, %v", low.ID, id, lower)
	}
	first := low.Groups[0].Files[0]
	if !first.Shared || string(first.End) != "row049" || first.Start != nil {
		t.Fatalf("the lower child has %+v", first)
	}
	// The upper row is unchanged. A server that loads it must correct its bounds.
	all, err := f.meta.loads()
	if err != nil {
		t.Fatal(err)
	}
	for _, fm := range all[1].Meta.Groups[0].Files {
		if !fm.Shared || string(fm.Start) != "row049" {
			t.Fatalf("the upper child as loaded has %+v", fm)
		}
	}
	if err := s.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	f.mustHold(want)
	if !f.blobThere(first.Handle) {
		t.Fatal("a shared blob was deleted by a child")
	}
	all, err = f.meta.loads()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		g := l.Meta.Groups[0]
		if len(g.Files) != 1 || g.Files[0].Entries != 50 || g.Files[0].Shared {
			t.Fatalf("child %d after a major compaction: %+v", i, g.Files)
		}
	}
	if err := s.Merge(ctx, lower, lastTablet); err != nil {
		t.Fatal(err)
	}
	f.mustHold(want)
	for _, l := range all {
		if !f.blobThere(l.Meta.Groups[0].Files[0].Handle) {
			t.Fatal("the merged tablet lacks a blob")
		}
	}
	if ends, _ := f.ranges(); len(ends) != 1 {
		t.Fatalf("%d tablets after the merge", len(ends))
	}
	if err := s.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	f.mustHold(want)
	for _, l := range all {
		if f.blobThere(l.Meta.Groups[0].Files[0].Handle) {
			t.Fatal("a compacted blob that is no longer shared still exists")
		}
	}
}

// What a child has deleted and compacted away does not reappear from the file that its sibling
// still has, whichever servers served them before they are merged.
func TestMergeResurrectsNothing(t *testing.T) {
	ctx := context.Background()
	for _, moved := range []bool{false, true} {
		for _, which := range []string{"lower", "upper"} {
			t.Run(fmt.Sprintf("%s deletes, moved %v", which, moved), func(t *testing.T) {
				f := newCluster(t, Config{}, 2, "f:")
				a, b := f.servers[0], f.servers[1]
				want := fillRows(t, a.Server, 100)
				if err := a.Compact(ctx, testTable, true); err != nil {
					t.Fatal(err)
				}
				at := []byte("row049")
				lower, _, err := a.Split(ctx, lastTablet, at)
				if err != nil {
					t.Fatal(err)
				}
				for row := range want {
					if (row <= string(at)) == (which == "lower") {
						if _, err := applySync(a.Server, row, table.DeleteRow()); err != nil {
							t.Fatal(err)
						}
						delete(want, row)
					}
				}
				end := at
				if which == "upper" {
					end = nil
				}
				x, err := a.served.tablet(refTo(end))
				if err != nil {
					t.Fatal(err)
				}
				if err := x.flush(ctx); err != nil {
					t.Fatal(err)
				}
				if err := x.merge.major(ctx); err != nil {
					t.Fatal(err)
				}
				f.mustHold(want)
				if moved { // the other's row has not been written since the split
					for _, e := range [][]byte{at, nil} {
						if err := f.move(a, b, e); err != nil {
							t.Fatal(err)
						}
					}
					a = b
				}
				m, err := f.meta.Load(ctx, 1, end)
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Groups[0].Files) != 0 {
					t.Fatalf("all was deleted, left is %+v", m.Groups[0].Files)
				}
				if err := a.Merge(ctx, lower, lastTablet); err != nil {
					t.Fatal(err)
				}
				f.mustHold(want)
				if err := a.Compact(ctx, testTable, true); err != nil {
					t.Fatal(err)
				}
				f.mustHold(want)
			})
		}
	}
}

// I5: whatever happens to the answer of a METADATA change, there is one outcome, and the server
// serves what METADATA has.
func TestSplitAndMergeOutcomes(t *testing.T) {
	ctx := context.Background()
	unknown, refused := errors.New("outcome unknown"), ErrMetaTooLarge
	type faults []struct{ before, after error }
	for name, c := range map[string]struct {
		faults       faults
		split, merge error
	}{
		"never came":                {faults{{before: unknown}}, nil, nil},
		"came, answer lost":         {faults{{after: unknown}}, nil, nil},
		"never came, then answered": {faults{{before: unknown}, {}}, nil, nil},
		"lost twice":                {faults{{after: unknown}, {before: unknown}, {after: unknown}}, nil, nil},
		"refused":                   {faults{{before: refused}}, refused, refused},
		"second change refused":     {faults{{}, {before: refused}}, nil, refused},
		"second change lost":        {faults{{}, {after: unknown}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCluster(t, Config{}, 1, "f:")
			s := f.servers[0]
			want := fillRows(t, s.Server, 20)
			arm := func() {
				if err := s.Compact(ctx, testTable, false); err != nil { // so that the next change is the one to fail
					t.Fatal(err)
				}
				left := slices.Clone(c.faults)
				f.meta.setFaults(func() (error, error) {
					if len(left) == 0 {
						return nil, nil
					}
					now := left[0]
					left = left[1:]
					return now.before, now.after
				}, nil)
			}
			arm()
			lower, _, err := s.Split(ctx, lastTablet, []byte("row009"))
			if !errors.Is(err, c.split) {
				t.Fatalf("split: %v", err)
			}
			f.meta.setFaults(nil, nil)
			check := func(tablets int) {
				t.Helper()
				f.mustHold(want)
				if ends, _ := f.ranges(); len(ends) != tablets || len(s.served.all()) != tablets {
					t.Fatalf("METADATA has %d tablets, the server %d, want %d", len(ends), len(s.served.all()), tablets)
				}
				for _, row := range []string{"row003", "row015"} {
					ts, err := applySync(s.Server, row, table.DeleteRow(), setCell("new"))
					if err != nil {
						t.Fatal(err)
					}
					want[row] = []string{fmt.Sprintf("f:q@%d=new", ts)}
				}
				if err := s.Compact(ctx, testTable, false); err != nil {
					t.Fatal(err)
				}
			}
			if c.split != nil {
				check(1)
				return
			}
			check(2)
			arm()
			if err := s.Merge(ctx, lower, lastTablet); !errors.Is(err, c.merge) {
				t.Fatalf("merge: %v", err)
			}
			f.meta.setFaults(nil, nil)
			tablets := 1
			if c.merge != nil {
				tablets = 2
			}
			check(tablets)
			f.mustHold(want)
			// The same after a restart from its files and log.
			runs := f.kill(s)
			s = f.start()
			f.servers = append(f.servers, s)
			ends, _ := f.ranges()
			for _, end := range ends {
				if err := f.load(s, end, runs); err != nil {
					t.Fatal(err)
				}
			}
			f.mustHold(want)
		})
	}
}

// A split at a row that does not divide the tablet is rejected, and one without a row divides the
// bytes evenly.
func TestSplitRow(t *testing.T) {
	ctx := context.Background()
	open := func(t *testing.T) (*cluster, *Server) {
		f := newCluster(t, Config{}, 1, "f:")
		return f, f.servers[0].Server
	}
	put := func(t *testing.T, s *Server, row string, bytes int) {
		t.Helper()
		if _, err := applySync(s, row, table.Set("f", []byte("q"), 1, noise(bytes))); err != nil {
			t.Fatal(err)
		}
	}
	flush := func(t *testing.T, s *Server) {
		t.Helper()
		if err := s.Compact(ctx, testTable, true); err != nil {
			t.Fatal(err)
		}
	}
	split := func(t *testing.T, s *Server) string {
		t.Helper()
		v, err := s.served.tablet(lastTablet)
		if err != nil {
			t.Fatal(err)
		}
		row, err := v.splitRow(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(row)
	}
	t.Run("even", func(t *testing.T) {
		for _, flushed := range []bool{false, true} {
			_, s := open(t)
			for i := range 1000 {
				n := 1000
				if i >= 750 { // a quarter of the rows with half of the bytes
					n = 3000
				}
				put(t, s, fmt.Sprintf("row%03d", i), n)
			}
			if flushed {
				flush(t, s)
			}
			if got := split(t, s); got < "row690" || got > "row790" {
				t.Errorf("flushed %v: split at %q", flushed, got)
			}
		}
	})
	t.Run("one row", func(t *testing.T) {
		_, s := open(t)
		if _, _, err := s.Split(ctx, lastTablet, nil); !errors.Is(err, ErrNoSplitRow) {
			t.Fatalf("an empty tablet: %v", err)
		}
		for range 100 {
			put(t, s, "only", 1000)
		}
		if _, _, err := s.Split(ctx, lastTablet, nil); !errors.Is(err, ErrNoSplitRow) {
			t.Fatalf("one row: %v", err)
		}
		flush(t, s)
		if _, _, err := s.Split(ctx, lastTablet, nil); !errors.Is(err, ErrNoSplitRow) {
			t.Fatalf("one row in a file: %v", err)
		}
	})
	for name, rows := range map[string][2]string{"one large row, last": {"a", "b"}, "one large row, first": {"b", "c"}, "zeros": {"b\x00\x00", "b\x00\x01"}} {
		t.Run(name, func(t *testing.T) {
			f, s := open(t)
			large := "b"
			if rows[0] == "b\x00\x00" {
				large = rows[0]
			}
			for i := range 300 {
				if _, err := applySync(s, large, table.Set("f", fmt.Appendf(nil, "q%d", i), 1, noise(1000))); err != nil {
					t.Fatal(err)
				}
			}
			for _, row := range rows {
				put(t, s, row, 10)
			}
			flush(t, s)
			before := f.scan()
			if _, _, err := s.Split(ctx, lastTablet, nil); err != nil {
				t.Fatal(err)
			}
			f.mustHold(before)
			for _, x := range s.served.all() {
				n := 0
				for row := range before {
					if x.holds([]byte(row)) {
						n++
					}
				}
				if n != 1 {
					t.Errorf("tablet from %q to %q has %d rows", x.start, x.end, n)
				}
			}
		})
	}
	t.Run("given", func(t *testing.T) {
		_, s := open(t)
		lower, _, err := s.Split(ctx, lastTablet, []byte("m")) // of an empty tablet, as when a table is created with split points
		if err != nil {
			t.Fatal(err)
		}
		for r, rows := range map[Ref][]string{lower: {"m", "n"}, lastTablet: {"m", "a"}} {
			for _, row := range rows {
				if _, _, err := s.Split(ctx, r, []byte(row)); !errors.Is(err, ErrBadSplitRow) {
					t.Errorf("%v at %q: %v", r, row, err)
				}
			}
		}
		if err := s.Merge(ctx, lastTablet, lower); !errors.Is(err, ErrNotNeighbours) {
			t.Errorf("merged in the wrong order: %v", err)
		}
	})
}

// noise returns bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(time.Now().UnixNano()) | 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// A split survives a restart: the next process recovers it from the log of the undivided tablet.
func TestSplitThenRestart(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	want := fillRows(t, e.Server, 60)
	if _, _, err := e.Split(context.Background(), lastTablet, []byte("row020")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Split(context.Background(), lastTablet, []byte("row040")); err != nil {
		t.Fatal(err)
	}
	e.crash()
	e.open()
	for row, cells := range want {
		if got := e.read(row, nil); !slices.Equal(got, cells) {
			t.Fatalf("row %s: got %q, want %q", row, got, cells)
		}
	}
	if n := len(e.served.all()); n != 3 {
		t.Fatalf("%d tablets", n)
	}
	checkOffline(t, e)
}
