package sched

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
)

const (
	// SliceBytes is the work between two pauses, in raw bytes: 64 KiB read and 64 KiB written.
	// Two-pass compression, the slowest, takes 0.4 ms for it.
	SliceBytes = 128 << 10
	// sliceWorkMax bounds the time counted as work for each SliceBytes. 1 ms: anything longer was
	// spent waiting for the disk or for a processor.
	sliceWorkMax = time.Millisecond
)

// Pacer paces a compaction: it pauses between slices of work while operations that have priority
// arrive. It is used by one goroutine.
type Pacer struct {
	calls func() int64                               // number of operations that have priority, so far
	ratio func() time.Duration                       // pause as a multiple of the slice
	now   func() time.Duration                       // monotonic
	Sleep func(context.Context, time.Duration) error // of a pause; replaced only by tests
	ctx   context.Context                            // of the compaction; ends any pause

	began time.Duration // start of the slice
	seen  int64         // calls at the start
	bytes int           // processed in the slice
}

// NewPacer returns a pacer for a compaction that begins now. calls counts the operations that have
// priority; ratio returns the pause as a multiple of the slice.
func NewPacer(ctx context.Context, calls func() int64, ratio func() time.Duration) *Pacer {
	begin := time.Now()
	g := &Pacer{calls: calls, ratio: ratio, now: func() time.Duration { return time.Since(begin) }, Sleep: timing.Sleep, ctx: ctx}
	g.beginSlice()
	return g
}

// Step records raw bytes read or written. It pauses between slices.
func (g *Pacer) Step(bytes int) {
	if g.bytes += bytes; g.bytes < SliceBytes {
		return
	}
	if g.calls() != g.seen {
		g.pause(min(g.now()-g.began, sliceWorkMax*time.Duration(g.bytes/SliceBytes)))
	}
	g.beginSlice()
}

// pauseStep bounds a sleep before ratio is evaluated again. One entry may be 100 MiB and its pause
// seconds, during which an operation may begin to wait for the compaction.
const pauseStep = 10 * time.Millisecond

// pause sleeps for ratio times work, until ctx ends or ratio shows that the compaction has become
// urgent.
func (g *Pacer) pause(work time.Duration) {
	for began := g.now(); g.ctx.Err() == nil; {
		left := work*g.ratio() - (g.now() - began)
		if left <= 0 {
			return
		}
		_ = g.Sleep(g.ctx, min(left, pauseStep)) // the loop checks ctx
	}
}

func (g *Pacer) beginSlice() { g.began, g.seen, g.bytes = g.now(), g.calls(), 0 }
