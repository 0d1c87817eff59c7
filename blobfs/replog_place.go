package blobfs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/place"
)

// logReplicasMin is the least number of replicas of a log extent, even if some of them are slow, as
// long as there are nodes: a single disk may fail.
const logReplicasMin = 2

// excludeMin is how long a node that has failed gets no replicas if fewer than logReplicasMin nodes
// are left without it.
const excludeMin = time.Second

// choose returns the nodes for an extent. If frames that were already sent to replicas wait for the
// extent, it may use disk reserves when there is no other space: without it these frames can be
// neither withdrawn nor acknowledged, and the work that would free space waits for them. Called
// with mu held.
func (w *SpreadLogWriter) choose(seq uint64) []string {
	nodes := w.chooseOf(seq, w.highPriority)
	if w.highPriority || !w.m.Stranded() || len(nodes) >= w.replicasMin() && !errors.Is(w.placeErr, ErrDiskFull) {
		return nodes
	}
	w.reserved[seq] = true
	return w.chooseOf(seq, true)
}

// chooseOf returns the nodes for an extent, this node first. If there are enough nodes, the others
// are not those of the current extent, so that one failure does not hit both. With twice as many
// nodes as replicas, this node is not reused either. Full nodes come last, and only if reserve is
// set. Called with mu held.
func (w *SpreadLogWriter) chooseOf(seq uint64, reserve bool) []string {
	nodes := w.s.peers.Nodes()
	usable := w.usable(w.s.cluster.Clock.Now(), reserve)
	want := min(w.s.cluster.Replicas, len(usable))
	isSelf := func(n place.Node) bool { return n.ID == w.s.self }
	if i := slices.IndexFunc(usable, isSelf); i >= 0 {
		usable[i].Full = false // the local disks have newer figures
	}
	_, current := w.m.Current()
	fresh := slices.DeleteFunc(slices.Clone(usable), func(n place.Node) bool { return slices.Contains(current, n.ID) })
	var ids []string
	if len(fresh) < want || seq == 1 {
		if slices.ContainsFunc(usable, isSelf) && want > 0 {
			ids = append(ids, w.s.self)
		}
		fresh = slices.DeleteFunc(fresh, isSelf)
	}
	key := place.KeyOf(w.id, seq)
	for _, from := range [][]place.Node{fresh, usable} {
		for _, n := range place.Choose(key, slices.Concat(from, nodesOf(nodes, ids)), ids, want-len(ids)) {
			if !slices.Contains(ids, n.ID) {
				ids = append(ids, n.ID)
			}
		}
	}
	if len(ids) < want {
		for _, n := range place.ChooseFull(key, usable, ids, nil, want-len(ids)) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// placementError returns why no nodes were found for an extent: ErrDiskFull if some are full, or
// the last error. Called with mu held.
func (w *SpreadLogWriter) placementError() error {
	if w.placeErr != nil && !errors.Is(w.placeErr, api.ErrUnreachable) {
		return w.placeErr
	}
	for _, n := range w.s.peers.Nodes() {
		if n.Full && !n.Draining {
			return fmt.Errorf("%w: all nodes that may store a log replica have less free space than their reserve", ErrDiskFull)
		}
	}
	return w.placeErr
}

// Full returns an ErrDiskFull if appends wait and no node has space for another extent. The log
// then waits for a slow replica, or for space. It returns nil otherwise.
func (w *SpreadLogWriter) Full() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) == 0 || len(w.placeable(w.s.cluster.Clock.Now())) > 0 {
		return nil
	}
	if err := w.placementError(); errors.Is(err, ErrDiskFull) {
		return err
	}
	return nil
}

// replicasMin returns the least number of replicas of an extent.
func (w *SpreadLogWriter) replicasMin() int { return min(logReplicasMin, w.s.cluster.Replicas) }

// eligible reports whether a node may get a replica as far as its disks are concerned. The local
// disks are not tested here, since they have newer figures.
func (w *SpreadLogWriter) eligible(n place.Node, reserve bool) bool {
	return !n.Draining && (!n.Full || reserve || n.ID == w.s.self)
}

// usable returns the nodes that may get a replica now. Called with mu held.
func (w *SpreadLogWriter) usable(now time.Duration, reserve bool) []place.Node {
	if responsive := w.responsive(now, reserve); len(responsive) >= w.replicasMin() {
		return responsive
	}
	if available := w.available(now, reserve); len(available) >= w.replicasMin() {
		return available
	}
	// A failed node may be back. Better to try it soon than to continue with a single disk.
	extra := w.s.cluster.Logs.Avoid - min(excludeMin, w.s.cluster.Logs.Avoid)
	return slices.DeleteFunc(w.s.peers.NodesIf(func(string) bool { return true }), func(n place.Node) bool {
		at := now
		if n.ID != w.s.self {
			at += extra
		}
		return !w.eligible(n, reserve) || w.isExcluded(n.ID, at, reserve)
	})
}

// available returns the nodes that have not failed recently. Called with mu held.
func (w *SpreadLogWriter) available(now time.Duration, reserve bool) []place.Node {
	return slices.DeleteFunc(w.s.peers.Nodes(), func(n place.Node) bool { return !w.eligible(n, reserve) || w.isExcluded(n.ID, now, reserve) })
}

// responsive returns the nodes that have neither failed nor been slow recently. Called with mu
// held.
func (w *SpreadLogWriter) responsive(now time.Duration, reserve bool) []place.Node {
	return slices.DeleteFunc(w.available(now, reserve), func(n place.Node) bool { return now < w.slowNodes[n.ID].until })
}

// placeable returns the nodes with space for another extent, as last reported, this node included.
// It returns none after a replica was refused for lack of space. Called with mu held.
func (w *SpreadLogWriter) placeable(now time.Duration) []string {
	if errors.Is(w.placeErr, ErrDiskFull) {
		return nil
	}
	var ids []string
	for _, n := range w.usable(now, w.highPriority) {
		if !n.Full || w.highPriority {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// exclusion excludes a node that failed from getting replicas.
type exclusion struct {
	until time.Duration
	// unreached means that the node did not answer. Any answer ends the exclusion.
	unreached bool
	// full means that the node had no space above its reserve. It does not exclude the node from
	// extents that may use the reserve.
	full bool
}

// isExcluded reports whether a node gets no replicas at the given time. Called with mu held.
func (w *SpreadLogWriter) isExcluded(node string, at time.Duration, reserve bool) bool {
	if node == w.s.self && w.localOpenStuck() {
		return true
	}
	a := w.excluded[node]
	return at < a.until && (!a.unreached || w.s.peers.Suspected(node)) && !(a.full && reserve)
}

func nodesOf(nodes []place.Node, ids []string) []place.Node {
	var out []place.Node
	for _, n := range nodes {
		if slices.Contains(ids, n.ID) {
			out = append(out, n)
		}
	}
	return out
}

// refusedFull reports whether a replica was refused for lack of space above the reserve. Called
// with mu held.
func (w *SpreadLogWriter) refusedFull(seq uint64, err error) bool {
	return errors.Is(err, ErrDiskFull) && !w.highPriority && !w.reserved[seq]
}

// failed handles the failure of a replica. Called with mu held.
func (w *SpreadLogWriter) failed(seq uint64, node string, err error) {
	if w.ctx.Err() != nil {
		return
	}
	var fenced *logproto.FencedError
	epoch := uint64(0)
	if errors.As(err, &fenced) {
		epoch = fenced.Epoch
	}
	w.s.log.Warn("log replica failed", "log", w.id, "extent", seq, "node", node, "err", err)
	w.stats.Failed++
	if node != w.s.self { // other local folders may still work
		unreached := errors.Is(err, api.ErrUnreachable)
		w.excluded[node] = exclusion{until: w.s.cluster.Clock.Now() + w.s.cluster.Logs.Avoid, unreached: unreached, full: w.refusedFull(seq, err)}
		if unreached {
			w.s.peers.Suspect(node)
		}
	}
	w.m.Failed(seq, node, epoch)
}
