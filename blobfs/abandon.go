package blobfs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

const (
	// abandonedEvery is how often it is looked whether what was abandoned is garbage.
	abandonedEvery = time.Minute
	// abandonedGrace is how long such a blob stays in quarantine: long enough for a reader to come upon it, which halts the sweep.
	abandonedGrace = 30 * time.Minute
	// abandonedMax bounds the blobs that are remembered. Others stay for the time of grace that all have.
	abandonedMax = 16 << 10
)

// abandoned are blobs that one who shared them with others needs no more.
type abandoned struct {
	// mu guards the field in it. Never held across I/O.
	mu  sync.Mutex
	all map[ID]abandonedBlob
}

type abandonedBlob struct {
	extents []ExtentID
	// garbage is since when the blob is known to be in quarantine, 0 if it is not.
	garbage time.Duration
}

// Abandon says that the caller needs a blob no more which others may need. When the sweep has found that nobody does, it is
// deleted half an hour later: what was deleted from tables, or has expired, is not to stay on disk for the time of grace that is for what
// nobody knows of. This is not remembered beyond the process's end.
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

// abandoning deletes what was abandoned, once it is garbage.
func (k *keeper) abandoning() {
	for sleep(k.s.ctx, k.s.cluster.Clock, abandonedEvery) == nil {
		if err := k.dropAbandoned(k.s.ctx); err != nil && k.s.ctx.Err() == nil {
			k.s.log.Warn("abandoned blobs are not deleted", "err", err)
		}
	}
}

func (k *keeper) dropAbandoned(ctx context.Context) error {
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
		case !garbage && whole: // it is gone already
			s.forgetAbandoned(id)
			continue
		case !garbage:
			b.garbage = 0
		case b.garbage == 0:
			b.garbage = now
		case now-b.garbage >= abandonedGrace:
			if st, _, err := s.loadSweepState(ctx); err != nil || st.halted != "" {
				return err // a person looks at what may be needed
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

// isGarbage tells whether a blob is in quarantine wherever it is. If not, gone tells that all nodes have answered that they have
// nothing of it.
func (k *keeper) isGarbage(ctx context.Context, extents []ExtentID) (garbage, gone bool) {
	all := true
	unwanted := 0
	for len(extents) > 0 {
		some := extents[:min(len(extents), checkMax)]
		extents = extents[len(some):]
		answers := [][]api.Held{k.s.held(some)}
		for _, node := range k.s.others() {
			held, err := k.check(ctx, node, some)
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
					unwanted++
				default:
					return false, false
				}
			}
		}
	}
	return unwanted > 0, all && unwanted == 0
}
