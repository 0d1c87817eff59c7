package replog

import (
	"errors"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// choose returns the nodes for an extent. If frames that were already sent to replicas wait for the
// extent, it may use disk reserves when there is no other space: without it these frames can be
// neither withdrawn nor acknowledged, and the work that would free space waits for them. Called
// with mu held.
func (w *Writer) choose(seq uint64) []string {
	p := w.placement
	_, current := w.m.Current()
	nodes := p.choose(seq, current, p.highPriority)
	if p.highPriority || !w.m.Stranded() || len(nodes) >= p.replicasMin() && !errors.Is(p.lastErr(), local.ErrDiskFull) {
		return nodes
	}
	p.reserved[seq] = true
	return p.choose(seq, current, true)
}

// Full returns a local.ErrDiskFull if appends wait and no node, or the list, has space for another
// extent. The log then waits for a slow replica, or for space. It returns nil otherwise.
func (w *Writer) Full() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.window.waiters) > 0 && w.listFull() {
		return listFullError()
	}
	if len(w.window.waiters) == 0 || len(w.placement.placeable(w.now())) > 0 {
		return nil
	}
	if err := w.placement.cause(); errors.Is(err, local.ErrDiskFull) {
		return err
	}
	return nil
}

// failed handles the failure of a replica. Called with mu held.
func (w *Writer) failed(seq uint64, node string, err error) {
	if w.ctx.Err() != nil {
		return
	}
	var fenced *logproto.FencedError
	epoch := uint64(0)
	if errors.As(err, &fenced) {
		epoch = fenced.Epoch
	}
	w.logs.deps.Logger.Warn("log replica failed", "log", w.id, "extent", seq, "node", node, "err", err)
	w.stats.Failed++
	w.weak.lose(linkKey{seq, node}, err)
	w.placement.failed(seq, node, err)
	w.m.Failed(seq, node, epoch)
}

// dropSlow drops a replica and excludes its node for a time. Called with mu held.
func (w *Writer) dropSlow(k linkKey, now time.Duration) {
	w.placement.slow(k.node, now)
	w.stats.Slow++
	w.logs.times.of(k.node).dropped.Add(1)
	w.m.Failed(k.seq, k.node, 0)
}
