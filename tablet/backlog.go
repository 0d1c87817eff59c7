package tablet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/sched"
)

const (
	// pauseRatio is the pause after each slice of compaction work, as a multiple of the slice,
	// while the server is serving reads: the compaction uses an eighth of a processor.
	// pauseRatioBehind applies while files pile up: a quarter.
	pauseRatio       = 7
	pauseRatioBehind = 3
	// pauseRatioMinor is the multiple for a minor compaction while the server accepts writes.
	pauseRatioMinor = 1
)

// backlog is how far compactions are behind with the files of a tablet, or of any tablet of a
// server.
type backlog uint8

const (
	noBacklog backlog = iota
	// somewhatBehind: a group has at least halfway from FilesMerge, where merging starts, to half
	// of FilesMax files.
	somewhatBehind
	// farBehind: a group has half of FilesMax files. So many harm reads more than compactions do.
	farBehind
)

func (c *Config) backlogOf(files int) backlog {
	far := c.FilesMax / 2
	switch {
	case files >= far:
		return farBehind
	case files >= (c.FilesMerge+far)/2:
		return somewhatBehind
	}
	return noBacklog
}

// backlogs counts a server's tablets by backlog. The count of noBacklog is meaningless.
type backlogs [farBehind + 1]atomic.Int64

// worst returns the worst backlog of any tablet.
func (b *backlogs) worst() backlog {
	for x := farBehind; x > noBacklog; x-- {
		if b[x].Load() > 0 {
			return x
		}
	}
	return noBacklog
}

// setBacklog updates the tablet's backlog. mu is held.
func (t *Tablet) setBacklog(b backlog) {
	if b == t.mu.backlog {
		return
	}
	t.server.backlogs[b].Add(1)
	t.server.backlogs[t.mu.backlog].Add(-1)
	t.mu.backlog = b
}

// behind reports whether compactions are far behind with any tablet.
func (b *backlogs) behind() bool { return b.worst() == farBehind }

// newPacer returns the pacer of a merging or major compaction. It pauses while the server is serving
// reads, so that reads find a free processor. It does not pause while nothing is read, compactions
// are far behind, or the tablet's major compaction is late.
func (t *Tablet) newPacer(ctx context.Context) *sched.Pacer {
	s := t.server
	return sched.NewPacer(ctx, func() int64 { return s.stats.reads.Load() + s.stats.scans.Load() }, t.pauseRatio)
}

// newMinorPacer returns the pacer of a minor compaction. It pauses while the server accepts writes,
// so that commits find a free disk.
func (t *Tablet) newMinorPacer(ctx context.Context) *sched.Pacer {
	s := t.server
	return sched.NewPacer(ctx, func() int64 { return int64(s.commitLog.appliedNext.Load()) }, t.minorPauseRatio)
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
	if t.minorWaiters.Load() > 0 || s.writeMemory.HalfUsed() || s.commitLog.blob.Weak() > 0 {
		return 0
	}
	return pauseRatioMinor
}
