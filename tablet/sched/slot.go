package sched

import (
	"context"
	"time"
)

// Slot is the right to work for the compactions of a loop, which run one at a time. A compaction
// that waits for METADATA, for the commit log or for a lock releases the slot after slotWaitMax,
// and acquires it again before it continues. A tablet whose metadata cannot be changed thus delays
// other tablets no longer than that.
type Slot chan struct{} // capacity 1: holds a value while the slot is taken

// slotWaitMax is how long a waiting compaction keeps the slot. A METADATA change takes
// milliseconds. If the slot were released earlier, the next memtable would be frozen although
// memory is about to be released.
const slotWaitMax = 250 * time.Millisecond

// NewSlot returns a free slot.
func NewSlot() Slot { return make(Slot, 1) }

// Acquire waits for the slot and takes it.
func (s Slot) Acquire() { s <- struct{}{} }

// Release frees the slot.
func (s Slot) Release() { <-s }

type slotKey struct{}

// With returns a context for work in this slot.
func (s Slot) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, s)
}

// WithoutSlot runs do, which may wait for long, and releases ctx's slot meanwhile. Without a slot it
// only runs do.
func WithoutSlot(ctx context.Context, do func()) {
	slot, ok := ctx.Value(slotKey{}).(Slot)
	if !ok {
		do()
		return
	}
	passed := time.AfterFunc(slotWaitMax, slot.Release)
	do()
	if !passed.Stop() {
		slot.Acquire()
	}
}
