package fair

import (
	"context"
	"os"
	"sync"
)

// Pacer has goroutines of many users work in steps: so many of them proceed between two polls of the network by the
// Go runtime, users in rotation.
//
// Go runs goroutines in the order in which they became ready, and runs one that another has woken right after that one. It polls the
// network when no goroutine is ready, and after 10 ms. So a user whose requests keep hundreds of goroutines ready delays the single
// request of another. With a Pacer most of these goroutines wait for a step, and take a microsecond each until they do. Soon no goroutine
// is ready, the network is polled, and the requests that have come by then join the rotation.
//
// A step is not given back. A goroutine that waits for a step should hold no lock and no place that other goroutines need.
type Pacer struct {
	steps int
	poll  func(next func())

	// mu guards the fields in it. It is not held while poll is called.
	mu struct {
		sync.Mutex
		left    int // steps until the next poll; with 0, poll has been called and next has not
		waiters rotation
		r, w    *os.File // a pipe, from the first poll on
		closed  bool
	}
	done sync.WaitGroup // the goroutine that reads the pipe
}

// NewPacer returns a Pacer that grants so many steps, at least one, after each poll of the network. poll arranges for next to be called by
// another goroutine when the network has been polled; nil has the Pacer do that itself. It is to be closed.
func NewPacer(steps int, poll func(next func())) *Pacer {
	p := &Pacer{steps: steps, poll: poll}
	if poll == nil {
		p.poll = p.byPipe
	}
	p.mu.left = steps
	return p
}

// Try takes a step if it can be taken at once, and reports whether it did. Users wait for steps, but not the user "", which stands for the
// cluster itself.
func (p *Pacer) Try(user string) bool {
	if user == "" {
		return true
	}
	p.mu.Lock()
	if p.mu.left == 0 { // else no goroutine waits
		p.mu.Unlock()
		return false
	}
	p.mu.left--
	poll := p.mu.left == 0
	p.mu.Unlock()
	if poll {
		p.poll(p.next)
	}
	return true
}

// Wait waits for a step, or until ctx ends. Goroutines of one user get steps in the order in which they came.
func (p *Pacer) Wait(ctx context.Context, user string) {
	for !p.Try(user) {
		p.mu.Lock()
		if p.mu.left > 0 {
			p.mu.Unlock()
			continue
		}
		ready := p.mu.waiters.add(user, false)
		p.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			p.mu.Lock()
			p.mu.waiters.remove(user, ready)
			p.mu.Unlock()
		}
		return
	}
}

// next grants the steps that follow a poll.
func (p *Pacer) next() {
	p.mu.Lock()
	p.mu.left = p.steps
	for p.mu.left > 0 && len(p.mu.waiters.ring) > 0 {
		p.mu.left--
		p.mu.waiters.next()
	}
	poll := p.mu.left == 0
	p.mu.Unlock()
	if poll {
		p.poll(p.next)
	}
}

// aByte is what goes through the pipe.
var aByte = []byte{0}

// byPipe makes a pipe readable. The goroutine that reads it becomes ready when the network is polled. There is at most one byte in
// the pipe, so writing does not wait. Without a pipe the next steps are granted at once.
func (p *Pacer) byPipe(next func()) {
	if w := p.pipe(); w != nil {
		if _, err := w.Write(aByte); err == nil {
			return
		}
	}
	go next()
}

// pipe returns the pipe's end to write to, nil if there is none.
func (p *Pacer) pipe() *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.w != nil || p.mu.closed {
		return p.mu.w
	}
	r, w, err := os.Pipe()
	if err != nil { // out of file descriptors; next time perhaps
		return nil
	}
	p.mu.r, p.mu.w = r, w
	p.done.Go(func() {
		b := make([]byte, 1)
		for {
			if _, err := r.Read(b); err != nil {
				return
			}
			p.next()
		}
	})
	return w
}

// Close ends the Pacer's goroutine. From now on steps are granted without polls.
func (p *Pacer) Close() {
	p.mu.Lock()
	p.mu.closed = true
	r, w := p.mu.r, p.mu.w
	p.mu.Unlock()
	if r != nil {
		_ = w.Close()
		_ = r.Close()
	}
	p.done.Wait()
	p.mu.Lock()
	lost := p.mu.left == 0 // the byte may have been lost with the pipe
	p.mu.Unlock()
	if lost {
		p.next()
	}
}
