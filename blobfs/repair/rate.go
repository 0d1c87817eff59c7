package repair

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// rate limits bytes per second. It admits a burst of one second's worth. Larger requests pass at
// once and make later ones wait.
type rate struct {
	clock timing.Clock

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	limit int64 // bytes per second; 0 means no limit
	free  time.Duration
	total int64
	// recent is the bytes of each of the last seconds, including the current one.
	recent [rateSeconds]int64
	second int64
}

// rateSeconds is the number of seconds that the reported rate covers.
const rateSeconds = 10

func newRate(clock timing.Clock, limit int64) *rate { return &rate{clock: clock, limit: limit} }

// set changes the limit.
func (r *rate) set(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
}

// wait waits until n bytes are admitted.
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
	return timing.SleepOn(ctx, r.clock, d)
}

func (r *rate) countLocked(now time.Duration, n int64) {
	second := int64(now / time.Second)
	for range min(second-r.second, rateSeconds) {
		r.second++
		r.recent[r.second%rateSeconds] = 0
	}
	if r.second < second { // longer ago than recent covers
		r.second = second
		r.recent[r.second%rateSeconds] = 0
	}
	r.total += n
	r.recent[r.second%rateSeconds] += n
}

// now returns the mean rate of the last rateSeconds, in bytes per second, and the total bytes.
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
