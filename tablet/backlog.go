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

// behind reports whether compactions are far behind with any tablet.
func (b *backlogs) behind() bool { return b.worst() == farBehind }

// pacer returns the pacer of a merging or major compaction. It pauses while the server is serving
// reads, so that reads find a free processor. It does not pause while nothing is read, compactions
// are far behind, or the tablet's major compaction is late.
func (c *mergeCompactor) pacer(ctx context.Context) *sched.Pacer {
	t := c.tablet
	s := t.server
	return sched.NewPacer(ctx, func() int64 { return s.stats.reads.Load() + s.stats.scans.Load() }, c.pauseRatio)
}

// pacer returns the pacer of a minor compaction. It pauses while the server accepts writes,
// so that commits find a free disk.
func (c *minorCompactor) pacer(ctx context.Context) *sched.Pacer {
	t := c.tablet
	s := t.server
	return sched.NewPacer(ctx, func() int64 { return int64(s.commitLog.appliedNext.Load()) }, c.pauseRatio)
}

// pauseRatio returns the pause after each slice of the compaction, as a multiple of the slice: 0 if
// the tablet's major compaction is late or compactions are far behind, less than otherwise if they
// are somewhat behind.
func (c *mergeCompactor) pauseRatio() time.Duration {
	t := c.tablet
	switch b := t.server.backlogs.worst(); {
	case b == farBehind || t.meta.majorLate():
		return 0
	case b == somewhatBehind:
		return pauseRatioBehind
	}
	return pauseRatio
}

// pauseRatio returns 0 if a caller waits for the minor compaction, memory for writes gets
// short, or the log lacks redundancy.
func (c *minorCompactor) pauseRatio() time.Duration {
	t := c.tablet
	s := t.server
	if c.waiters.Load() > 0 || s.writeMemory.HalfUsed() || s.commitLog.blob.Weak() > 0 {
		return 0
	}
	return pauseRatioMinor
}
