package gossip

import (
	"math/rand/v2"
	"slices"
	"time"
)

// publishTimeout is how long a changed meta may take to be sent before the next change is.
const publishTimeout = 300 * time.Millisecond

// publishMeta sends the node's meta after each change.
func (r *Ring) publishMeta() {
	for {
		select {
		case <-r.dirty:
			_ = r.list.UpdateNode(publishTimeout) // a timeout is no failure
		case <-r.ctx.Done():
			return
		}
	}
}

// isolatedInterval is the period of attempts at seeds while no other node is known.
const isolatedInterval = time.Second

// reconnect periodically contacts a dead node and a seed. Memberlist itself never retries, so the
// sides of a healed partition would stay apart.
func (r *Ring) reconnect() {
	for {
		every := r.cfg.reconnect
		alive := r.table.aliveAddrs()
		if len(alive) == 0 {
			every = min(every, isolatedInterval)
		}
		wait := time.NewTimer(every/2 + rand.N(every))
		select {
		case <-wait.C:
		case <-r.ctx.Done():
			wait.Stop()
			return
		}
		r.table.prune()
		tries := 1
		if len(alive) == 0 {
			tries = joinMax
		}
		addrs := pick(r.table.deadAddrs(), tries)
		if r.cfg.Seeds != nil {
			addrs = append(addrs, pick(slices.DeleteFunc(r.cfg.Seeds(), func(a string) bool { return alive[a] || a == r.address }), tries)...)
		}
		if len(addrs) > 0 {
			_ = r.Join(r.ctx, addrs) // retried next time
		}
	}
}

// pick returns n of the addresses, at random.
func pick(addrs []string, n int) []string {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(n, len(addrs))]
}
