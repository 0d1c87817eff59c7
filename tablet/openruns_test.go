package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/sortedrun"
	"github.com/steledb/stele/tablet/storage"
)

// openings counts opened and closed blobs, and can be made to fail.
type openings struct {
	storage.Blobs
	opened, closed atomic.Int64
	fail           atomic.Pointer[error]
}

func (o *openings) OpenBlob(ctx context.Context, h blobfs.Handle) (storage.BlobReader, error) {
	if err := o.fail.Load(); err != nil {
		return nil, *err
	}
	o.opened.Add(1)
	r, err := o.Blobs.OpenBlob(ctx, h)
	return closing{r, o}, err
}

type closing struct {
	storage.BlobReader
	o *openings
}

func (c closing) Close() error {
	c.o.closed.Add(1)
	return c.BlobReader.Close()
}

func (c closing) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	if err := c.o.fail.Load(); err != nil {
		return *err
	}
	return c.BlobReader.ReadChecked(p, off, ok)
}

// sortedRuns creates n runs of table 16 with one row each.
func sortedRuns(t *testing.T, blobs storage.Blobs, n int) (runs []sortedrun.Meta) {
	t.Helper()
	for i := range n {
		var p payloads
		log := commitlog.New(&p, uint64(1+i), commitlog.Config{})
		body := appendRunBody(t, fmt.Sprintf("row%04d", i), []byte("x"))
		if err := log.Commit(&commitlog.Commit{Table: 16, Ops: 1, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			t.Fatal(err)
		}
		log.Close()
		m, err := sortWhole(t.Context(), blobs, &p, 0)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, m)
	}
	return runs
}

// readRun reads the only entry of a run of sortedRuns.
func readRun(ctx context.Context, r sortedrun.Run) error {
	e, err := r.Entries(ctx, 16, nil, nil)
	if err != nil {
		return err
	}
	if !e.First() || e.Next() {
		return errors.Join(errors.New("the run has not one entry"), e.Err(), e.Close())
	}
	return e.Close()
}

// TestOpenRuns: each run is opened once for all readers, and again after a failed read. It is
// closed when it was idle for a while, when there are too many, or with all.
func TestOpenRuns(t *testing.T) {
	store, err := openStore(vfs.NewMem(vfs.MemOptions{}), 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	runs := sortedRuns(t, storage.OnStore(store), sortedrun.OpenMax+20)
	synctest.Test(t, func(t *testing.T) {
		blobs := &openings{Blobs: storage.OnStore(store)}
		open := sortedrun.NewOpenRuns(blobs)
		expect := func(what string, opened, closed int64) {
			t.Helper()
			if o, c := blobs.opened.Load(), blobs.closed.Load(); o != opened || c != closed {
				t.Fatalf("%s: %d runs were opened and %d closed, want %d and %d", what, o, c, opened, closed)
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			for i := range 3 {
				wg.Go(func() {
					if err := readRun(t.Context(), open.Run(runs[i])); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		expect("60 readers of 3 runs", 3, 0)

		other, broken := open.Run(runs[3]), errors.New("disk broken")
		blobs.fail.Store(&broken)
		if err := readRun(t.Context(), open.Run(runs[0])); !errors.Is(err, broken) {
			t.Fatalf("read from a broken disk: %v", err)
		}
		if err := readRun(t.Context(), other); !errors.Is(err, broken) {
			t.Fatalf("open on a broken disk: %v", err)
		}
		expect("a run that cannot be read", 3, 1)
		blobs.fail.Store(nil)
		for _, r := range []sortedrun.Run{open.Run(runs[0]), other} {
			if err := readRun(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		expect("runs that can be read again", 5, 1)

		time.Sleep(sortedrun.OpenIdle/2 + time.Second)
		if err := readRun(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sortedrun.OpenIdle/2 + time.Second)
		synctest.Wait()
		expect("idle runs", 5, 4)
		time.Sleep(2 * sortedrun.OpenIdle)
		expect("the last", 5, 5)

		held, err := open.Run(runs[0]).Entries(t.Context(), 16, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range runs {
			if err := readRun(t.Context(), open.Run(m)); err != nil {
				t.Fatal(err)
			}
		}
		n := int64(len(runs))
		expect("more than are kept", 5+n, 5+n-sortedrun.OpenMax)
		open.Close()
		expect("all but the one in use", 5+n, 5+n-1)
		if !held.First() {
			t.Fatal(held.Err())
		}
		if err := errors.Join(held.Close(), held.Close()); err != nil {
			t.Fatal(err)
		}
		expect("that too", 5+n, 5+n)
		if err := readRun(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		expect("a late one", 5+n+1, 5+n+1)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := readRun(gone, other); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled reader: %v", err)
		}
	})
}

// TestRunRecordsLargest (I13): a load knows the largest value of its runs before it reads them, and
// reserves memory for it.
func TestRunRecordsLargest(t *testing.T) {
	store, err := openStore(vfs.NewMem(vfs.MemOptions{}), 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	blobs := storage.OnStore(store)
	var runs []sortedrun.Run
	open := sortedrun.NewOpenRuns(blobs)
	defer open.Close()
	const value, most = 1 << 20, 3 << 20
	for i, size := range []int{value, 10, most} {
		var p payloads
		log := commitlog.New(&p, uint64(1+i), commitlog.Config{})
		body := appendRunBody(t, fmt.Sprintf("row%04d", i), make([]byte, size))
		if err := log.Commit(&commitlog.Commit{Table: 16, Ops: 1, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			t.Fatal(err)
		}
		log.Close()
		m, err := sortWhole(t.Context(), blobs, &p, 0)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, open.Run(m))
	}
	e := newEnv(t, Config{CacheBytes: 64 << 20, RecoveryMemory: 1 << 20}, "f")
	r := recovery{server: e.Server, tablet: &Tablet{table: 16}, load: &Load{Meta: &Meta{}, Runs: runs}}
	_, closeAll, err := r.sources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	before := e.readMemory.Cache().Stats().Budget
	release, err := r.memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if got, want := before-e.readMemory.Cache().Stats().Budget, int64(len(runs)*2*sortedrun.ReadAheadBytes+4*most); got != want {
		t.Errorf("a load reserves %d bytes, want %d", got, want)
	}
}
