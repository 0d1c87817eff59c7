package local

import (
	"sync"
	"time"
)

// spaceFreer frees the space of unlinked files of one folder in steps, pausing between steps so that
// other fsyncs proceed. One goroutine runs while the queue is not empty. Each folder has its own,
// so a stalled disk does not keep the others full.
type spaceFreer struct {
	stop chan struct{}
	done sync.WaitGroup // the goroutine

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		queue   []removed
		running bool
		closed  bool
	}
}

// removed is an unlinked file.
type removed struct {
	folder *folder
	free   func(pause func(took time.Duration))
}

const (
	// removedMax bounds the queued files of a folder: each holds a descriptor, and space that
	// cannot be used yet.
	removedMax = 64
	// removePauseMax bounds a pause. Freeing a GiB takes at most two seconds if the disk needs less
	// than one for it.
	removePauseMax = time.Millisecond
)

func newSpaceFreer() *spaceFreer { return &spaceFreer{stop: make(chan struct{})} }

// add frees the space of a file in the background, or at once if space is short or the queue is
// full.
func (r *spaceFreer) add(x removed) {
	if !x.folder.hasAmpleSpace() || !r.queued(x) {
		x.free(func(time.Duration) {})
	}
}

func (r *spaceFreer) queued(x removed) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || len(r.mu.queue) == removedMax {
		return false
	}
	r.mu.queue = append(r.mu.queue, x)
	if !r.mu.running {
		r.mu.running = true
		r.done.Go(r.run)
	}
	return true
}

// next returns the next file. It returns false if there is none, and the goroutine ends.
func (r *spaceFreer) next() (x removed, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.running = len(r.mu.queue) > 0; !r.mu.running {
		r.mu.queue = nil
		return x, false
	}
	x, r.mu.queue = r.mu.queue[0], r.mu.queue[1:]
	return x, true
}

func (r *spaceFreer) run() {
	for x, ok := r.next(); ok; x, ok = r.next() {
		x.free(func(took time.Duration) {
			if !x.folder.hasAmpleSpace() {
				return
			}
			select {
			case <-time.After(min(took, removePauseMax)):
			case <-r.stop:
			}
		})
	}
}

// close frees the space of all queued files without pauses.
func (r *spaceFreer) close() {
	r.mu.Lock()
	was := r.mu.closed
	r.mu.closed = true
	r.mu.Unlock()
	if !was {
		close(r.stop)
	}
	r.done.Wait()
}
