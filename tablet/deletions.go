package tablet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
)

// deletions are SSTables and logs to be deleted, in order. A read or the applier that releases the last reference to a file does not
// wait for the disk and for other nodes.
type deletions struct {
	wake chan struct{} // capacity 1: something was added

	// working is held by who deletes. Held across I/O.
	working sync.Mutex

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	queue []deletion
	taken int // so far
}

// deletion is an SSTable or a log to be deleted.
type deletion struct {
	id  blobfs.ID
	log bool
}

func newDeletions() *deletions { return &deletions{wake: make(chan struct{}, 1)} }

// add queues the blob of an SSTable.
func (d *deletions) add(id blobfs.ID) { d.put(deletion{id: id}) }

// addLog queues a log. It is tried again until it is gone.
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

// take returns the first deletion and removes it from the queue.
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

// withRoom runs a compaction, and again as long as the disks are full and files were deleted meanwhile. No lock is held.
func (s *Server) withRoom(ctx context.Context, compact func() error) error {
	for {
		before := s.deletions.count()
		err := compact()
		if !errors.Is(err, blobfs.ErrDiskFull) {
			return err
		}
		s.deleteBlobs(ctx)
		if s.deletions.count() == before {
			return err
		}
	}
}

// deleteBlobs deletes what is to be deleted, and returns when nothing is left, or ctx has ended.
func (s *Server) deleteBlobs(ctx context.Context) {
	d := s.deletions
	d.working.Lock()
	defer d.working.Unlock()
	for ctx.Err() == nil {
		x, ok := d.take()
		if !ok {
			return
		}
		if x.log {
			s.deleteLog(ctx, x.id)
			continue
		}
		if err := s.cfg.Blobs.Delete(context.Background(), x.id); err != nil {
			// The next start finds it again among blobs that no metadata names.
			s.log.Warn("delete sstable", "blob", x.id.String(), "error", err)
		}
	}
}

// deleteLog removes an abandoned log, or has that done later. One whose server ends before is removed with the server's other logs.
func (s *Server) deleteLog(ctx context.Context, id blobfs.ID) {
	ctx, cancel := context.WithTimeout(ctx, deleteLogTimeout)
	defer cancel()
	err := s.cfg.Blobs.RemoveLog(ctx, id)
	if err == nil || errors.Is(err, blobfs.ErrNoLog) {
		return
	}
	if ctx.Err() == nil {
		s.log.Warn("remove abandoned commit log", "log", id.String(), "error", err, "retry in", retryPauseMax)
	}
	time.AfterFunc(retryPauseMax, func() { s.deletions.addLog(id) })
}

func (s *Server) deleteLoop() {
	for {
		select {
		case <-s.deletions.wake:
			s.deleteBlobs(s.ctx)
		case <-s.closing:
			return
		}
	}
}

// deleteLogTimeout bounds one attempt: compactions may wait for the deletions behind it.
const deleteLogTimeout = 10 * time.Second
