package blobs

import (
	"cmp"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// mastershipPoll is the interval at which the node checks whether it is to collect garbage.
const mastershipPoll = 5 * time.Second

// CollectGarbage collects garbage of the block store while this node is the master, until it closes.
func (bs *Service) CollectGarbage() {
	tick := time.NewTicker(mastershipPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-bs.Ctx.Done():
			return
		}
		if bs.MasterEpoch() != 0 {
			bs.sweepWhileMaster()
		}
	}
}

// sweepWhileMaster collects garbage until this mastership ends.
func (bs *Service) sweepWhileMaster() {
	epoch := bs.MasterEpoch()
	ctx, stop := timing.While(bs.Ctx, mastershipPoll, func() bool { return bs.MasterEpoch() == epoch })
	defer stop()
	// From now on the metrics show whether it is halted.
	if _, err := bs.Store().GC().Halted(ctx); err != nil && ctx.Err() == nil {
		bs.Log.Info("state of garbage collection unknown", "err", err)
	}
	if timing.Sleep(ctx, cmp.Or(bs.SweepDelay, 10*time.Minute)); ctx.Err() == nil {
		bs.Store().GC().NewSweeper(bs.Roots).Run(ctx)
	}
}
