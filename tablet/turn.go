package tablet

import (
	"context"
	"time"
)

// turn is the right to work for a loop that compacts the tablets of a server one after another. A compaction that waits
// for METADATA, for the commit log or for a lock passes its turn on after turnPatience, and takes another one before it
// goes on. So a tablet whose metadata cannot be changed delays the other tablets no longer than that.
type turn chan struct{} // capacity 1: it has a value while the turn is taken

// turnPatience is how long a compaction that waits keeps its turn. A change of METADATA takes milliseconds. A turn that is
// passed on earlier has the next memtable frozen although memory is about to be released.
const turnPatience = 250 * time.Millisecond

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) pass() { <-t }

type turnKey struct{}

// with returns a context for what is done in this turn.
func (t turn) with(ctx context.Context) context.Context { return context.WithValue(ctx, turnKey{}, t) }

// waiting runs do, which may wait for long, and passes the turn that ctx has on while it does. Without a turn it runs do.
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
