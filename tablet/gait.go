package tablet

import (
	"context"
	"time"
)

const (
	// gaitBytes is the work between two pauses, in raw bytes: 64 KiB read and 64 KiB written.
	// Two-pass compression, the slowest, takes 0.4 ms for it.
	gaitBytes = 128 << 10
	// gaitRest is the pause after each slice of compaction work, as a multiple of the slice, while
	// the server is serving reads: the compaction uses an eighth of a processor. gaitRestBehind
	// applies while files pile up: a quarter.
	gaitRest       = 7
	gaitRestBehind = 3
	// gaitRestMinor is the multiple for a minor compaction while the server accepts writes.
	gaitRestMinor = 1
	// gaitWorkMax bounds the time counted as work for each gaitBytes. 1 ms: anything longer was
	// spent waiting for the disk or for a processor.
	gaitWorkMax = time.Millisecond
)

// gait paces a compaction. A merging or major one pauses while the server is serving reads, so that
// reads find a free processor. It does not pause while nothing is read, compactions are far behind,
// or the tablet's major compaction is late. A minor one pauses while the server accepts writes, so
// that commits find a free disk. A gait is used by one goroutine.
type gait struct {
	calls func() int64         // number of operations that have priority, so far
	rest  func() time.Duration // pause as a multiple of the slice
	now   func() time.Duration // monotonic
	sleep func(context.Context, time.Duration)
	ctx   context.Context // of the compaction; ends any pause

	began time.Duration // start of the slice
	seen  int64         // calls at the start
	bytes int           // processed in the slice
}

func (t *Tablet) newGait(ctx context.Context) *gait {
	s := t.server
	return s.newGait(ctx, func() int64 { return s.stats.reads.Load() + s.stats.scans.Load() }, t.gaitRest)
}

func (t *Tablet) newMinorGait(ctx context.Context) *gait {
	s := t.server
	return s.newGait(ctx, func() int64 { return int64(s.appliedNext.Load()) }, t.minorRest)
}

func (s *Server) newGait(ctx context.Context, calls func() int64, rest func() time.Duration) *gait {
	begin := time.Now()
	g := &gait{calls: calls, rest: rest, now: func() time.Duration { return time.Since(begin) }, sleep: sleepIn, ctx: ctx}
	g.turn()
	return g
}

func (t *Tablet) gaitRest() time.Duration {
	switch b := t.server.backlogs.worst(); {
	case b == farBehind || t.majorLate():
		return 0
	case b == somewhatBehind:
		return gaitRestBehind
	}
	return gaitRest
}

// minorRest returns 0 if a caller waits for the minor compaction, memory for writes gets short, or
// the log lacks redundancy.
func (t *Tablet) minorRest() time.Duration {
	s := t.server
	if t.minorWaiters.Load() > 0 || s.memtables.Load()+s.charged.Load() > s.cfg.MemtablesBytesMax/2 || s.logWriter.Weak() > 0 {
		return 0
	}
	return gaitRestMinor
}

// step records raw bytes read or written. It pauses between slices.
func (g *gait) step(bytes int) {
	if g.bytes += bytes; g.bytes < gaitBytes {
		return
	}
	if g.calls() != g.seen {
		g.pause(min(g.now()-g.began, gaitWorkMax*time.Duration(g.bytes/gaitBytes)))
	}
	g.turn()
}

// pauseStep bounds a sleep before rest is evaluated again. One entry may be 100 MiB and its pause
// seconds, during which an operation may begin to wait for the compaction.
const pauseStep = 10 * time.Millisecond

// pause sleeps for rest times work, until ctx ends or rest shows that the compaction has become
// urgent.
func (g *gait) pause(work time.Duration) {
	for began := g.now(); g.ctx.Err() == nil; {
		left := work*g.rest() - (g.now() - began)
		if left <= 0 {
			return
		}
		g.sleep(g.ctx, min(left, pauseStep))
	}
}

// sleepIn sleeps for d or until ctx ends.
func sleepIn(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (g *gait) turn() { g.began, g.seen, g.bytes = g.now(), g.calls(), 0 }
