package activity

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metric"
)

const (
	// pauseTick is how often WatchPauses looks at the clock.
	pauseTick = 250 * time.Millisecond
	// pauseLeast is the shortest pause that counts. A busy machine is often late by some tenths of a second.
	pauseLeast = 500 * time.Millisecond
	// pausesKept bounds the pauses that are kept: as many as fit into RefusalMinutes.
	pausesKept = int(api.RefusalMinutes * time.Minute / pauseLeast)
)

// pauses are the times in which the process did not run: it was suspended, had no processor, or waited for memory from a swap device.
type pauses struct {
	mu     sync.Mutex // never held across I/O
	recent []pause    // of the last RefusalMinutes, the oldest first
	n      int64
	total  time.Duration
}

// pause is one of them.
type pause struct {
	end  time.Time
	long time.Duration
}

// WatchPauses notices when the process has not run for a while, until ctx ends.
func (s *Service) WatchPauses(ctx context.Context, log *slog.Logger) {
	var limited loglimit.Warner
	for last := time.Now(); timing.Sleep(ctx, pauseTick) == nil; last = time.Now() {
		if long := time.Since(last) - pauseTick; long >= pauseLeast {
			s.pauses.add(time.Now(), long)
			limited.Warn(log, "the process did not run for a while: it was suspended, or the machine had no processor or memory for it", "took", long.Round(time.Millisecond))
		}
	}
}

func (p *pauses) add(end time.Time, long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.total += long
	if len(p.recent) == pausesKept {
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	p.recent = append(p.recent, pause{end, long})
}

// Pauses returns how often the process did not run in the last RefusalMinutes minutes, and the longest of these times.
func (s *Service) Pauses() (n int64, longest time.Duration) {
	return s.pauses.since(time.Now().Add(-api.RefusalMinutes * time.Minute))
}

func (p *pauses) since(begin time.Time) (n int64, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent = slices.DeleteFunc(p.recent, func(x pause) bool { return x.end.Before(begin) })
	for _, x := range p.recent {
		longest = max(longest, x.long)
	}
	return int64(len(p.recent)), longest
}

// Collect sends the metrics of pauses.
func (s *Service) Collect(m metric.Sender) {
	s.pauses.mu.Lock()
	n, total := s.pauses.n, s.pauses.total
	s.pauses.mu.Unlock()
	m.Counter("process_pauses_total", "Times in which the node's process did not run for half a second or longer: it was suspended, or the machine had no processor or memory for it.", float64(n))
	m.Counter("process_paused_seconds_total", "Sum of the times that process_pauses_total counts.", total.Seconds())
}
