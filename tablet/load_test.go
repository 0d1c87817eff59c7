package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

func setCell(value string) table.Mutation {
	return table.Set("f", []byte("q"), table.ServerTimestamp, []byte(value))
}

// I1, I8: a tablet moves between servers with all its data and without a log, and its timestamps
// increase although each server's clock is behind the previous one's.
func TestMove(t *testing.T) {
	f := newCluster(t, Config{}, 3, "f:versions=100")
	from := f.servers[0]
	last := int64(0)
	for i := range 10 {
		from.clock.micros.Store(1_000_000_000_000 - int64(i)*3_600_000_000)
		for n := range 5 {
			ts, err := applySync(from.Server, "row", setCell(fmt.Sprint(i, n)))
			if err != nil {
				t.Fatal(err)
			}
			if ts <= last {
				t.Fatalf("move %d: timestamp %d after %d", i, ts, last)
			}
			last = ts
		}
		to := f.servers[(i+1)%3]
		if err := f.move(from, to, nil); err != nil {
			t.Fatal(err)
		}
		if got := len(f.read("row")); got != 5*(i+1) {
			t.Fatalf("after move %d: %d cells", i, got)
		}
		if _, err := applySync(from.Server, "row", setCell("x")); !errors.Is(err, api.ErrNotServing) {
			t.Fatalf("write at the server that had it: %v", err)
		}
		if err := from.ReadRow(context.Background(), testTable, []byte("row"), nil, nil); !errors.Is(err, api.ErrNotServing) {
			t.Fatalf("read at the server that had it: %v", err)
		}
		if _, err := from.Scan(context.Background(), testTable, Range{}, nil, nil); !errors.Is(err, api.ErrNotServing) {
			t.Fatalf("scan at the server that had it: %v", err)
		}
		if n := from.Stats().MemtableBytes; n != 0 {
			t.Fatalf("%d bytes of memtables are left behind", n)
		}
		from = to
	}
}

// T4, T5: sequence numbers continue above those of the tablet, also in a server that has assigned
// few so far, and files stay in order.
func TestLoadRaisesNumbers(t *testing.T) {
	f := newCluster(t, Config{}, 2, "f:")
	a, b := f.servers[0], f.servers[1]
	for i := range 50 {
		if _, err := applySync(a.Server, "row", setCell(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.move(a, b, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := applySync(b.Server, "row", table.DeleteRow()); err != nil {
		t.Fatal(err)
	}
	if got := f.read("row"); got != nil {
		t.Fatalf("a deletion at the second server does not cover the cells of the first: %q", got)
	}
	if err := b.Compact(context.Background(), testTable, false); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	m, err := f.meta.Load(context.Background(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, fm := range m.Groups[0].Files {
		if fm.MinSeq <= last {
			t.Fatalf("files out of order: %+v", m.Groups[0].Files)
		}
		last = fm.MaxSeq
	}
	if err := f.load(b, nil, nil); !errors.Is(err, ErrServed) {
		t.Fatalf("loaded twice: %v", err)
	}
}

// I1, I8: the contents of a dead server's log are served again, from memory or, if that is short,
// from files. The runs are released only when metadata names the files.
func TestLoadFromRuns(t *testing.T) {
	for name, limit := range map[string]int64{"in memory": 64 << 20, "to files": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			f := newCluster(t, Config{MemtablesBytesMax: limit, MemtableBytes: 256 << 10}, 1, "f:", "g:group=g2")
			dead := f.servers[0]
			want := map[string][]string{}
			last := int64(0)
			dead.clock.micros.Store(2_000_000_000_000)
			for i := range 500 {
				row := fmt.Sprintf("row%03d", i%100)
				value := make([]byte, 2000)
				copy(value, fmt.Sprint(i))
				ts, err := applySync(dead.Server, row, table.DeleteRow(),
					table.Set("f", []byte("q"), table.ServerTimestamp, value), table.Set("g", []byte("q"), 5, []byte("v")))
				if err != nil {
					t.Fatal(err)
				}
				last = ts
				want[row] = cellStrings([]table.Cell{
					{Family: "f", Qualifier: []byte("q"), Timestamp: ts, Value: value},
					{Family: "g", Qualifier: []byte("q"), Timestamp: 5, Value: []byte("v")},
				})
				if i == 200 { // so that runs also hold entries that are in files
					if err := dead.Compact(context.Background(), testTable, false); err != nil {
						t.Fatal(err)
					}
				}
			}
			runs := f.kill(dead)
			s := f.start()
			f.servers = append(f.servers, s)
			meta, err := f.meta.Load(context.Background(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			f.meta.assign(metaKey(1, nil), s.name)
			recovered := make(chan uint64, 10)
			err = s.Load(context.Background(), Load{Meta: meta, Schema: f.schema, Runs: runs, OnRecovered: func() {
				m, err := f.meta.Load(context.Background(), 1, nil)
				if err != nil {
					t.Error(err)
				}
				recovered <- m.Redo
			}})
			if err != nil {
				t.Fatal(err)
			}
			for row, cells := range want {
				if got := f.read(row); !slices.Equal(got, cells) {
					t.Fatalf("row %s: got %q, want %q", row, got, cells)
				}
			}
			ts, err := applySync(s.Server, "row000", setCell("after"))
			if err != nil {
				t.Fatal(err)
			}
			if ts <= last {
				t.Fatalf("timestamp %d after %d", ts, last)
			}
			if redo := <-recovered; redo < max(runs[0].MaxSeq(), runs[1].MaxSeq()) {
				t.Fatalf("redo point %d when the runs were given up, they go up to %d", redo, runs[1].MaxSeq())
			}
			for _, r := range runs {
				if n := r.(*memRun).opened.Load(); n != 0 {
					t.Fatalf("%d readers of a run were not closed", n)
				}
			}
			if err := s.Compact(context.Background(), testTable, true); err != nil {
				t.Fatal(err)
			}
			if n := s.Stats().MemtableBytes; n != 0 {
				t.Fatalf("%d bytes of memtables after all was written out", n)
			}
			if got := len(f.scan()); got != 100 {
				t.Fatalf("%d rows after a major compaction", got)
			}
			if len(recovered) != 0 {
				t.Fatal("OnRecovered was called twice")
			}
		})
	}
}

// I4: a server that cannot prove its lease answers nothing, also if it lost the lease during the
// operation.
func TestServingGate(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	if _, err := applySync(s.Server, "row", setCell("1")); err != nil {
		t.Fatal(err)
	}
	var late atomic.Int64 // calls after which the lease has expired
	s.cfg.Serving = func() error {
		if late.Add(-1) < 0 {
			return api.ErrUnavailable
		}
		return nil
	}
	ctx := context.Background()
	row, all := []byte("row"), table.PassAll{}
	program, err := table.Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	emitted := false
	emit := func([]byte, []table.Cell) error { emitted = true; return nil }
	incr := []table.Rule{{Op: table.RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("x")}}
	ops := map[string]func() error{
		"write": func() error { _, err := applySync(s.Server, "row", setCell("2")); return err },
		"write now": func() error {
			done := make(chan error, 1)
			rm := &table.RowMutation{Row: row, Mutations: []table.Mutation{setCell("2")}}
			if !s.ApplyNow(testTable, rm, func(_ int64, err error) { done <- err }) {
				return errors.New("not now")
			}
			return <-done
		},
		"read":         func() error { return s.ReadRow(ctx, testTable, row, nil, emit) },
		"read nothing": func() error { return s.ReadRow(ctx, testTable, []byte("none"), nil, emit) },
		"scan": func() error {
			_, err := s.Scan(ctx, testTable, Range{}, nil, func([]byte, []table.Cell) error { return nil })
			return err
		},
		"check": func() error { _, err := s.CheckAndMutate(ctx, testTable, row, program, nil, nil); return err },
		"check and mutate": func() error {
			_, err := s.CheckAndMutate(ctx, testTable, row, program, []table.Mutation{setCell("3")}, nil)
			return err
		},
		"read-modify-write": func() error { _, err := s.ReadModifyWrite(ctx, testTable, row, incr); return err },
	}
	writes := map[string]bool{"write": true, "write now": true, "check and mutate": true, "read-modify-write": true}
	for name, op := range ops {
		late.Store(1 << 40)
		if err := op(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		emitted = false
		late.Store(0)
		if err := op(); !errors.Is(err, api.ErrUnavailable) {
			t.Errorf("%s without a lease: %v", name, err)
		}
		late.Store(1)
		err := op()
		var unsure *UnknownOutcomeError
		if got := errors.As(err, &unsure); got != writes[name] || !got && !errors.Is(err, api.ErrUnavailable) || got && errors.Is(err, api.ErrUnavailable) {
			t.Errorf("%s that lost the lease: %v", name, err)
		}
		if emitted {
			t.Errorf("%s gave a row out without a lease", name)
		}
	}
}

// Writers that arrive while a tablet is unloaded wait, and are then redirected; no acknowledged
// write is lost or applied twice.
func TestMoveUnderLoad(t *testing.T) {
	f := newCluster(t, Config{}, 2, "f:")
	ctx := context.Background()
	var owner atomic.Pointer[clusterServer]
	owner.Store(f.servers[0])
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var counts [4]int64
	for w := range counts {
		wg.Go(func() {
			row := []byte{byte('a' + w)}
			rules := []table.Rule{{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: 1}}
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := owner.Load().ReadModifyWrite(ctx, testTable, row, rules)
				switch {
				case err == nil:
					counts[w]++
				case errors.Is(err, api.ErrNotServing):
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	worst := time.Duration(0)
	for i := range 20 {
		from, to := f.servers[i%2], f.servers[(i+1)%2]
		time.Sleep(5 * time.Millisecond) // some load between the moves
		began := time.Now()
		if err := f.move(from, to, nil); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(began))
		owner.Store(to)
	}
	close(stop)
	wg.Wait()
	total := int64(0)
	for w, n := range counts {
		total += n
		cells := f.read(string(rune('a' + w)))
		want := fmt.Sprintf("%q", []byte{0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)})
		if got := fmt.Sprintf("%q", []byte(cells[0][len(cells[0])-8:])); got != want {
			t.Errorf("counter %d: %s, want %s", w, got, want)
		}
	}
	t.Logf("%d increments, slowest of 20 moves %v", total, worst)
}

// T8: a write fence is up once no writer is left that did not see it before its commit, and a later
// writer commits nothing until it is lifted.
func TestFenceWaits(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	x, err := s.served.tablet(lastTablet)
	if err != nil {
		t.Fatal(err)
	}
	l := x.fence.latches.Of([]byte("row")) // as held by a writer that is about to commit
	l.LockShared()
	fenced := make(chan struct{})
	go func() {
		noError(t, x.fence.raise(t.Context()))
		close(fenced)
	}()
	select {
	case <-fenced:
		t.Fatal("fenced with a writer before its commit")
	case <-time.After(20 * time.Millisecond):
	}
	l.UnlockShared()
	<-fenced
	next := s.commitLog.commits.Next()
	answered := make(chan error, 1)
	go func() {
		_, err := applySync(s.Server, "row", setCell("x"))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a fenced write was answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if got := s.commitLog.commits.Next(); got != next {
		t.Fatalf("a fenced write was logged as number %d", next)
	}
	x.fence.lift()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}

// TestLogLater: with LogLater a server has no commit log before it has a tablet, and then logs what
// it acknowledges (I1). A server that was closed meanwhile creates none.
func TestLogLater(t *testing.T) {
	f := newCluster(t, Config{LogLater: true}, 3, "f:")
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	begun := func(s *clusterServer) int {
		s.blobs.mu.Lock()
		defer s.blobs.mu.Unlock()
		return len(s.blobs.logs)
	}
	if begun(a) != 1 || begun(b) != 0 {
		t.Fatalf("%d logs with a tablet and %d without", begun(a), begun(b))
	}
	if err := f.move(a, b, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := applySync(b.Server, "row", setCell("x")); err != nil {
		t.Fatal(err)
	}
	if err := f.load(c, nil, f.kill(b)); err != nil {
		t.Fatal(err)
	}
	if got := f.read("row"); len(got) != 1 || begun(b) != 1 || begun(c) != 1 {
		t.Fatalf("the tablet has %q; %d and %d logs were begun", got, begun(b), begun(c))
	}
	d := f.start()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.BeginLog(context.Background()); !errors.Is(err, ErrClosed) || begun(d) != 0 {
		t.Fatalf("a closed server begins %d logs, %v", begun(d), err)
	}
}
