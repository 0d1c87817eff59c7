package gc

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

// Roots names the blobs that are needed.
type Roots interface {
	// Mark calls mark for each blob that was needed when Mark began and still is, in any order and
	// any number of times. It may include blobs that come or go meanwhile. An error means that some
	// may be missing; then the round fails and nothing is collected.
	Mark(ctx context.Context, mark func(local.ID)) error
}

// Sweeper collects garbage on all nodes. One should run at a time. A second one makes the round of
// the first fail, and does no harm.
type Sweeper struct {
	c     *Collector
	roots []Roots
	// downSince is since when each unreachable node has not answered.
	downSince map[string]time.Duration
}

// Report is the result of a round.
type Report struct {
	Round   uint64
	Passes  int // passes over the roots
	Nodes   int // nodes that took part
	Without []string
	Listed  int // extents and log replicas
	Garbage int // of those listed
	api.Swept
}

// ErrHalted means that an extent in quarantine was needed on some node, so the roots must have
// missed it. There are no more rounds until Resume.
var ErrHalted = errors.New("garbage collection is halted")

// NewSweeper returns a Sweeper. A blob that no root names and no node uses is garbage.
func (c *Collector) NewSweeper(roots ...Roots) *Sweeper {
	return &Sweeper{c: c, roots: roots, downSince: map[string]time.Duration{}}
}

// Run makes a round at once and then one every Config.Every, until ctx ends.
func (w *Sweeper) Run(ctx context.Context) {
	for {
		r, err := w.Round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.c.deps.Logger.Error("garbage collection failed", "round", r.Round, "err", err)
		default:
			w.c.deps.Logger.Info("garbage collected", "round", r.Round, "nodes", r.Nodes, "missing_nodes", r.Without, "listed", r.Listed, "garbage", r.Garbage,
				"quarantined", r.Quarantined, "removed", r.Removed, "bytes", r.Bytes)
		}
		if timing.SleepOn(ctx, w.c.deps.Clock, w.c.cfg.Every) != nil {
			return
		}
	}
}
