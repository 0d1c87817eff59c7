package tablet

import (
	"context"
	"time"
)

const (
	// gaitBytes is a turn of a compaction: a block of 64 KiB that is read, and one that is written, raw. Two-pass compression, the
	// slowest, works on these for 0.4 ms.
	gaitBytes = 128 << 10
	// gaitRest is how many times as long as a turn a compaction rests after it, if anything was read meanwhile: it takes an eighth of
	// a processor. With files piling up it is gaitRestBehind: a quarter.
	gaitRest       = 7
	gaitRestBehind = 3
	// gaitRestMinor is the same of a minor compaction beside writes.
	gaitRestMinor = 1
	// gaitWorkMax is what each gaitBytes of a turn are taken to have been worked on at most. 1 ms: what takes longer waits for the disk or
	// for a processor.
	gaitWorkMax = time.Millisecond
)

// gait is how fast a compaction goes: a merging or major one with rests while the server is read, so that reads find a processor that is
// free, and without while nobody reads, compactions are far behind, or the tablet's major one is late; a minor one with rests while the server is written,
// so that commits find a disk that is free. It is for one goroutine.
type gait struct {
	calls func() int64         // how many there were of those to which it gives way
	rest  func() time.Duration // how many times as long as a turn to rest
	now   func() time.Duration // monotonic
	sleep func(context.Context, time.Duration)
	ctx   context.Context // of the compaction: no pause outlives it

	began time.Duration // the turn
	seen  int64         // calls when it began
	bytes int           // of it so far
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

// minorRest is 0 when somebody waits for the minor compaction, memory for writes gets short, or the log is not as safe as it should be.
func (t *Tablet) minorRest() time.Duration {
	s := t.server
	if t.minorWaiters.Load() > 0 || s.memtables.Load()+s.charged.Load() > s.cfg.MemtablesBytesMax/2 || s.logWriter.Weak() > 0 {
		return 0
	}
	return gaitRestMinor
}

// step says that so many bytes are read, or written, raw. It rests between turns.
func (g *gait) step(bytes int) {
	if g.bytes += bytes; g.bytes < gaitBytes {
		return
	}
	if g.calls() != g.seen {
		g.pause(min(g.now()-g.began, gaitWorkMax*time.Duration(g.bytes/gaitBytes)))
	}
	g.turn()
}

// pauseStep is the longest pause in which rest is not asked again. One entry may be 100 MiB, and its pause seconds, in which
// an operation may begin to wait for the compaction.
const pauseStep = 10 * time.Millisecond

// pause pauses for rest times the work, until ctx ends or rest reports that the compaction has become urgent.
func (g *gait) pause(work time.Duration) {
	for began := g.now(); g.ctx.Err() == nil; {
		left := work*g.rest() - (g.now() - began)
		if left <= 0 {
			return
		}
		g.sleep(g.ctx, min(left, pauseStep))
	}
}

// sleepIn waits for d or until ctx ends.
func sleepIn(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (g *gait) turn() { g.began, g.seen, g.bytes = g.now(), g.calls(), 0 }
