package blobfs

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
	k         *repairer
	rate      *rate
	mark      local.ScrubMark // owned by the scrub goroutine
	readBegan time.Duration   // when the current read began
}

// scrubLoop runs the scrub.
func (k *repairer) scrubLoop() {
	b := scrubber{k: k, rate: k.scrubRate, mark: k.s.disks.LoadScrubMark()}
	ctx := k.s.ctx
	saved := k.s.cluster.Clock.Now()
	for ctx.Err() == nil {
		if b.mark.Started.IsZero() && !b.begin(ctx) {
			break
		}
		next := k.s.disks.ListExtents(b.mark.After, 1)
		if len(next) == 0 {
			b.mark = local.ScrubMark{After: ExtentID{Index: -1}, Ended: time.Now()}
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
		if now := k.s.cluster.Clock.Now(); now-saved >= scrubSaveEvery {
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
		if timing.SleepOn(ctx, k.s.cluster.Clock, min(rest, k.cfg.ScrubPeriod)) != nil {
			return false
		}
	} else if timing.SleepOn(ctx, k.s.cluster.Clock, tickEvery) != nil { // let the node start first
		return false
	}
	b.mark.Started = time.Now()
	return true
}

func (b *scrubber) save() {
	b.k.mu.Lock()
	b.k.mu.mark = b.mark
	b.k.mu.Unlock()
	if err := b.k.s.disks.SaveScrubMark(b.mark); err != nil {
		b.k.s.log.Debug("scrub progress not saved", "err", err)
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
	clock := k.s.cluster.Clock
	b.readBegan = clock.Now()
	err := k.s.disks.ScrubExtent(ctx, x.ID, func(n int64) error {
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
	case !k.s.corruptExtents.has(x.ID):
		k.count(func(c *KeepCounts) { c.ScrubFound++ })
		k.s.recordCorruption(x.ID, err)
	}
}

// scrubStatusLocked returns the progress of the scrub.
func (k *repairer) scrubStatusLocked() ScrubStatus {
	m := k.mu.mark
	perSec, total := k.scrubRate.now()
	st := ScrubStatus{Started: m.Started, LastPass: m.Ended, BytesPerSec: perSec, Read: total, Found: k.mu.counts.ScrubFound}
	if m.After.Index >= 0 {
		st.Position = float64(binary.BigEndian.Uint64(m.After.Blob[:8])) / math.MaxUint64
	}
	return st
}
