package tablet

import (
	"context"
	"time"
)

// workSlot is the right to work for the compactions of a loop, which run one at a time. A compaction
// that waits for METADATA, for the commit log or for a lock releases the slot after slotWaitMax,
// and acquires it again before it continues. A tablet whose metadata cannot be changed thus delays
// other tablets no longer than that.
type workSlot chan struct{} // capacity 1: holds a value while the slot is taken

// slotWaitMax is how long a waiting compaction keeps the slot. A METADATA change takes
// milliseconds. If the slot were released earlier, the next memtable would be frozen although
// memory is about to be released.
const slotWaitMax = 250 * time.Millisecond

func newWorkSlot() workSlot { return make(workSlot, 1) }

func (s workSlot) acquire() { s <- struct{}{} }
func (s workSlot) release() { <-s }

type slotKey struct{}

// with returns a context for work in this slot.
func (s workSlot) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, s)
}

// withoutSlot runs do, which may wait for long, and releases ctx's slot meanwhile. Without a slot it
// only runs do.
func withoutSlot(ctx context.Context, do func()) {
	slot, ok := ctx.Value(slotKey{}).(workSlot)
	if !ok {
		do()
		return
	}
	passed := time.AfterFunc(slotWaitMax, slot.release)
	do()
	if !passed.Stop() {
		slot.acquire()
	}
}
