package sched

import (
	"context"
	"testing"
	"time"
)

// A compaction pauses while the server is serving reads, for a multiple of its work.
func TestPacer(t *testing.T) {
	const slice = 200 * time.Microsecond
	for _, c := range []struct {
		name        string
		perSlice    int64 // reads per slice
		ratio       time.Duration
		work, pause time.Duration // of a slice
	}{
		{"no reads", 0, 7, slice, 0},
		{"reads", 5, 7, slice, 7 * slice},
		{"reads, and compactions are somewhat behind", 5, 3, slice, 3 * slice},
		{"reads, and compactions are far behind", 5, 0, slice, 0},
		{"reads, and a disk that is slow", 5, 7, 50 * time.Millisecond, 7 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now, slept time.Duration
			var reads int64
			g := &Pacer{
				calls: func() int64 { return reads }, ratio: func() time.Duration { return c.ratio }, now: func() time.Duration { return now },
				Sleep: func(_ context.Context, d time.Duration) error { slept, now = slept+d, now+d; return nil }, ctx: t.Context(),
			}
			g.beginSlice()
			for range 10 {
				for range SliceBytes / 4096 {
					now += c.work / (SliceBytes / 4096)
					g.Step(4096)
				}
				reads += c.perSlice
			}
			// Reads before the first slice do not count.
			if slept != 9*c.pause {
				t.Errorf("paused %v in ten slices, want %v in nine of them", slept, c.pause)
			}
		})
	}
}

// The pause after a slice of work on one large value ends early when the compaction is cancelled,
// or when an operation begins to wait for it.
func TestPauseEndsEarly(t *testing.T) {
	for _, what := range []string{"interrupted", "urgent", "neither"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var now time.Duration
		ratio := time.Duration(7)
		g := &Pacer{ctx: ctx, calls: func() int64 { return int64(now) }, ratio: func() time.Duration { return ratio }, now: func() time.Duration { return now }}
		g.Sleep = func(ctx context.Context, d time.Duration) error {
			if now += d; now < 2*time.Second {
				return nil
			}
			switch what {
			case "interrupted":
				cancel()
			case "urgent":
				ratio = 0
			}
			return nil
		}
		g.beginSlice()
		now += time.Second
		g.Step(100 << 20)
		paused := now - time.Second
		if whole := 100 << 20 / SliceBytes * sliceWorkMax * 7; what == "neither" && paused != whole || what != "neither" && paused > time.Second+2*pauseStep {
			t.Errorf("%s: paused %v", what, paused)
		}
	}
}
