package local

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
)

// QuarantineLogReplica marks a replica that no extent list appears to name. It accepts no more
// appends. It stays in place and can be fenced as before. A cut, refill or read takes it out of
// quarantine, because only a list has the parameters for those calls. Errors: logproto.ErrNoExtent,
// ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *logReplicas) QuarantineLogReplica(ctx context.Context, log ID, seq, round uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if !e.quarantinedSince.IsZero() {
			return nil
		}
		return s.setQuarantine(e, round, time.Now())
	})
}

// ReviveLogReplica takes a replica out of quarantine. logproto.ErrNoExtent if it is not in
// quarantine.
func (s *logReplicas) ReviveLogReplica(ctx context.Context, log ID, seq uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if e.quarantinedSince.IsZero() {
			return logproto.ErrNoExtent
		}
		return s.setQuarantine(e, 0, time.Time{})
	})
}

// DropQuarantinedLog removes a replica in quarantine. logproto.ErrNoExtent if it is not in
// quarantine.
func (s *logReplicas) DropQuarantinedLog(ctx context.Context, log ID, seq uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if e.quarantinedSince.IsZero() {
			return logproto.ErrNoExtent
		}
		return s.dropReplica(e)
	})
}

// markReplica calls do with the log's op held.
func (s *logReplicas) markReplica(ctx context.Context, log ID, seq uint64, do func(e *replicaExtent) error) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		var l *replicaLog
		var e *replicaExtent
		if l, e, err = s.lockReplica(log, seq); err == nil {
			err = do(e)
			l.op.Unlock()
		}
	}
	if err != nil {
		return fmt.Errorf("quarantine extent %d of log %s: %w", seq, log, err)
	}
	return nil
}

// setQuarantine records in a replica's header that it is in quarantine since the given time; a zero
// time takes it out. The log's op must be held.
func (s *logReplicas) setQuarantine(e *replicaExtent, round uint64, since time.Time) error {
	l := e.log
	if e.f.folder.isRetired() {
		return e.f.folder.retiredError()
	}
	l.mu.Lock()
	e.x.Closed = true // as after a restart; its writer, if any, continues in another extent
	l.mu.Unlock()
	e.io.Lock()
	defer e.io.Unlock()
	l.mu.Lock()
	h := e.f.header.with(e.x.Meta)
	l.mu.Unlock()
	h.quarantineRound, h.quarantined = round, 0
	if !since.IsZero() {
		h.quarantined = since.Unix()
	}
	if err := e.f.writeHeaderLocked(h, &l.mu); err != nil {
		l.mu.Lock()
		e.damage = err
		l.mu.Unlock()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.quarantinedSince, e.createdRound = since, s.round.Load()
	if !since.IsZero() {
		e.createdRound = 0
	}
	return nil
}

// useReplica takes a replica out of quarantine because its log's list names it, and raises the
// alarm. The log's op must be held.
func (s *logReplicas) useReplica(e *replicaExtent) error {
	if e.quarantinedSince.IsZero() || s.cfg.ReadOnly {
		return nil
	}
	if e.log.extents[e.x.Seq] != e { // changes only with op held
		return logproto.ErrNoExtent
	}
	s.alarms.RaiseAlarm(fmt.Sprintf("extent %d of log %s was in use after %v in quarantine, since sweep round %d",
		e.x.Seq, e.log.id, time.Since(e.quarantinedSince).Round(time.Second), e.f.header.quarantineRound))
	return s.setQuarantine(e, 0, time.Time{})
}

// quarantineTime returns when the replica was quarantined according to its header, but not later
// than now; zero if it was not.
func (h *logHeader) quarantineTime() time.Time {
	if h.quarantined == 0 {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(-max(now.Sub(time.Unix(h.quarantined, 0)), 0))
}
