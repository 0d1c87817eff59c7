package raftmeta

import (
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/loglimit"
)

// snapshotter takes snapshots when the log has grown, or the newest one is corrupt.
type snapshotter struct {
	*core
	// logBytes is the size of the log since the last snapshot, in bytes.
	logBytes atomic.Int64
	// due requests a snapshot. Its capacity is one.
	due chan struct{}
	// damage logs corrupt snapshots.
	damage loglimit.Warner
	// taken counts the snapshots since Open.
	taken atomic.Uint64
}

func newSnapshotter(c *core) *snapshotter { return &snapshotter{core: c, due: make(chan struct{}, 1)} }

// entryStored counts bytes written to the log and requests a snapshot when one is due. Raft's main
// goroutine calls it.
func (s *snapshotter) entryStored(bytes int64) {
	if s.logBytes.Add(bytes) < max(s.cfg.SnapshotBytes, s.machine.NamespaceBytes()) {
		return
	}
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// damaged requests a new snapshot of the state in memory, because the newest one on disk is
// corrupt. A leader detects this when it sends the snapshot.
func (s *snapshotter) damaged(err error) {
	s.damage.Warn(s.log, "raftmeta: snapshot is corrupt, writing a new one", "err", err)
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// loop takes snapshots when they are due. Raft's own trigger counts entries, whose sizes
// differ widely, and polls.
func (s *snapshotter) loop() {
	for {
		select {
		case <-s.due:
		case <-s.closing:
			return
		}
		size := s.logBytes.Load()
		start := time.Now()
		err := s.raft.Snapshot().Error()
		if err == nil {
			s.logBytes.Add(-size)
			s.taken.Add(1)
			s.log.Debug("raftmeta wrote a snapshot", "took", time.Since(start))
			continue
		}
		// Raft has logged why.
		select {
		case <-time.After(snapshotRetry):
		case <-s.closing:
			return
		}
	}
}

// snapshotRetry is the pause after a failed snapshot. The likely cause is a full disk.
const snapshotRetry = 30 * time.Second
