package repair

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"syscall"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

const (
	// scrubFileBytes is charged for opening a file: a small extent costs more than its bytes.
	scrubFileBytes = 4 << 10
	// scrubPauseRatio is the pause after each read, as a multiple of the read's duration. The scrub
	// uses at most a fifth of the disk's time, and less when the disk is busy.
	scrubPauseRatio = 4
	// scrubSaveEvery is how often progress is saved. A crash repeats at most this much scrubbing.
	scrubSaveEvery = time.Minute
)

// ScrubStatus is the progress of a node's scrub.
type ScrubStatus struct {
	// Position is the part of the extents that this pass has read, from 0 to 1, estimated from IDs.
	Position float64
	Started  time.Time // zero between passes
	// LastPass is when the last complete pass ended.
	LastPass    time.Time
	BytesPerSec int64
	// Read and Found count bytes read and extents found corrupt since the node started.
	Read, Found int64
}

// scrubber reads all extents here, slowly, and queues the repair of corrupt ones.
type scrubber struct {
	k         *Repairer
	rate      *rate
	mark      local.ScrubProgress // owned by the scrub goroutine
	readBegan time.Duration       // when the current read began
}

func newScrubber(k *Repairer) *scrubber {
	return &scrubber{k: k, rate: k.scrubRate, mark: k.deps.Disks.LoadScrubProgress()}
}

// run scrubs all extents, again and again, until the store closes.
func (b *scrubber) run() {
	k := b.k
	ctx := k.ctx
	saved := k.deps.Clock.Now()
	for ctx.Err() == nil {
		if b.mark.Started.IsZero() && !b.begin(ctx) {
			break
		}
		next := k.deps.Disks.ListExtents(b.mark.After, 1)
		if len(next) == 0 {
			b.mark = local.ScrubProgress{After: local.ExtentID{Index: -1}, Ended: time.Now()}
			b.save()
			continue
		}
		b.scrub(ctx, &next[0])
		if ctx.Err() == nil {
			b.mark.After = next[0].ID
		}
		k.mu.Lock()
		k.mu.mark = b.mark
		k.mu.Unlock()
		if now := k.deps.Clock.Now(); now-saved >= scrubSaveEvery {
			saved = now
			b.save()
		}
	}
	b.save()
}

// begin waits until the next pass is due. It returns false if ctx ended.
func (b *scrubber) begin(ctx context.Context) bool {
	k := b.k
	if !b.mark.Ended.IsZero() {
		rest := k.cfg.ScrubPeriod/14 - time.Since(b.mark.Ended)
		k.mu.Lock()
		k.mu.mark = b.mark
		k.mu.Unlock()
		if timing.SleepOn(ctx, k.deps.Clock, min(rest, k.cfg.ScrubPeriod)) != nil {
			return false
		}
	} else if timing.SleepOn(ctx, k.deps.Clock, tickEvery) != nil { // let the node start first
		return false
	}
	b.mark.Started = time.Now()
	return true
}

func (b *scrubber) save() {
	b.k.mu.Lock()
	b.k.mu.mark = b.mark
	b.k.mu.Unlock()
	if err := b.k.deps.Disks.SaveScrubProgress(b.mark); err != nil {
		b.k.deps.Logger.Debug("scrub progress not saved", "err", err)
	}
}

// scrub reads one extent.
func (b *scrubber) scrub(ctx context.Context, x *local.ExtentInfo) {
	k := b.k
	if k.localBad(x) {
		return // it is being healed, or cannot be
	}
	k.mu.Lock()
	bytes := k.mu.scan.bytes
	k.mu.Unlock()
	b.rate.set(max(k.cfg.ScrubBytes, int64(float64(bytes)/k.cfg.ScrubPeriod.Seconds())))
	if b.rate.wait(ctx, scrubFileBytes) != nil {
		return
	}
	clock := k.deps.Clock
	b.readBegan = clock.Now()
	err := k.deps.Disks.ScrubExtent(ctx, x.ID, func(n int64) error {
		if err := timing.SleepOn(ctx, clock, scrubPauseRatio*(clock.Now()-b.readBegan)); err != nil {
			return err
		}
		if err := b.rate.wait(ctx, n); err != nil {
			return err
		}
		b.readBegan = clock.Now()
		return nil
	})
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, local.ErrNoExtent), errors.Is(err, local.ErrClosed):
		return
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return // not an error of the disk
	case !k.deps.Corruption.Has(x.ID):
		k.count(func(c *Counts) { c.ScrubFound++ })
		k.deps.Corruption.Record(x.ID, err)
	}
}

// scrubStatusLocked returns the progress of the scrub.
func (k *Repairer) scrubStatusLocked() ScrubStatus {
	m := k.mu.mark
	perSec, total := k.scrubRate.now()
	st := ScrubStatus{Started: m.Started, LastPass: m.Ended, BytesPerSec: perSec, Read: total, Found: k.mu.counts.ScrubFound}
	if m.After.Index >= 0 {
		st.Position = float64(binary.BigEndian.Uint64(m.After.Blob[:8])) / math.MaxUint64
	}
	return st
}
