package sortedrun

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/sstable"
)

const (
	// OpenMax bounds the runs that are kept open without readers. The logs of a server have
	// some dozens of pieces, and an open run takes some 100 KiB.
	OpenMax = 128
	// OpenIdle is how long a run is kept open without readers. Loads of a recovery follow each
	// other closely, and the blob of an open run uses disk space after it was removed.
	OpenIdle = time.Minute
)

// OpenRuns holds open sorted runs for all loads of a server. After a server died, each run has
// entries of many tablets. It is safe for concurrent use.
type OpenRuns struct {
	blobs storage.Blobs

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		runs   map[blobfs.ID]*openRun
		timer  *time.Timer // next check for idle runs; nil if none is scheduled
		closed bool
	}
}

// openRun is a run that is open, or being opened.
type openRun struct {
	readers int       // readers and waiting readers; guarded by OpenRuns.mu
	used    time.Time // end of the last read; guarded by OpenRuns.mu
	// opening holds a value while one reader opens the run.
	opening chan struct{}
	table   *sstable.Table // nil until opened; guarded by opening
	// largest is the size of its largest value in bytes, 0 if not recorded. Set with table.
	largest int64
	blob    storage.BlobReader
}

// NewOpenRuns returns an empty set of open runs.
func NewOpenRuns(blobs storage.Blobs) *OpenRuns {
	o := &OpenRuns{blobs: blobs}
	o.mu.runs = map[blobfs.ID]*openRun{}
	return o
}

// Run returns the run that m describes, for Load. Nothing is read before Entries is called.
func (o *OpenRuns) Run(m Meta) Run { return &sortedRun{open: o, meta: m} }

// acquire returns an open run, which the caller must release. Errors: those of Blobs, a
// *sstable.CorruptError, ctx's.
func (o *OpenRuns) acquire(ctx context.Context, h blobfs.Handle) (*openRun, error) {
	o.mu.Lock()
	r := o.mu.runs[h.ID]
	if r == nil {
		r = &openRun{opening: make(chan struct{}, 1)}
		o.mu.runs[h.ID] = r
	}
	r.readers++
	o.mu.Unlock()
	if err := r.ready(ctx, o.blobs, h); err != nil {
		o.release(h.ID, r, false)
		return nil, err
	}
	return r, nil
}

// ready opens the run if it is not open. If that fails, the next reader tries again.
func (r *openRun) ready(ctx context.Context, blobs storage.Blobs, h blobfs.Handle) error {
	select {
	case r.opening <- struct{}{}:
		defer func() { <-r.opening }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.table != nil {
		return nil
	}
	blob, err := blobs.OpenBlob(ctx, h)
	if err != nil {
		return fmt.Errorf("open sorted run %s: %w", h.ID, err)
	}
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Name: h.ID.String()})
	if err == nil {
		r.largest, err = t.LargestValue()
	}
	if err != nil {
		_ = blob.Close() // read only: nothing to lose
		return err
	}
	r.table, r.blob = t, blob
	return nil
}

// release ends a reader's use of a run. If reading failed, the next reader opens the run again.
func (o *OpenRuns) release(id blobfs.ID, r *openRun, failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.used = time.Now()
	r.readers--
	if (failed || r.readers == 0 && (r.table == nil || o.mu.closed)) && o.mu.runs[id] == r {
		delete(o.mu.runs, id)
	}
	if r.readers > 0 {
		return
	}
	if o.mu.runs[id] != r {
		r.close()
		return
	}
	if len(o.mu.runs) > OpenMax {
		o.closeOldestLocked()
	}
	if o.mu.timer == nil {
		o.mu.timer = time.AfterFunc(OpenIdle, o.closeIdle)
	}
}

func (o *OpenRuns) closeOldestLocked() {
	var oldest blobfs.ID
	var r *openRun
	for id, x := range o.mu.runs {
		if x.readers == 0 && (r == nil || x.used.Before(r.used)) {
			oldest, r = id, x
		}
	}
	if r != nil {
		delete(o.mu.runs, oldest)
		r.close()
	}
}

// close closes a run without current or future readers.
func (r *openRun) close() {
	if r.blob != nil {
		_ = r.blob.Close() // read only: nothing to lose
	}
}

// closeIdle closes the runs that were not read for OpenIdle, and schedules the next check if
// others remain.
func (o *OpenRuns) closeIdle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.timer = nil
	now := time.Now()
	for id, r := range o.mu.runs {
		if r.readers == 0 && now.Sub(r.used) >= OpenIdle {
			delete(o.mu.runs, id)
			r.close()
		}
	}
	if len(o.mu.runs) > 0 && !o.mu.closed {
		o.mu.timer = time.AfterFunc(OpenIdle, o.closeIdle)
	}
}

// Close closes the runs without readers. The others are closed when their last reader ends.
func (o *OpenRuns) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.closed = true
	if o.mu.timer != nil {
		o.mu.timer.Stop()
	}
	for id, r := range o.mu.runs {
		if r.readers == 0 {
			delete(o.mu.runs, id)
			r.close()
		}
	}
}
