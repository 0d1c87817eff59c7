package local

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
)

// QuarantineLogReplica marks a replica as one that no list seems to name: it takes no more appends. It
// stays where it is and can be fenced as before; whoever cuts, refills or reads it, which only lists
// tell how to, takes it out of quarantine. logproto.ErrNoExtent; ErrFolderRetired, ErrReadOnly,
// ErrClosed.
func (s *Store) QuarantineLogReplica(ctx context.Context, log ID, seq, round uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if !e.quarantinedSince.IsZero() {
			return nil
		}
		return s.setQuarantine(e, round, time.Now())
	})
}

// ReviveLogReplica takes a replica out of quarantine. logproto.ErrNoExtent if it is not in it.
func (s *Store) ReviveLogReplica(ctx context.Context, log ID, seq uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if e.quarantinedSince.IsZero() {
			return logproto.ErrNoExtent
		}
		return s.setQuarantine(e, 0, time.Time{})
	})
}

// DropQuarantinedLog removes a replica that is in quarantine. logproto.ErrNoExtent if it is not.
func (s *Store) DropQuarantinedLog(ctx context.Context, log ID, seq uint64) error {
	return s.markReplica(ctx, log, seq, func(e *replicaExtent) error {
		if e.quarantinedSince.IsZero() {
			return logproto.ErrNoExtent
		}
		return s.dropReplica(e)
	})
}

// markReplica calls do with the log's op held.
func (s *Store) markReplica(ctx context.Context, log ID, seq uint64, do func(e *replicaExtent) error) error {
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
		return fmt.Errorf("quarantine of extent %d of log %s: %w", seq, log, err)
	}
	return nil
}

// setQuarantine writes into a replica's header that it is in quarantine, or is not any more if since is
// zero. Called with the log's op held.
func (s *Store) setQuarantine(e *replicaExtent, round uint64, since time.Time) error {
	l := e.log
	if e.f.folder.isRetired() {
		return e.f.folder.retiredError()
	}
	l.mu.Lock()
	e.x.Closed = true // as after a restart: its writer, should there be one, goes on elsewhere
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
	e.quarantinedSince, e.born = since, s.round.Load()
	if !since.IsZero() {
		e.born = 0
	}
	return nil
}

// useReplica takes a replica out of quarantine for somebody who knows of it, so that it is needed, and
// raises the alarm. Called with the log's op held.
func (s *Store) useReplica(e *replicaExtent) error {
	if e.quarantinedSince.IsZero() || s.cfg.ReadOnly {
		return nil
	}
	if e.log.extents[e.x.Seq] != e { // which changes only with op held
		return logproto.ErrNoExtent
	}
	s.RaiseAlarm(fmt.Sprintf("extent %d of log %s was used after %v in quarantine, where round %d of the sweep had put it",
		e.x.Seq, e.log.id, time.Since(e.quarantinedSince).Round(time.Second), e.f.header.quarantineRound))
	return s.setQuarantine(e, 0, time.Time{})
}

// quarantineAge returns since when a replica is in quarantine whose header was read.
func (h *logHeader) quarantineAge() time.Time {
	if h.quarantined == 0 {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(-max(now.Sub(time.Unix(h.quarantined, 0)), 0))
}
