package tablet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// latchStripes bounds the latches of a tablet. Two rows that share a stripe only
// wait for each other needlessly.
const latchStripes = 256

// latch orders the commits of a row. A plain write holds it shared from before
// its sequence number is given until it is applied; a read-modify-write holds it
// alone from before its read until it is applied, so nothing comes between.
// New shared holders queue behind those who wait to be alone.
//
// A holder never waits for a second latch while its commit is not yet in the
// log's hands, so latches cannot deadlock.
type latch struct{ mu sync.RWMutex }

// latches are those of one tablet. They are made with the first write: a server may hold
// thousands of tablets that have none.
type latches struct {
	stripes atomic.Pointer[[latchStripes]latch]
}

func (ls *latches) of(row []byte) *latch {
	all := ls.stripes.Load()
	if all == nil {
		ls.stripes.CompareAndSwap(nil, new([latchStripes]latch))
		all = ls.stripes.Load()
	}
	return &all[xxhash.Sum64(row)%latchStripes]
}

// passAll returns when each latch was free once, or with ctx's error.
func (ls *latches) passAll(ctx context.Context) error {
	all := ls.stripes.Load()
	if all == nil {
		return nil // none was ever held
	}
	for i := range all {
		for pause := 50 * time.Microsecond; !all[i].mu.TryLock(); pause = min(2*pause, 5*time.Millisecond) {
			sleepIn(ctx, pause)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		all[i].unlockAlone()
	}
	return nil
}

func (l *latch) lockShared() { l.mu.RLock() }

// tryLockShared takes the latch shared if that needs no waiting.
func (l *latch) tryLockShared() bool { return l.mu.TryRLock() }

// tryLockAlone takes the latch alone if that needs no waiting.
func (l *latch) tryLockAlone() bool { return l.mu.TryLock() }

func (l *latch) unlockShared() { l.mu.RUnlock() }

func (l *latch) lockAlone() { l.mu.Lock() }

func (l *latch) unlockAlone() { l.mu.Unlock() }
