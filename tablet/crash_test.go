package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// A crashWorker changes its own rows, so their contents are known: all acknowledged changes, and
// the one pending mutation completely or not at all.
type crashWorker struct {
	id       int
	r        *rand.Rand
	acked    *model
	inFlight func(m *model) // applies the mutation of unknown outcome
	count    int
	clears   bool // it clears rows, too
}

func (w *crashWorker) row() string { return fmt.Sprintf("w%d-%d", w.id, w.r.IntN(4)) }

func (w *crashWorker) mutations() []table.Mutation {
	var ms []table.Mutation
	for range 1 + w.r.IntN(3) {
		w.count++
		fam, q := []string{"all", "three"}[w.r.IntN(2)], []byte([]string{"a", "b"}[w.r.IntN(2)])
		switch w.r.IntN(14) {
		case 0:
			ms = append(ms, table.DeleteColumn(fam, q))
		case 10:
			ms = append(ms, table.DeleteColumn("sum", q))
		case 11, 12, 13:
			ms = append(ms, table.Add("sum", q, w.r.Int64N(3), 1+w.r.Int64N(1000)))
		case 1:
			ms = append(ms, table.DeleteRow())
		default:
			value := fmt.Appendf(nil, "w%d-%d-", w.id, w.count)
			value = append(value, make([]byte, w.r.IntN(3000))...) // fills memtables
			ms = append(ms, table.Set(fam, q, int64(1+w.r.IntN(1000)), value))
		}
	}
	return ms
}

// run makes changes until one fails. It returns false then.
func (w *crashWorker) run(s *Server, steps int) bool {
	for range steps {
		row, ms := w.row(), w.mutations()
		if w.clears && w.r.IntN(12) == 0 {
			start, end := []byte(row), []byte(row+"\x00")
			if err := clearRows(context.Background(), s, start, end); err != nil {
				w.inFlight = func(m *model) { m.clear(start, end) }
				return false
			}
			w.acked.clear(start, end)
			continue
		}
		_, err := applySync(s, row, ms...)
		if err != nil {
			w.inFlight = func(m *model) { m.apply(row, 0, ms) }
			return false
		}
		w.acked.apply(row, 0, ms)
	}
	return true
}

// check compares the worker's rows with their two possible contents, and records which one they
// have.
func (w *crashWorker) check(e *env) error {
	mismatch := func(m *model) error {
		for i := range 4 {
			row := fmt.Sprintf("w%d-%d", w.id, i)
			if got, want := e.read(row, nil), cellStrings(m.read(row, 0)); !slices.Equal(got, want) {
				return fmt.Errorf("row %s: got %.200q, want %.200q", row, got, want)
			}
		}
		return nil
	}
	err := mismatch(w.acked)
	if w.inFlight != nil {
		apply := w.inFlight
		w.inFlight = nil
		if err != nil {
			apply(w.acked)
			err = mismatch(w.acked)
		}
	}
	return err
}

// A diskFault is injected at a chosen operation.
type diskFault int

const (
	powerCut  diskFault = iota // no operation from this one on
	tornWrite                  // the same, with this write half done
	ioError                    // this operation fails, the others do not
	faults
)

// arm makes the n'th operation from now fail. cut is set when the power goes.
func (f diskFault) arm(fs *vfs.Mem, n int64, cut *atomic.Bool) {
	at := fs.Ops() + n
	fs.SetHook(func(op vfs.Op) error {
		switch {
		case f == ioError:
			if op.N == at {
				return syscall.EIO
			}
			return nil
		case op.N == at && f == tornWrite && op.Kind == vfs.OpWrite:
			cut.Store(true)
			return vfs.ErrTorn
		case op.N >= at:
			cut.Store(true)
			return vfs.ErrPowerCut
		}
		return nil
	})
}

// crashRun repeats on one disk: work, a fault, recovery.
func crashRun(t *testing.T, seed uint64) {
	r, lost := rand.New(rand.NewPCG(seed, 11)), rand.New(rand.NewPCG(seed, 12))
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, FilesMerge: 3, CompactionBytesPerSecond: -1}
	var keys []blobfs.MasterKey
	if seed%3 == 0 {
		keys = []blobfs.MasterKey{{1}}
	}
	e := newEncryptedEnv(t, keys, cfg, "all", "three:versions=3,group=g2", "sum:aggregate=sum")
	defer e.close()
	var workers []*crashWorker
	for id := range 3 {
		rules := map[string]rule{"three": {versions: 3}}
		workers = append(workers, &crashWorker{id: id, r: rand.New(rand.NewPCG(seed, uint64(100+id))), acked: newModel(rules)})
	}
	for life := range 3 {
		fault := diskFault(r.IntN(int(faults)))
		n := 1 + r.Int64N(120)
		var cut atomic.Bool
		fault.arm(e.fs, n, &cut)
		e.meta.setFaults(func() (before, after error) { // metadata's lock guards lost
			if cut.Load() {
				before = vfs.ErrPowerCut
			}
			if lost.IntN(20) == 0 { // a lost answer
				after = errors.New("outcome unknown")
			}
			return before, after
		}, nil)
		if e.Server == nil { // the previous run crashed during recovery
			t.Fatal("BUG: no server")
		}
		var wg sync.WaitGroup
		for _, w := range workers {
			wg.Go(func() { w.run(e.Server, 60) })
		}
		if r.IntN(2) == 0 {
			wg.Go(func() { _ = e.Compact(context.Background(), testTable, r.IntN(2) == 0) })
		}
		wg.Wait()
		e.crash()
		e.fs.SetHook(nil)
		// Recovery may be interrupted too, and must be repeatable.
		for n := int64(1 + r.IntN(6)); r.IntN(2) == 0; n += int64(r.IntN(8)) {
			var cut atomic.Bool
			powerCut.arm(e.fs, n, &cut)
			e.meta.setFaults(func() (before, after error) {
				if cut.Load() {
					before = vfs.ErrPowerCut
				}
				return before, nil
			}, nil)
			_ = e.tryOpen()
			e.crash()
		}
		if err := e.tryOpen(); err != nil {
			t.Fatalf("seed %d, life %d: open after %v at operation %d: %v", seed, life, fault, n, err)
		}
		for _, w := range workers {
			if err := w.check(e); err != nil {
				t.Fatalf("seed %d, life %d, worker %d, after fault %d at operation %d: %v", seed, life, w.id, fault, n, err)
			}
		}
		checkOffline(t, e)
	}
}

// checkOffline runs the checker that operators use.
func checkOffline(t *testing.T, e *env) {
	t.Helper()
	e.meta.mu.Lock()
	meta, disk := e.meta.cloneLocked(), e.fs.Crash(nil)
	e.meta.mu.Unlock()
	loads, err := meta.loads()
	if err != nil {
		t.Fatal(err)
	}
	var metas []*Meta
	for _, l := range loads {
		metas = append(metas, l.Meta)
	}
	store, err := openStore(disk, e.extent, e.keys...)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = Check(context.Background(), storage.OnStore(store), metas, func(file string, offset int64, err error) {
		t.Errorf("check: %s at %d: %v", file, offset, err)
	})
	if err != nil {
		t.Error(err)
	}
}

// I1, I3, T1, T3, T4: at whatever disk operation the power fails or an error occurs, recovery
// yields every acknowledged mutation, and no part of another.
func TestCrashPoints(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(60)) {
		crashRun(t, seed+run)
	}
}
