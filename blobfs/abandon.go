package blobfs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/internal/timing"
)

const (
	// abandonedEvery is how often the store checks whether abandoned blobs are garbage.
	abandonedEvery = time.Minute
	// abandonedGrace is how long an abandoned blob stays in quarantine, so that a reader that still
	// needs it can find it and halt garbage collection.
	abandonedGrace = 30 * time.Minute
	// abandonedMax bounds the blobs that are remembered. Others stay in quarantine for the full
	// grace period.
	abandonedMax = 16 << 10
)

// abandoned holds the shared blobs that one of their users has abandoned.
type abandoned struct {
	// mu guards the field in it. Never held across I/O.
	mu  sync.Mutex
	all map[ID]abandonedBlob
}

type abandonedBlob struct {
	extents []ExtentID
	// garbage is when the blob was first found to be in quarantine, 0 if it is not.
	garbage time.Duration
}

// Abandon reports that the caller no longer needs a blob that others may share. Once garbage
// collection finds the blob unused, it is deleted after abandonedGrace instead of the full grace
// period. So deleted and expired data leaves the disks early. A restart forgets abandoned blobs.
func (s *Store) Abandon(h Handle) {
	b := abandonedBlob{}
	for _, x := range h.Extents {
		b.extents = append(b.extents, ExtentID{Blob: h.ID, Index: x.Index})
	}
	s.abandoned.mu.Lock()
	defer s.abandoned.mu.Unlock()
	if s.abandoned.all == nil {
		s.abandoned.all = map[ID]abandonedBlob{}
	}
	if _, known := s.abandoned.all[h.ID]; !known && len(s.abandoned.all) < abandonedMax {
		s.abandoned.all[h.ID] = b
	}
}

// abandonLoop deletes abandoned blobs once they are garbage.
func (k *repairer) abandonLoop() {
	for timing.SleepOn(k.s.ctx, k.s.cluster.Clock, abandonedEvery) == nil {
		if err := k.dropAbandoned(k.s.ctx); err != nil && k.s.ctx.Err() == nil {
			k.s.log.Warn("abandoned blobs not deleted", "err", err)
		}
	}
}

func (k *repairer) dropAbandoned(ctx context.Context) error {
	s := k.s
	s.abandoned.mu.Lock()
	all := make(map[ID]abandonedBlob, len(s.abandoned.all))
	for id, b := range s.abandoned.all {
		all[id] = b
	}
	s.abandoned.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	for id, b := range all {
		garbage, whole := k.isGarbage(ctx, b.extents)
		now := s.cluster.Clock.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !garbage && whole: // already deleted
			s.forgetAbandoned(id)
			continue
		case !garbage:
			b.garbage = 0
		case b.garbage == 0:
			b.garbage = now
		case now-b.garbage >= abandonedGrace:
			if st, _, err := s.loadGCState(ctx); err != nil || st.halted != "" {
				return err // wait for the operator: a blob may be needed
			}
			if err := s.Delete(ctx, id); err != nil && !errors.Is(err, ErrNoBlob) {
				return err
			}
			s.forgetAbandoned(id)
			continue
		}
		s.abandoned.mu.Lock()
		s.abandoned.all[id] = b
		s.abandoned.mu.Unlock()
	}
	return nil
}

func (s *Store) forgetAbandoned(id ID) {
	s.abandoned.mu.Lock()
	defer s.abandoned.mu.Unlock()
	delete(s.abandoned.all, id)
}

// isGarbage reports whether every replica of a blob is in quarantine. If garbage is false, gone
// reports whether all nodes answered that they have none of it.
func (k *repairer) isGarbage(ctx context.Context, extents []ExtentID) (garbage, gone bool) {
	all := true
	quarantined := 0
	for len(extents) > 0 {
		some := extents[:min(len(extents), checkMax)]
		extents = extents[len(some):]
		answers := [][]api.Held{k.s.held(some)}
		for _, node := range k.s.peers.Others() {
			held, err := k.s.peers.Check(ctx, node, some)
			if err != nil {
				all = false
				continue
			}
			answers = append(answers, held)
		}
		for _, held := range answers {
			for i := range held {
				switch held[i].State {
				case api.Missing:
				case api.Unwanted:
					quarantined++
				default:
					return false, false
				}
			}
		}
	}
	return quarantined > 0, all && quarantined == 0
}
