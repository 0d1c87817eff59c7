package disks

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/vfs"
)

// The history of the used space is kept for the forecast of when disks will be full: each minute of the last hour in memory, and each
// hour of the last week in a file.
const (
	// historyFile is in the first data directory: a line for each hour, the Unix time in s and the used bytes. A damaged one is ignored.
	historyFile = "disk-history"
	// historyFileMax bounds the size of the file that is read, in bytes. 168 lines take less than 7 KiB.
	historyFileMax = 64 << 10
	minutesMax     = 60
	hoursMax       = 7 * 24
)

// growthPeriods are the periods over which the growth of the used space is observed, the shortest first.
var growthPeriods = [...]time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// sample is the used space at a time.
type sample struct{ at, used int64 } // in s since 1970, in bytes

// history has the used space of the past.
type history struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		minutes, hours []sample // the oldest first
	}
}

// add adds a sample, and reports whether it is the first one of an hour. Samples that are later are dropped: the clock was set back.
func (h *history) add(s sample) (hour bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	later := func(x sample) bool { return x.at >= s.at }
	h.mu.minutes = slices.DeleteFunc(h.mu.minutes, later)
	h.mu.hours = slices.DeleteFunc(h.mu.hours, later)
	h.mu.minutes = last(append(h.mu.minutes, s), minutesMax)
	if n := len(h.mu.hours); n > 0 && s.at-h.mu.hours[n-1].at < int64(time.Hour/time.Second) {
		return false
	}
	h.mu.hours = last(append(h.mu.hours, s), hoursMax)
	return true
}

// last returns at most the last n of some samples.
func last(all []sample, n int) []sample { return all[max(0, len(all)-n):] }

// growth returns the growth of the used space, in bytes a day, and the period over which it was observed. Of the last hour, day and week
// it takes the one by which disks with that much free space are full the soonest, if its slope is trusted so long: see api.FullIn. Else the longest
// one. Over is 0 while less than half of the last hour was observed.
func (h *history) growth(now, free int64) (perDay int64, over time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	trusted := false
	for i, period := range growthPeriods {
		all := h.mu.hours
		if i == 0 {
			all = h.mu.minutes
		}
		of := slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return s.at < now-int64(period/time.Second) })
		if len(of) < 3 || of[len(of)-1].at-of[0].at < int64(period/time.Second)/2 {
			continue // after a restart the last hour is not known
		}
		g := int64(slope(of) * 24 * 3600)
		_, is := api.FullIn(free, g, period)
		if !trusted || is && g > perDay {
			perDay, over = g, period
		}
		trusted = trusted || is
	}
	return perDay, over
}

// slope returns the growth by the method of least squares, in bytes per s.
func slope(all []sample) float64 {
	var at, used float64
	n := float64(len(all))
	for _, s := range all {
		at += float64(s.at-all[0].at) / n
		used += float64(s.used-all[0].used) / n
	}
	var products, squares float64
	for _, s := range all {
		x := float64(s.at-all[0].at) - at
		products += x * (float64(s.used-all[0].used) - used)
		squares += x * x
	}
	return products / squares
}

// Growth returns by how much the used space grows, in bytes a day, and over which period that was observed: an hour, a day or a week, 0 if
// it is not known yet.
func (s *Service) Growth() (perDay int64, over time.Duration) {
	_, free := s.Space()
	return s.history.growth(time.Now().Unix(), free)
}

// Observe records the used space each minute, until the node's context ends. It returns at once.
func (s *Service) Observe() {
	s.Background.Go(func() {
		s.history.mu.hours = s.readHistory()
		for timing.Sleep(s.Ctx, time.Minute) == nil {
			total, free := s.Space()
			if total > 0 && s.history.add(sample{time.Now().Unix(), total - free}) {
				s.writeHistory()
			}
		}
	})
}

// readHistory returns the hours of the file, none if it is missing or damaged.
func (s *Service) readHistory() (hours []sample) {
	b, err := vfs.ReadFile(s.FS, filepath.Join(s.Dirs[0], historyFile))
	if err != nil || len(b) > historyFileMax {
		return nil
	}
	for line := range bytes.Lines(b) {
		var x sample
		if n, err := fmt.Sscanf(string(line), "%d %d\n", &x.at, &x.used); n != 2 || err != nil || x.used < 0 || len(hours) > 0 && x.at <= hours[len(hours)-1].at {
			return nil
		}
		hours = append(hours, x)
	}
	return last(hours, hoursMax)
}

// writeHistory writes the hours to the file. On a full disk they stay in memory.
func (s *Service) writeHistory() {
	s.history.mu.Lock()
	hours := slices.Clone(s.history.mu.hours)
	s.history.mu.Unlock()
	var b bytes.Buffer
	for _, x := range hours {
		fmt.Fprintf(&b, "%d %d\n", x.at, x.used)
	}
	_ = vfs.WriteFile(s.FS, filepath.Join(s.Dirs[0], historyFile), b.Bytes())
}
