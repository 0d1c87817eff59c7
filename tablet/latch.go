package tablet

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// latchStripes bounds the latches of a tablet. Two rows that share a stripe only
// wait for each other needlessly.
const latchStripes = 256

// latch orders the commits of a row. A plain write holds it shared from before
// its sequence number is given until it is applied; a read-modify-write holds it
// alone from before its read until it is applied, so nothing comes between.
//
// A holder never waits for a second latch while its commit is not yet in the
// log's hands, so latches cannot deadlock.
type latch struct {
	mu struct {
		sync.Mutex
		shared  int
		alone   bool
		waiting int // for alone: new shared holders queue behind
	}
	free sync.Cond
}

type latches [latchStripes]latch

func (ls *latches) init() {
	for i := range ls {
		ls[i].free.L = &ls[i].mu
	}
}

func (ls *latches) of(row []byte) *latch {
	return &ls[xxhash.Sum64(row)%latchStripes]
}

func (l *latch) lockShared() {
	l.mu.Lock()
	for l.mu.alone || l.mu.waiting > 0 {
		l.free.Wait()
	}
	l.mu.shared++
	l.mu.Unlock()
}

// tryLockShared takes the latch shared if that needs no waiting.
func (l *latch) tryLockShared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.alone || l.mu.waiting > 0 {
		return false
	}
	l.mu.shared++
	return true
}

func (l *latch) unlockShared() {
	l.mu.Lock()
	l.mu.shared--
	if l.mu.shared == 0 && l.mu.waiting > 0 {
		l.free.Broadcast()
	}
	l.mu.Unlock()
}

func (l *latch) lockAlone() {
	l.mu.Lock()
	l.mu.waiting++
	for l.mu.alone || l.mu.shared > 0 {
		l.free.Wait()
	}
	l.mu.waiting--
	l.mu.alone = true
	l.mu.Unlock()
}

func (l *latch) unlockAlone() {
	l.mu.Lock()
	l.mu.alone = false
	l.free.Broadcast()
	l.mu.Unlock()
}
