package tablet

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
)

const (
	// sliceBytes is the work between two pauses, in raw bytes: 64 KiB read and 64 KiB written.
	// Two-pass compression, the slowest, takes 0.4 ms for it.
	sliceBytes = 128 << 10
	// pauseRatio is the pause after each slice of compaction work, as a multiple of the slice,
	// while the server is serving reads: the compaction uses an eighth of a processor.
	// pauseRatioBehind applies while files pile up: a quarter.
	pauseRatio       = 7
	pauseRatioBehind = 3
	// pauseRatioMinor is the multiple for a minor compaction while the server accepts writes.
	pauseRatioMinor = 1
	// sliceWorkMax bounds the time counted as work for each sliceBytes. 1 ms: anything longer was
	// spent waiting for the disk or for a processor.
	sliceWorkMax = time.Millisecond
)

// pacer paces a compaction. A merging or major one pauses while the server is serving reads, so
// that reads find a free processor. It does not pause while nothing is read, compactions are far
// behind, or the tablet's major compaction is late. A minor one pauses while the server accepts
// writes, so that commits find a free disk. A pacer is used by one goroutine.
type pacer struct {
	calls func() int64         // number of operations that have priority, so far
	ratio func() time.Duration // pause as a multiple of the slice
	now   func() time.Duration // monotonic
	sleep func(context.Context, time.Duration) error
	ctx   context.Context // of the compaction; ends any pause

	began time.Duration // start of the slice
	seen  int64         // calls at the start
	bytes int           // processed in the slice
}

func (t *Tablet) newPacer(ctx context.Context) *pacer {
	s := t.server
	return s.newPacer(ctx, func() int64 { return s.stats.reads.Load() + s.stats.scans.Load() }, t.pauseRatio)
}

func (t *Tablet) newMinorPacer(ctx context.Context) *pacer {
	s := t.server
	return s.newPacer(ctx, func() int64 { return int64(s.appliedNext.Load()) }, t.minorPauseRatio)
}

func (s *Server) newPacer(ctx context.Context, calls func() int64, ratio func() time.Duration) *pacer {
	begin := time.Now()
	g := &pacer{calls: calls, ratio: ratio, now: func() time.Duration { return time.Since(begin) }, sleep: timing.Sleep, ctx: ctx}
	g.beginSlice()
	return g
}

func (t *Tablet) pauseRatio() time.Duration {
	switch b := t.server.backlogs.worst(); {
	case b == farBehind || t.majorLate():
		return 0
	case b == somewhatBehind:
		return pauseRatioBehind
	}
	return pauseRatio
}

// minorPauseRatio returns 0 if a caller waits for the minor compaction, memory for writes gets
// short, or the log lacks redundancy.
func (t *Tablet) minorPauseRatio() time.Duration {
	s := t.server
	if t.minorWaiters.Load() > 0 || s.memtables.Load()+s.charged.Load() > s.cfg.MemtablesBytesMax/2 || s.logWriter.Weak() > 0 {
		return 0
	}
	return pauseRatioMinor
}

// step records raw bytes read or written. It pauses between slices.
func (g *pacer) step(bytes int) {
	if g.bytes += bytes; g.bytes < sliceBytes {
		return
	}
	if g.calls() != g.seen {
		g.pause(min(g.now()-g.began, sliceWorkMax*time.Duration(g.bytes/sliceBytes)))
	}
	g.beginSlice()
}

// pauseStep bounds a sleep before ratio is evaluated again. One entry may be 100 MiB and its pause
// seconds, during which an operation may begin to wait for the compaction.
const pauseStep = 10 * time.Millisecond

// pause sleeps for ratio times work, until ctx ends or ratio shows that the compaction has become
// urgent.
func (g *pacer) pause(work time.Duration) {
	for began := g.now(); g.ctx.Err() == nil; {
		left := work*g.ratio() - (g.now() - began)
		if left <= 0 {
			return
		}
		_ = g.sleep(g.ctx, min(left, pauseStep)) // the loop checks ctx
	}
}

func (g *pacer) beginSlice() { g.began, g.seen, g.bytes = g.now(), g.calls(), 0 }
