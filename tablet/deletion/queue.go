package deletion

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
)

// Blobs deletes SSTables and logs: see storage.Blobs.
type Blobs interface {
	Delete(ctx context.Context, id blobfs.ID) error
	RemoveLog(ctx context.Context, id blobfs.ID) error
}

// Queue holds the SSTables and logs to delete. Its methods are safe for concurrent use. Those that
// add do not wait for the disk or for other nodes.
type Queue struct {
	Blobs Blobs // replaced only by tests
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

// New returns an empty queue of what blobs stores.
func New(blobs Blobs, log *slog.Logger) *Queue {
	return &Queue{Blobs: blobs, log: log, wake: make(chan struct{}, 1)}
}

// Add queues the blob of an SSTable.
func (d *Queue) Add(id blobfs.ID) { d.put(deletion{id: id}) }

// AddLog queues a log. Its deletion is retried until it succeeds.
func (d *Queue) AddLog(id blobfs.ID) { d.put(deletion{id, true}) }

func (d *Queue) put(x deletion) {
	d.mu.Lock()
	d.queue = append(d.queue, x)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the first deletion.
func (d *Queue) take() (x deletion, ok bool) {
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

func (d *Queue) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// WithDiskSpace runs a compaction, and repeats it as long as the disks are full and files were
// deleted meanwhile. No lock is held.
func (d *Queue) WithDiskSpace(ctx context.Context, compact func() error) error {
	for {
		before := d.count()
		err := compact()
		if !errors.Is(err, blobfs.ErrDiskFull) {
			return err
		}
		d.Run(ctx)
		if d.count() == before {
			return err
		}
	}
}

// Run processes the queue until it is empty or ctx has ended.
func (d *Queue) Run(ctx context.Context) {
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
		if err := d.Blobs.Delete(context.Background(), x.id); err != nil {
			// Garbage collection finds it: no metadata names it.
			d.log.Warn("sstable not deleted", "blob", x.id.String(), "err", err)
		}
	}
}

// deleteLog removes an abandoned log, or queues it again later. If the server ends before, the log
// is removed with the server's other logs.
func (d *Queue) deleteLog(ctx context.Context, id blobfs.ID) {
	ctx, cancel := context.WithTimeout(ctx, deleteLogTimeout)
	defer cancel()
	err := d.Blobs.RemoveLog(ctx, id)
	if err == nil || errors.Is(err, blobfs.ErrNoLog) {
		return
	}
	if ctx.Err() == nil {
		d.log.Warn("abandoned commit log not removed", "log", id.String(), "err", err, "retry_in", retryPause)
	}
	time.AfterFunc(retryPause, func() { d.AddLog(id) })
}

// Loop processes the queue until ctx ends.
func (d *Queue) Loop(ctx context.Context) {
	for {
		select {
		case <-d.wake:
			d.Run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// deleteLogTimeout bounds one attempt: compactions may wait for the deletions behind it.
const deleteLogTimeout = 10 * time.Second

// retryPause is the time until the next attempt to remove a log.
const retryPause = 10 * time.Second
