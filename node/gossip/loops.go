package gossip

import (
	"math/rand/v2"
	"slices"
	"time"
)

// tellTimeout is how long the node waits for its own news to be on their way before
// it may tell the next.
const tellTimeout = 300 * time.Millisecond

// tell sends what the node tells of itself when that has changed.
func (r *Ring) tell() {
	for {
		select {
		case <-r.dirty:
			_ = r.list.UpdateNode(tellTimeout) // the error is that it takes longer
		case <-r.ctx.Done():
			return
		}
	}
}

// lonely is how often seeds are tried while nobody else is known.
const lonely = time.Second

// reconnect talks now and then to a dead node and to a seed: memberlist itself never
// tries again, so that two halves that did not see each other for a while would
// stay apart.
func (r *Ring) reconnect() {
	for {
		every := r.cfg.reconnect
		alive := r.table.aliveAt()
		if len(alive) == 0 {
			every = min(every, lonely)
		}
		wait := time.NewTimer(every/2 + rand.N(every))
		select {
		case <-wait.C:
		case <-r.ctx.Done():
			wait.Stop()
			return
		}
		r.table.tidy()
		tries := 1
		if len(alive) == 0 {
			tries = joinMax
		}
		addrs := pick(r.table.lost(), tries)
		if r.cfg.Seeds != nil {
			addrs = append(addrs, pick(slices.DeleteFunc(r.cfg.Seeds(), func(a string) bool { return alive[a] || a == r.address }), tries)...)
		}
		if len(addrs) > 0 {
			_ = r.Join(r.ctx, addrs) // the next time will tell
		}
	}
}

// pick returns n of the addresses, any.
func pick(addrs []string, n int) []string {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(n, len(addrs))]
}
