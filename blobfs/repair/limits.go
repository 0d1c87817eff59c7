package repair

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// Limits bound the copies to this node. A nil *Limits bounds nothing.
type Limits struct {
	clock timing.Clock
	slots chan struct{}
	rate  *rate // bytes copied to this node
}

func newLimits(clock timing.Clock, cfg Config) *Limits {
	return &Limits{clock: clock, slots: make(chan struct{}, cfg.Workers), rate: newRate(clock, cfg.RepairBytes)}
}

// Limits returns the limits of copies to this node; nil without a repairer.
func (k *Repairer) Limits() *Limits {
	if k == nil {
		return nil
	}
	return k.limits
}

// AdmitCopy waits until another copy to this node may start. done must be called at its end.
func (l *Limits) AdmitCopy(ctx context.Context) (done func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// busyReadTime is the duration of a 512 KiB read that indicates that the disk is busy with
// requests.
const busyReadTime = 50 * time.Millisecond

// YieldIfBusy pauses for as long as a read took, if the source disk is busy.
func (l *Limits) YieldIfBusy(ctx context.Context, took time.Duration) {
	if l != nil && took > busyReadTime {
		_ = timing.SleepOn(ctx, l.clock, took)
	}
}

// LimitCopyRate waits until n bytes may be copied to this node.
func (l *Limits) LimitCopyRate(ctx context.Context, n int64) error {
	if l == nil {
		return nil
	}
	return l.rate.wait(ctx, n)
}
