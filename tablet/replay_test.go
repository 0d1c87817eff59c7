package tablet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/logbody"
)

// Open starts a server that has all tablets, as in a process on its own. It recovers them
// from their files and the commit logs of earlier runs. A node uses Start and Load instead. If data is damaged, the error is a *blobfs.CorruptError or a *sstable.CorruptError.
func Open(ctx context.Context, cfg Config, tablets []Load) (*Server, error) {
	return newServer(cfg, false, func(s *Server) error { return (&logRecovery{Server: s}).run(ctx, tablets) })
}

// logRecovery recovers a server from the commit logs of its earlier runs.
type logRecovery struct {
	*Server
	byTable     map[uint64]*served // by id
	diskWasFull bool
}

// run loads the tablets, replays the commit logs of earlier runs into their memtables and
// begins a new log (paper §5.3).
func (s *logRecovery) run(ctx context.Context, tablets []Load) error {
	s.byTable = map[uint64]*served{}
	next := uint64(1)
	for _, l := range tablets {
		t, err := s.newTablet(ctx, l)
		if err != nil {
			return err
		}
		if err := s.register(context.Background(), l.Schema.Name, t); err != nil {
			t.unload(false)
			return err
		}
		s.byTable[t.table] = (*s.served.tables.Load())[l.Schema.Name]
		next = max(next, l.Meta.lastSeq()+1)
	}
	logs, err := s.oldLogsInOrder(ctx)
	if err != nil {
		return err
	}
	for _, l := range logs {
		last, needed, err := s.replay(ctx, l)
		if err != nil {
			return fmt.Errorf("recover from commit log %s: %w", l, err)
		}
		if !needed {
			if err := s.cfg.Blobs.RemoveLog(ctx, l); err != nil {
				return fmt.Errorf("remove commit log %s: %w", l, err)
			}
		}
		next = max(next, last+1)
	}
	if err := s.commitLog.begin(ctx, next, s.deletions.AddLog); err != nil {
		return err
	}
	for _, t := range s.served.all() {
		// The applier has no work yet, so this goroutine may do its work.
		t.writer.freeze()
	}
	s.commitLog.trim()
	return nil
}

// oldLogsInOrder returns the logs of earlier runs by their first sequence numbers, each of which is
// above all those of the log before. All older entries are then replayed before a memtable fills up
// and is written out.
func (s *logRecovery) oldLogsInOrder(ctx context.Context) ([]blobfs.ID, error) {
	var logs []blobfs.ID
	first := map[blobfs.ID]uint64{}
	ids, err := s.cfg.Blobs.Logs(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		seq, err := s.firstSeq(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("open commit log %s: %w", id, err)
		}
		if seq == 0 { // empty
			if err := s.cfg.Blobs.RemoveLog(ctx, id); err != nil {
				return nil, fmt.Errorf("remove empty commit log %s: %w", id, err)
			}
			continue
		}
		first[id] = seq
		logs = append(logs, id)
	}
	slices.SortFunc(logs, func(a, b blobfs.ID) int { return cmp.Compare(first[a], first[b]) })
	return logs, nil
}

// firstSeq returns the first sequence number in a log, or 0 if it is empty.
func (s *logRecovery) firstSeq(ctx context.Context, id blobfs.ID) (uint64, error) {
	r, err := s.cfg.Blobs.OpenLog(ctx, id)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	batch, _, err := r.Next()
	if errors.Is(err, io.EOF) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	rec, _, err := commitlog.ReadRecord(batch)
	return rec.First, err
}

// replay adds the records of a log that are in no file to the memtables of their tablets. It finds
// the tablet by the row, since a record may be older than a split or a merge. It returns the log's
// highest sequence number, and whether any of its records was added.
func (s *logRecovery) replay(ctx context.Context, id blobfs.ID) (maxSeq uint64, needed bool, err error) {
	r, err := s.cfg.Blobs.OpenLog(ctx, id)
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	for {
		batch, pos, err := r.Next()
		if errors.Is(err, io.EOF) {
			return maxSeq, needed, nil
		}
		if err != nil {
			return 0, false, err
		}
		for len(batch) > 0 {
			var rec commitlog.Record
			if rec, batch, err = commitlog.ReadRecord(batch); err != nil {
				return 0, false, fmt.Errorf("batch before position %d: %w", pos, err)
			}
			last := rec.First + uint64(rec.Ops) - 1
			maxSeq = max(maxSeq, last)
			row, err := logbody.Row(rec.Body)
			if err != nil {
				return 0, false, fmt.Errorf("record %d of tablet %d: %w", rec.First, rec.Tablet, err)
			}
			sv := s.byTable[rec.Table]
			if sv == nil {
				continue // of a dropped table
			}
			t := sv.at(row)
			if t == nil || last <= t.meta.current.Redo {
				continue // in a file
			}
			if err := t.writer.add(rec.Body, rec.First, rec.Ops, rec.Time); err != nil {
				return 0, false, fmt.Errorf("record %d of tablet %d: %w", rec.First, t.id, err)
			}
			needed = true
			t.views.applied.Store(max(t.views.applied.Load(), last))
			t.writer.stamped.Store(max(t.writer.stamped.Load(), rec.Time))
			if err := s.spill(ctx, t); err != nil {
				return 0, false, err
			}
		}
	}
}

// spill writes out a memtable that has filled up during recovery.
func (s *logRecovery) spill(ctx context.Context, t *Tablet) error {
	if s.diskWasFull || t.writer.mem.Bytes() < s.cfg.MemtableBytes && s.writeMemory.Memtables() < s.cfg.MemtablesBytesMax/2 {
		return nil
	}
	t.writer.freeze()
	err := t.minor.run(ctx)
	if errors.Is(err, blobfs.ErrDiskFull) {
		// Holding the log in memory is better than not serving.
		s.diskWasFull = true
		s.log.Warn("disk full: replaying commit log into memory", "tablet", t.id, "memtables", s.writeMemory.Memtables())
		return nil
	}
	return err
}
