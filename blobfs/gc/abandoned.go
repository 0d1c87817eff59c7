package gc

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
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
	all map[local.ID]abandonedBlob
}

type abandonedBlob struct {
	extents []local.ExtentID
	// garbage is when the blob was first found to be in quarantine, 0 if it is not.
	garbage time.Duration
}

// Abandon reports that the caller no longer needs a blob that others may share. Once garbage
// collection finds the blob unused, it is deleted after abandonedGrace instead of the full grace
// period. So deleted and expired data leaves the disks early. A restart forgets abandoned blobs.
func (c *Collector) Abandon(h local.Handle) {
	b := abandonedBlob{}
	for _, x := range h.Extents {
		b.extents = append(b.extents, local.ExtentID{Blob: h.ID, Index: x.Index})
	}
	c.abandoned.mu.Lock()
	defer c.abandoned.mu.Unlock()
	if c.abandoned.all == nil {
		c.abandoned.all = map[local.ID]abandonedBlob{}
	}
	if _, known := c.abandoned.all[h.ID]; !known && len(c.abandoned.all) < abandonedMax {
		c.abandoned.all[h.ID] = b
	}
}

// DropAbandoned deletes abandoned blobs once they are garbage, until ctx ends.
func (c *Collector) DropAbandoned(ctx context.Context) {
	for timing.SleepOn(ctx, c.deps.Clock, abandonedEvery) == nil {
		if err := c.dropAbandoned(ctx); err != nil && ctx.Err() == nil {
			c.deps.Logger.Warn("abandoned blobs not deleted", "err", err)
		}
	}
}

func (c *Collector) dropAbandoned(ctx context.Context) error {
	c.abandoned.mu.Lock()
	all := make(map[local.ID]abandonedBlob, len(c.abandoned.all))
	for id, b := range c.abandoned.all {
		all[id] = b
	}
	c.abandoned.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	for id, b := range all {
		garbage, whole := c.isGarbage(ctx, b.extents)
		now := c.deps.Clock.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !garbage && whole: // already deleted
			c.forgetAbandoned(id)
			continue
		case !garbage:
			b.garbage = 0
		case b.garbage == 0:
			b.garbage = now
		case now-b.garbage >= abandonedGrace:
			if st, _, err := c.loadState(ctx); err != nil || st.halted != "" {
				return err // wait for the operator: a blob may be needed
			}
			if err := c.deps.Delete(ctx, id); err != nil && !errors.Is(err, local.ErrNoBlob) {
				return err
			}
			c.forgetAbandoned(id)
			continue
		}
		c.abandoned.mu.Lock()
		c.abandoned.all[id] = b
		c.abandoned.mu.Unlock()
	}
	return nil
}

func (c *Collector) forgetAbandoned(id local.ID) {
	c.abandoned.mu.Lock()
	defer c.abandoned.mu.Unlock()
	delete(c.abandoned.all, id)
}

// isGarbage reports whether every replica of a blob on the nodes that answer is in quarantine. If garbage is false, gone
// reports whether all nodes answered that they have none of it.
func (c *Collector) isGarbage(ctx context.Context, extents []local.ExtentID) (garbage, gone bool) {
	all := true
	quarantined := 0
	for len(extents) > 0 {
		some := extents[:min(len(extents), api.CheckMax)]
		extents = extents[len(some):]
		answers := [][]api.Held{c.deps.Held(some)}
		for _, node := range c.deps.Peers.Others() {
			held, err := c.deps.Peers.Check(ctx, node, some)
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
				case api.Quarantined:
					quarantined++
				default:
					return false, false
				}
			}
		}
	}
	return quarantined > 0, all && quarantined == 0
}
