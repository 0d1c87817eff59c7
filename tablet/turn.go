package tablet

import (
	"context"
	"time"
)

// turn is the right to work for the compactions of a loop, which run one at a time. A compaction
// that waits for METADATA, for the commit log or for a lock passes its turn on after turnPatience,
// and takes another one before it continues. A tablet whose metadata cannot be changed thus delays
// other tablets no longer than that.
type turn chan struct{} // capacity 1: holds a value while the turn is taken

// turnPatience is how long a waiting compaction keeps its turn. A METADATA change takes
// milliseconds. If the turn were passed on earlier, the next memtable would be frozen although
// memory is about to be released.
const turnPatience = 250 * time.Millisecond

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) pass() { <-t }

type turnKey struct{}

// with returns a context for work in this turn.
func (t turn) with(ctx context.Context) context.Context { return context.WithValue(ctx, turnKey{}, t) }

// waiting runs do, which may wait for long, and passes ctx's turn on meanwhile. Without a turn it
// only runs do.
func waiting(ctx context.Context, do func()) {
	t, ok := ctx.Value(turnKey{}).(turn)
	if !ok {
		do()
		return
	}
	passed := time.AfterFunc(turnPatience, t.pass)
	do()
	if !passed.Stop() {
		t.take()
	}
}
