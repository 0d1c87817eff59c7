package tablet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/steledb/stele/internal/timing"
)

// latchStripes is the number of latches of a tablet. Rows that share a stripe wait for each other
// needlessly, but correctly.
const latchStripes = 256

// latch orders the commits of a row. A plain write holds it shared from before its sequence number
// is assigned until it is applied. A read-modify-write holds it exclusively from before its read
// until it is applied, so no other commit comes between. New shared holders queue behind waiting
// exclusive ones.
//
// A holder never waits for a second latch before its commit is in the log's queue, so latches
// cannot deadlock.
type latch struct{ mu sync.RWMutex }

// latches are the latches of one tablet. They are allocated with the first write, since a server
// may have thousands of tablets without writes.
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

// passAll returns once each latch has been free at some time, or with ctx's error.
func (ls *latches) passAll(ctx context.Context) error {
	all := ls.stripes.Load()
	if all == nil {
		return nil // no latch was ever held
	}
	for i := range all {
		b := timing.Backoff{Min: 50 * time.Microsecond, Max: 5 * time.Millisecond}
		for !all[i].mu.TryLock() {
			if b.Sleep(ctx); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		all[i].unlockExclusive()
	}
	return nil
}

func (l *latch) lockShared() { l.mu.RLock() }

// tryLockShared locks the latch shared if that needs no waiting.
func (l *latch) tryLockShared() bool { return l.mu.TryRLock() }

// tryLockExclusive locks the latch exclusively if that needs no waiting.
func (l *latch) tryLockExclusive() bool { return l.mu.TryLock() }

func (l *latch) unlockShared() { l.mu.RUnlock() }

func (l *latch) lockExclusive() { l.mu.Lock() }

func (l *latch) unlockExclusive() { l.mu.Unlock() }
