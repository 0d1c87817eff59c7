package tablet

import "time"

const (
	// gaitBytes is a turn of a compaction, raw: a block of 64 KiB. Two-pass compression, the slowest, works on it for 0.4 ms.
	gaitBytes = 64 << 10
	// gaitRest is how many times as long as a turn a compaction rests after it, if anything was read meanwhile: it takes a
	// quarter of a processor.
	gaitRest = 3
	// gaitWorkMax is what a turn is taken to have worked at most. 1 ms: one that takes longer waits for the disk or for a processor.
	gaitWorkMax = time.Millisecond
)

// gait is how fast a merging or major compaction goes: with rests while the server is read, so that reads find a processor that is free,
// and without while nobody reads or while compactions are behind. It is for one goroutine.
type gait struct {
	reads func() int64         // how many there were
	hurry func() bool          // whether there is no time to rest
	now   func() time.Duration // monotonic
	sleep func(time.Duration)

	began time.Duration // the turn
	seen  int64         // reads when it began
	bytes int           // of it so far
}

func (s *Server) newGait() *gait {
	begin := time.Now()
	g := &gait{
		reads: func() int64 { return s.stats.reads.Load() + s.stats.scans.Load() }, hurry: s.behind,
		now: func() time.Duration { return time.Since(begin) }, sleep: s.sleep,
	}
	g.turn()
	return g
}

// step says that so many bytes are the next to be worked on. It rests between turns.
func (g *gait) step(bytes int) {
	if g.bytes += bytes; g.bytes < gaitBytes {
		return
	}
	if g.reads() != g.seen && !g.hurry() {
		g.sleep(min(g.now()-g.began, gaitWorkMax) * gaitRest)
	}
	g.turn()
}

func (g *gait) turn() { g.began, g.seen, g.bytes = g.now(), g.reads(), 0 }
