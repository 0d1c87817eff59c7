package latch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/steledb/stele/internal/timing"
)

// stripeCount is the number of latches of a tablet. Rows that share a stripe wait for each other
// needlessly, but correctly.
const stripeCount = 256

// Latch orders the commits of a row. A plain write holds it shared from before its sequence number
// is assigned until it is applied. A read-modify-write holds it exclusively from before its read
// until it is applied, so no other commit comes between. New shared holders queue behind waiting
// exclusive ones.
//
// A holder never waits for a second latch before its commit is in the log's queue, so latches
// cannot deadlock.
type Latch struct{ mu sync.RWMutex }

// Stripes are the latches of one tablet. They are allocated with the first write, since a server
// may have thousands of tablets without writes.
type Stripes struct {
	all atomic.Pointer[[stripeCount]Latch]
}

// Of returns the latch of a row.
func (ls *Stripes) Of(row []byte) *Latch {
	all := ls.all.Load()
	if all == nil {
		ls.all.CompareAndSwap(nil, new([stripeCount]Latch))
		all = ls.all.Load()
	}
	return &all[xxhash.Sum64(row)%stripeCount]
}

// PassAll returns once each latch has been free at some time, or with ctx's error.
func (ls *Stripes) PassAll(ctx context.Context) error {
	all := ls.all.Load()
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
		all[i].UnlockExclusive()
	}
	return nil
}

// LockShared locks the latch shared.
func (l *Latch) LockShared() { l.mu.RLock() }

// TryLockShared locks the latch shared if that needs no waiting.
func (l *Latch) TryLockShared() bool { return l.mu.TryRLock() }

// TryLockExclusive locks the latch exclusively if that needs no waiting.
func (l *Latch) TryLockExclusive() bool { return l.mu.TryLock() }

// UnlockShared releases a shared latch.
func (l *Latch) UnlockShared() { l.mu.RUnlock() }

// LockExclusive locks the latch exclusively.
func (l *Latch) LockExclusive() { l.mu.Lock() }

// UnlockExclusive releases an exclusive latch.
func (l *Latch) UnlockExclusive() { l.mu.Unlock() }
