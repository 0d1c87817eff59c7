package replog

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
)

// errStopped means that a replica lacks acknowledged bytes: its node was restarted, so the replica
// accepts no appends, or its end was lost.
var errStopped = errors.New("log replica accepts no more appends")

// checker checks that the replicas of a writer's open extents are still there. Guarded by Writer.mu.
type checker struct {
	w    *Writer
	last time.Duration // when they were last checked
}

// tick asks the nodes of the open extents for their replicas each Config.Check. An append shows that
// a replica is lost; without appends, only this does.
func (x *checker) tick(now time.Duration) {
	w := x.w
	if now-x.last < w.logs.cfg.Check {
		return
	}
	x.last = now
	current, _ := w.m.Current()
	held := w.m.Held()
	for k := range w.links {
		least := int64(0)
		if k.seq == current {
			least = held
		}
		w.logs.deps.Work.Go(func() { x.check(k, least) })
	}
}

// check checks that a node has a replica with at least so many durable bytes. A node that does not
// answer is left to the membership. Called without mu.
func (x *checker) check(k linkKey, least int64) {
	w := x.w
	ctx, cancel := context.WithTimeout(w.ctx, w.logs.deps.ReplyTimeout)
	defer cancel()
	p, err := w.logs.deps.Peers.Any(ctx, k.node)
	if err != nil {
		return
	}
	info, err := p.StatLog(ctx, w.id, k.seq)
	switch {
	case errors.Is(err, logproto.ErrNoExtent):
	case err != nil:
		return
	case info.Damage != nil:
		err = info.Damage
	case info.Durable < least:
		err = errStopped
	default:
		return
	}
	w.eventAsync(func() {
		if w.links[k] != nil && x.mayDrop(k.node) {
			w.failed(k.seq, k.node, err)
		}
	})
}

// mayDrop reports whether the writer can do without a replica that was lost while nothing is
// appended. With full disks it keeps the extent: an append that is sent there may use the reserve
// for the next one, and one that is not sent may not.
func (x *checker) mayDrop(node string) bool {
	return x.w.switcher.leaveOptions(x.w.now(), []string{node}).decide(reasonSlow) == leave
}
