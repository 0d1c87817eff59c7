package tablet

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/blobfs"
)

// deletions are blobs that are to be deleted, in the order in which they came. Whoever lets go of a file last, be it a read or the
// applier, has no time for the disk, and for other nodes.
type deletions struct {
	wake chan struct{} // capacity 1: something was added

	// working is held by who deletes. Held across I/O.
	working sync.Mutex

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	blobs []blobfs.ID
	taken int // so far
}

func newDeletions() *deletions { return &deletions{wake: make(chan struct{}, 1)} }

func (d *deletions) add(id blobfs.ID) {
	d.mu.Lock()
	d.blobs = append(d.blobs, id)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take returns the first blob and forgets it.
func (d *deletions) take() (id blobfs.ID, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.blobs) == 0 {
		return id, false
	}
	id = d.blobs[0]
	d.taken++
	if d.blobs = d.blobs[1:]; len(d.blobs) == 0 {
		d.blobs = nil
	}
	return id, true
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
		id, ok := d.take()
		if !ok {
			return
		}
		if err := s.cfg.Blobs.Delete(context.Background(), id); err != nil {
			// The next start finds it again among blobs that no metadata names.
			s.log.Warn("delete sstable", "blob", id.String(), "error", err)
		}
	}
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
