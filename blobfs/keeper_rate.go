package blobfs

import (
	"context"
	"sync"
	"time"
)

// rate bounds how many bytes go through in a second. It lets through at most a second's worth
// at once, and whatever is more than that it makes those who come later wait for.
type rate struct {
	clock Clock

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	limit int64 // bytes per second; 0 is none
	free  time.Duration
	total int64
	// recent is what went through in each of the last seconds, the present one included.
	recent [rateSeconds]int64
	second int64
}

// rateSeconds is over how many seconds the present rate is told.
const rateSeconds = 10

func newRate(clock Clock, limit int64) *rate { return &rate{clock: clock, limit: limit} }

// set changes the limit.
func (r *rate) set(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
}

// wait waits until n bytes may go through.
func (r *rate) wait(ctx context.Context, n int64) error {
	r.mu.Lock()
	now := r.clock.Now()
	r.countLocked(now, n)
	d := time.Duration(0)
	if r.limit > 0 {
		r.free = max(r.free, now-time.Second)
		d = r.free - now
		r.free += time.Duration(float64(n) / float64(r.limit) * float64(time.Second))
	}
	r.mu.Unlock()
	return sleep(ctx, r.clock, d)
}

func (r *rate) countLocked(now time.Duration, n int64) {
	second := int64(now / time.Second)
	for range min(second-r.second, rateSeconds) {
		r.second++
		r.recent[r.second%rateSeconds] = 0
	}
	if r.second < second { // more than all of them have passed
		r.second = second
		r.recent[r.second%rateSeconds] = 0
	}
	r.total += n
	r.recent[r.second%rateSeconds] += n
}

// now returns the bytes per second of the last seconds, and all bytes so far.
func (r *rate) now() (perSecond, total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked(r.clock.Now(), 0)
	var sum int64
	for _, n := range r.recent {
		sum += n
	}
	return sum / rateSeconds, r.total
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, clock Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	fired, stop := clock.Timer(d)
	defer stop()
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
