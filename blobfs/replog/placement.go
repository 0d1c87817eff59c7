package replog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
)

// replicasMin is the least number of replicas of a log extent, even if some of them are slow, as
// long as there are nodes: a single disk may fail.
const replicasMin = 2

// excludeMin is how long a node that has failed gets no replicas if fewer than replicasMin nodes
// are left without it.
const excludeMin = time.Second

// placement chooses the nodes for the extents of one log. It remembers which nodes failed or were
// slow. Guarded by Writer.mu.
type placement struct {
	logs *Logs
	log  local.ID
	// highPriority means that the log may use up to half of the disks' reserve.
	highPriority bool
	opening      openings             // the writer's
	excluded     map[string]exclusion // nodes that failed and get no replicas
	slowNodes    map[string]slowNode  // nodes that get none if there are enough others
	reserved     map[uint64]bool      // extents that may use disk reserves although the log has no high priority
	err          error                // why no nodes were found, or a replica was not opened; see lastErr
	errAt        time.Duration        // when err occurred
}

// users returns the detail of a moment: what the log is for.
func (p *placement) users() string {
	if p.highPriority {
		return "of high priority"
	}
	return ""
}

func newPlacement(logs *Logs, log local.ID, highPriority bool, opening openings) *placement {
	return &placement{
		logs: logs, log: log, highPriority: highPriority, opening: opening,
		excluded: map[string]exclusion{}, slowNodes: map[string]slowNode{}, reserved: map[uint64]bool{},
	}
}

// slowNode is the state of a node that was slow: it gets no replicas if there are enough others.
type slowNode struct {
	until time.Duration
	long  time.Duration // duration of the current exclusion
}

// slowRatioMax bounds the exclusion of a node that is slow repeatedly, as a multiple of
// Config.Avoid: each new trial costs a standby.
const slowRatioMax = 8

// choose returns the nodes for an extent, this node first. If there are enough nodes, the others
// are not those of the current extent, so that one failure does not hit both. With twice as many
// nodes as replicas, this node is not reused either. Full nodes come last, and only if reserve is
// set.
func (p *placement) choose(seq uint64, current []string, reserve bool) []string {
	nodes := p.logs.deps.Peers.Nodes()
	usable := p.usable(p.logs.now(), reserve)
	want := min(p.logs.deps.Replicas, len(usable))
	isSelf := func(n place.Node) bool { return n.ID == p.logs.self }
	if i := slices.IndexFunc(usable, isSelf); i >= 0 {
		usable[i].Full = false // the local disks have newer figures
	}
	fresh := slices.DeleteFunc(slices.Clone(usable), func(n place.Node) bool { return slices.Contains(current, n.ID) })
	var ids []string
	if len(fresh) < want || seq == 1 {
		if slices.ContainsFunc(usable, isSelf) && want > 0 {
			ids = append(ids, p.logs.self)
		}
		fresh = slices.DeleteFunc(fresh, isSelf)
	}
	key := place.KeyOf(p.log, seq)
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

// fail records why no nodes were found for an extent, or a replica was not opened.
func (p *placement) fail(err error) { p.err, p.errAt = err, p.logs.now() }

// lastErr returns why the last extent was not placed or opened; nil if it was. A local.ErrDiskFull
// counts for Config.Avoid only. By then the members' reports of free space are newer, and no other
// event would end it: a writer that has a standby opens no extent.
func (p *placement) lastErr() error {
	if errors.Is(p.err, local.ErrDiskFull) && p.logs.now()-p.errAt >= p.logs.cfg.Avoid {
		return nil
	}
	return p.err
}

// noNodes records why no nodes were found for an extent, and returns it.
func (p *placement) noNodes() error {
	err := p.cause()
	if last := p.lastErr(); last == nil || errors.Is(last, api.ErrUnreachable) { // otherwise err is the last one again
		p.fail(err)
	}
	return err
}

// cause returns why no nodes were found for an extent: local.ErrDiskFull if some are full, or
// the last error.
func (p *placement) cause() error {
	err := p.lastErr()
	if err != nil && !errors.Is(err, api.ErrUnreachable) {
		return err
	}
	for _, n := range p.logs.deps.Peers.Nodes() {
		if n.Full && !n.Draining {
			return fmt.Errorf("%w: all nodes that may store a log replica have less free space than their reserve", local.ErrDiskFull)
		}
	}
	return err
}

// replicasMin returns the least number of replicas of an extent.
func (p *placement) replicasMin() int { return min(replicasMin, p.logs.deps.Replicas) }

// eligible reports whether a node may get a replica as far as its disks are concerned. The local
// disks are not tested here, since they have newer figures.
func (p *placement) eligible(n place.Node, reserve bool) bool {
	return !n.Draining && (!n.Full || reserve || n.ID == p.logs.self)
}

// usable returns the nodes that may get a replica now.
func (p *placement) usable(now time.Duration, reserve bool) []place.Node {
	if responsive := p.responsive(now, reserve); len(responsive) >= p.replicasMin() {
		return responsive
	}
	if available := p.available(now, reserve); len(available) >= p.replicasMin() {
		return available
	}
	// A failed node may be back. Better to try it soon than to continue with a single disk.
	extra := p.logs.cfg.Avoid - min(excludeMin, p.logs.cfg.Avoid)
	return slices.DeleteFunc(p.logs.deps.Peers.NodesIf(func(string) bool { return true }), func(n place.Node) bool {
		at := now
		if n.ID != p.logs.self {
			at += extra
		}
		return !p.eligible(n, reserve) || p.isExcluded(n.ID, at, reserve)
	})
}

// available returns the nodes that have not failed recently.
func (p *placement) available(now time.Duration, reserve bool) []place.Node {
	return slices.DeleteFunc(p.logs.deps.Peers.Nodes(), func(n place.Node) bool { return !p.eligible(n, reserve) || p.isExcluded(n.ID, now, reserve) })
}

// responsive returns the nodes that have neither failed nor been slow recently.
func (p *placement) responsive(now time.Duration, reserve bool) []place.Node {
	return slices.DeleteFunc(p.available(now, reserve), func(n place.Node) bool { return now < p.slowNodes[n.ID].until })
}

// sound reports whether all of these nodes are among those that usable returns for the reserve, and none is draining.
func (p *placement) sound(nodes []string, now time.Duration) bool {
	found := 0
	for _, n := range p.logs.deps.Peers.NodesOf(nodes) {
		if p.eligible(n, true) && !p.isExcluded(n.ID, now, true) && now >= p.slowNodes[n.ID].until {
			found++
		}
	}
	return found == len(nodes)
}

// placeable returns the nodes with space for another extent, as last reported, this node included.
// It returns none for Config.Avoid after a replica was refused for lack of space, unless one was opened
// since.
func (p *placement) placeable(now time.Duration) []string {
	if errors.Is(p.lastErr(), local.ErrDiskFull) {
		return nil
	}
	var ids []string
	for _, n := range p.usable(now, p.highPriority) {
		if !n.Full || p.highPriority {
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

// isExcluded reports whether a node gets no replicas at the given time.
func (p *placement) isExcluded(node string, at time.Duration, reserve bool) bool {
	if node == p.logs.self && p.opening.stuck(node) {
		return true
	}
	a := p.excluded[node]
	return at < a.until && (!a.unreached || p.logs.deps.Peers.Suspected(node)) && !(a.full && reserve)
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

// refusedFull reports whether a replica was refused for lack of space above the reserve.
func (p *placement) refusedFull(seq uint64, err error) bool {
	return errors.Is(err, local.ErrDiskFull) && !p.highPriority && !p.reserved[seq]
}

// onTrial reports whether a node was slow recently.
func (p *placement) onTrial(node string, now time.Duration) bool {
	s := p.slowNodes[node]
	return s.long > 0 && now-s.until < 2*s.long
}

// enoughWithout reports whether there are enough responsive nodes without node.
func (p *placement) enoughWithout(node string, now time.Duration) bool {
	responsive := p.responsive(now, p.highPriority)
	return len(responsive)-len(nodesOf(responsive, []string{node})) >= p.replicasMin()
}

// slow excludes a node that was slow, twice as long as the last time if that was recent.
func (p *placement) slow(node string, now time.Duration) {
	avoid := p.logs.cfg.Avoid
	if p.logs.deps.Peers.Suspected(node) {
		p.excluded[node] = exclusion{until: now + avoid, unreached: true} // down rather than slow
		return
	}
	s := p.slowNodes[node]
	if !p.onTrial(node, now) {
		s.long = 0
	}
	s.long = min(max(2*s.long, avoid), slowRatioMax*avoid)
	s.until = now + s.long
	p.slowNodes[node] = s
}

// failed excludes a node whose replica failed. Other local folders may still work, so this node is
// excluded only by failures to open.
func (p *placement) failed(seq uint64, node string, err error) {
	if node == p.logs.self {
		return
	}
	unreached := errors.Is(err, api.ErrUnreachable)
	p.excluded[node] = exclusion{until: p.logs.now() + p.logs.cfg.Avoid, unreached: unreached, full: p.refusedFull(seq, err)}
	if unreached {
		p.logs.deps.Peers.Suspect(node)
	}
}

// notOpened records why a replica could not be opened. If it is this node's, it is retried soon.
func (p *placement) notOpened(seq uint64, node string, err error) {
	if p.fail(err); node == p.logs.self {
		p.excluded[node] = exclusion{until: p.logs.now() + p.logs.cfg.Retry, full: p.refusedFull(seq, err)}
	}
}

// forget forgets what was decided about an extent.
func (p *placement) forget(seq uint64) { delete(p.reserved, seq) }
