package tablet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/storage"
)

// deletions is the queue of SSTables and logs to delete. A read or the applier that releases the
// last reference to a file does not wait for the disk and for other nodes.
type deletions struct {
	blobs storage.Blobs
	log   *slog.Logger

	wake chan struct{} // capacity 1: something was added

	// working is held by the goroutine that deletes. Held across I/O.
	working sync.Mutex

	// mu guards the fields below. Never held across I/O.
	mu    sync.Mutex
	queue []deletion
	taken int // number of deletions taken from the queue so far
}

// deletion is an SSTable or a log to delete.
type deletion struct {
	id  blobfs.ID
	log bool
}

func newDeletions(blobs storage.Blobs, log *slog.Logger) *deletions {
	return &deletions{blobs: blobs, log: log, wake: make(chan struct{}, 1)}
}

// add queues the blob of an SSTable.
func (d *deletions) add(id blobfs.ID) { d.put(deletion{id: id}) }

// addLog queues a log. Its deletion is retried until it succeeds.
func (d *deletions) addLog(id blobfs.ID) { d.put(deletion{id, true}) }

func (d *deletions) put(x deletion) {
	d.mu.Lock()
	d.queue = append(d.queue, x)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the first deletion.
func (d *deletions) take() (x deletion, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return x, false
	}
	x = d.queue[0]
	d.taken++
	if d.queue = d.queue[1:]; len(d.queue) == 0 {
		d.queue = nil
	}
	return x, true
}

func (d *deletions) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// withDiskSpace runs a compaction, and repeats it as long as the disks are full and files were
// deleted meanwhile. No lock is held.
func (d *deletions) withDiskSpace(ctx context.Context, compact func() error) error {
	for {
		before := d.count()
		err := compact()
		if !errors.Is(err, blobfs.ErrDiskFull) {
			return err
		}
		d.run(ctx)
		if d.count() == before {
			return err
		}
	}
}

// run processes the queue until it is empty or ctx has ended.
func (d *deletions) run(ctx context.Context) {
	d.working.Lock()
	defer d.working.Unlock()
	for ctx.Err() == nil {
		x, ok := d.take()
		if !ok {
			return
		}
		if x.log {
			d.deleteLog(ctx, x.id)
			continue
		}
		if err := d.blobs.Delete(context.Background(), x.id); err != nil {
			// Garbage collection finds it: no metadata names it.
			d.log.Warn("sstable not deleted", "blob", x.id.String(), "err", err)
		}
	}
}

// deleteLog removes an abandoned log, or queues it again later. If the server ends before, the log
// is removed with the server's other logs.
func (d *deletions) deleteLog(ctx context.Context, id blobfs.ID) {
	ctx, cancel := context.WithTimeout(ctx, deleteLogTimeout)
	defer cancel()
	err := d.blobs.RemoveLog(ctx, id)
	if err == nil || errors.Is(err, blobfs.ErrNoLog) {
		return
	}
	if ctx.Err() == nil {
		d.log.Warn("abandoned commit log not removed", "log", id.String(), "err", err, "retry_in", retryPauseMax)
	}
	time.AfterFunc(retryPauseMax, func() { d.addLog(id) })
}

// loop processes the queue until ctx ends.
func (d *deletions) loop(ctx context.Context) {
	for {
		select {
		case <-d.wake:
			d.run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// deleteLogTimeout bounds one attempt: compactions may wait for the deletions behind it.
const deleteLogTimeout = 10 * time.Second
