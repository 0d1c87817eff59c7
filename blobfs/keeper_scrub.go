package blobfs

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"syscall"
	"time"

	"github.com/steledb/stele/blobfs/local"
)

const (
	// scrubFileBytes is what opening a file counts as: a small extent costs more than its bytes.
	scrubFileBytes = 4 << 10
	// scrubYield is how many times as long as a read took the scrub rests after it: it has at most a fifth of
	// the disk's time, and less the busier the disk is.
	scrubYield = 4
	// scrubSaveEvery is how often the mark is kept: what is read twice after a crash.
	scrubSaveEvery = time.Minute
)

// ScrubStatus is how far the scrub of a node is.
type ScrubStatus struct {
	// Position is the part of the extents that this pass has read, from 0 to 1, by their IDs.
	Position float64
	Started  time.Time // zero between passes
	// LastPass is when the last whole pass ended.
	LastPass    time.Time
	BytesPerSec int64
	// Read and Found count bytes that were read and extents found rotten since the node started.
	Read, Found int64
}

// scrubber reads all extents here, slowly, and has those healed that are rotten.
type scrubber struct {
	k    *keeper
	rate *rate
	mark local.ScrubMark // of the goroutine
	busy time.Duration   // when the last read began
}

// scrubbing runs the scrub.
func (k *keeper) scrubbing() {
	b := scrubber{k: k, rate: k.scrubs, mark: k.s.disks.LoadScrubMark()}
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

// begin waits until the next pass is due.
func (b *scrubber) begin(ctx context.Context) bool {
	k := b.k
	if !b.mark.Ended.IsZero() {
		rest := k.cfg.ScrubPeriod/14 - time.Since(b.mark.Ended)
		k.mu.Lock()
		k.mu.mark = b.mark
		k.mu.Unlock()
		if sleep(ctx, k.s.cluster.Clock, min(rest, k.cfg.ScrubPeriod)) != nil {
			return false
		}
	} else if sleep(ctx, k.s.cluster.Clock, tickEvery) != nil { // let the node start first
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
		b.k.s.log.Debug("mark of the scrub not kept", "err", err)
	}
}

// scrub reads one extent.
func (b *scrubber) scrub(ctx context.Context, x *local.ExtentInfo) {
	k := b.k
	if k.bad(x) {
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
	b.busy = clock.Now()
	err := k.s.disks.ScrubExtent(ctx, x.ID, func(n int64) error {
		if err := sleep(ctx, clock, scrubYield*(clock.Now()-b.busy)); err != nil {
			return err
		}
		if err := b.rate.wait(ctx, n); err != nil {
			return err
		}
		b.busy = clock.Now()
		return nil
	})
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, local.ErrNoExtent), errors.Is(err, local.ErrClosed):
		return
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return // not the disk's fault
	case !k.s.rot.has(x.ID):
		k.count(func(c *KeepCounts) { c.ScrubFound++ })
		k.s.noteRot(x.ID, err)
	}
}

// scrubStatusLocked returns how far the scrub is.
func (k *keeper) scrubStatusLocked() ScrubStatus {
	m := k.mu.mark
	perSec, total := k.scrubs.now()
	st := ScrubStatus{Started: m.Started, LastPass: m.Ended, BytesPerSec: perSec, Read: total, Found: k.mu.counts.ScrubFound}
	if m.After.Index >= 0 {
		st.Position = float64(binary.BigEndian.Uint64(m.After.Blob[:8])) / math.MaxUint64
	}
	return st
}
