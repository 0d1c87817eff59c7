package local

import (
	"sync"
	"time"
)

// remover frees the space of one folder's files whose names are gone, in steps, pausing between steps so that other fsyncs proceed. One
// goroutine does it while there are some. Each folder has its own: a disk that stalls does not keep the others full.
type remover struct {
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

// removed is a file without a name.
type removed struct {
	folder   *folder
	giveBack func(rest func(took time.Duration))
}

const (
	// removedMax bounds the files of a folder that wait: each has a descriptor, and room that nobody can use yet.
	removedMax = 64
	// removeRestMax bounds a rest: a GiB is given back in two seconds at most where that takes the disk less than one.
	removeRestMax = time.Millisecond
)

func newRemover() *remover { return &remover{stop: make(chan struct{})} }

// add has the room of a file given back soon; at once if it is wanted, or too many wait.
func (r *remover) add(x removed) {
	if !x.folder.hasPlenty() || !r.queued(x) {
		x.giveBack(func(time.Duration) {})
	}
}

func (r *remover) queued(x removed) bool {
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

// next takes a file; false if there is none, and the goroutine ends.
func (r *remover) next() (x removed, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.running = len(r.mu.queue) > 0; !r.mu.running {
		r.mu.queue = nil
		return x, false
	}
	x, r.mu.queue = r.mu.queue[0], r.mu.queue[1:]
	return x, true
}

func (r *remover) run() {
	for x, ok := r.next(); ok; x, ok = r.next() {
		x.giveBack(func(took time.Duration) {
			if !x.folder.hasPlenty() {
				return
			}
			select {
			case <-time.After(min(took, removeRestMax)):
			case <-r.stop:
			}
		})
	}
}

// close gives back all that waits, without rests.
func (r *remover) close() {
	r.mu.Lock()
	was := r.mu.closed
	r.mu.closed = true
	r.mu.Unlock()
	if !was {
		close(r.stop)
	}
	r.done.Wait()
}
