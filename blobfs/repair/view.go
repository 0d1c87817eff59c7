package repair

import (
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
)

// nodeState is a node's state as the repairer sees it.
type nodeState uint8

const (
	nodeLive     nodeState = iota // alive, not draining
	nodeDraining                  // alive, draining
	nodeDown                      // dead or unknown for less than the grace period
	nodeGone                      // dead for longer, or removed
)

// view is an immutable snapshot of the membership and the state of each node.
type view struct {
	states  map[string]nodeState
	members []members.Member
	live    int
	// remaining counts the members that are not draining, dead or alive.
	remaining int
	// changed is when the state of any node last changed.
	changed time.Duration
	at      time.Duration
	// version is the version: it grows with each change of the membership, so that results of an
	// earlier view can be recognized.
	version uint64
}

// nodeHistory is the history of a node.
type nodeHistory struct {
	dead    bool
	since   time.Duration   // when dead last changed to true
	returns []time.Duration // times in the last hour at which the node came back
	state   nodeState
	alive   time.Time // members.Member.Since
	// audit is when to audit the node next.
	audit         time.Duration
	audits        int
	auditFailures int  // failed audits in a row
	seen          bool // a member at the current refresh
	member        bool // has ever been a member: if it no longer is, it was removed
}

// flapTime is how long a return counts against a node, flapMax how many returns do.
const (
	flapTime = time.Hour
	flapMax  = 4
)

// unknownNodesMax bounds the non-members that are remembered.
const unknownNodesMax = 4096

// membershipWatch derives views from the membership.
type membershipWatch struct {
	membership members.Membership
	clock      timing.Clock
	cfg        Config

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	nodes map[string]*nodeHistory
	last  *view
}

func newMembershipWatch(membership members.Membership, clock timing.Clock, cfg Config) *membershipWatch {
	w := &membershipWatch{membership: membership, clock: clock, cfg: cfg, nodes: map[string]*nodeHistory{}}
	w.refresh()
	return w
}

// refresh reads the membership. It reports whether the members or the state of any node changed.
func (w *membershipWatch) refresh() (*view, bool) {
	all := w.membership.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	v := &view{states: make(map[string]nodeState), members: all, at: now}
	for _, n := range w.nodes {
		n.seen = false
	}
	for _, m := range all {
		n := w.nodeLocked(m.ID)
		n.seen, n.member = true, true
		w.observe(n, m.Alive, now)
		if m.Alive && !m.Since.Equal(n.alive) {
			// It may have lost replicas, though its absence was too short to be seen.
			n.alive, n.audit = m.Since, now
		}
	}
	changed := w.last == nil
	for id, n := range w.nodes {
		if !n.seen {
			w.observe(n, false, now)
		}
		prev := n.state
		n.state = w.currentState(n, now)
		if i := slices.IndexFunc(all, func(m members.Member) bool { return m.ID == id && m.Draining }); i >= 0 {
			n.state = nodeGone
			if all[i].Alive {
				n.state = nodeDraining
			}
		}
		if n.state != prev {
			changed = true
			if prev >= nodeDown && n.state < nodeDown {
				n.audit = now // it may have lost replicas
			}
		}
		v.states[id] = n.state
		if n.state == nodeGone && !n.seen && now-n.since > flapTime {
			delete(w.nodes, id)
		}
	}
	for _, m := range all {
		if !m.Draining {
			v.remaining++
		}
		if v.states[m.ID] == nodeLive {
			v.live++
		}
	}
	v.changed = now
	if !changed {
		v.changed = w.last.changed
	}
	updated := changed || !sameMembers(all, w.last.members)
	if w.last != nil {
		v.version = w.last.version
	}
	if updated {
		v.version++
	}
	w.last = v
	return v, updated
}

// sameMembers reports whether two lists have the same nodes in the same state. Free space is
// ignored.
func sameMembers(a, b []members.Member) bool {
	return slices.EqualFunc(a, b, func(x, y members.Member) bool { return x.ID == y.ID && x.Alive == y.Alive && x.Draining == y.Draining })
}

// settled returns the version of the current view, and whether results from it are current. They
// are not if the membership has changed since, or while a non-member that some list names is in its
// grace period.
func (w *membershipWatch) settled() (version uint64, ok bool) {
	all := w.membership.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if !n.seen && n.state == nodeDown {
			return w.last.version, false
		}
	}
	return w.last.version, sameMembers(all, w.last.members)
}

func (w *membershipWatch) nodeLocked(id string) *nodeHistory {
	n := w.nodes[id]
	if n == nil {
		n = &nodeHistory{state: nodeDown, since: w.clock.Now(), dead: true}
		w.nodes[id] = n
	}
	return n
}

func (w *membershipWatch) observe(n *nodeHistory, alive bool, now time.Duration) {
	switch {
	case alive && n.dead:
		if now > n.since {
			n.returns = append(n.returns, now)
		}
		n.dead = false
	case !alive && !n.dead:
		n.dead, n.since = true, now
	}
	n.returns = slices.DeleteFunc(n.returns, func(t time.Duration) bool { return now-t > flapTime })
	if len(n.returns) > flapMax {
		n.returns = n.returns[len(n.returns)-flapMax:]
	}
}

// currentState returns the state of a node that is not draining. The grace period of a flapping
// node is longer; a removed node has none, since it never comes back.
func (w *membershipWatch) currentState(n *nodeHistory, now time.Duration) nodeState {
	switch {
	case !n.dead:
		return nodeLive
	case n.member && !n.seen:
		return nodeGone
	case now-n.since < w.cfg.Grace<<len(n.returns) || planted.On(planted.DeadNeverGone):
		return nodeDown
	}
	return nodeGone
}

// view returns the latest view.
func (w *membershipWatch) view() *view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// unknownNode returns the state of a node that a list names and the membership does not have. Such
// a node has a grace period too.
func (w *membershipWatch) unknownNode(id string) nodeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		return n.state
	}
	if len(w.nodes) < unknownNodesMax {
		w.nodeLocked(id)
	}
	return nodeDown
}

// fullAuditEvery is how many audits of a node there are for each that asks for all extents.
const fullAuditEvery = 8

// auditsDue returns the nodes to audit now and schedules their next audit. Nodes with a true value
// are asked for all extents.
func (w *membershipWatch) auditsDue() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	ids := map[string]bool{}
	for id, n := range w.nodes {
		if n.state <= nodeDraining && id != w.membership.Self() && now >= n.audit {
			n.audit = now + w.cfg.AuditEvery
			n.audits++
			ids[id] = n.audits%fullAuditEvery == 0
		}
	}
	return ids
}

// auditRetry is the delay before a failed audit is retried, doubled each time up to ScanEvery:
// gossip reports a starting node some seconds before it answers. The retry is immediate once it
// answers.
const auditRetry = time.Second

// auditFailed records that an audit of a node failed.
func (w *membershipWatch) auditFailed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		n.audit = w.clock.Now() + min(auditRetry<<min(n.auditFailures, 10), w.cfg.ScanEvery)
		n.auditFailures++
	}
}

// auditSucceeded records that an audit of a node succeeded.
func (w *membershipWatch) auditSucceeded(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		n.auditFailures = 0
	}
}

// retryNow makes failed audits due at once.
func (w *membershipWatch) retryNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.auditFailures > 0 {
			n.audit = w.clock.Now()
		}
	}
}

// stateOf returns the state of a node.
func (k *Repairer) stateOf(v *view, id string) nodeState {
	if st, ok := v.states[id]; ok {
		return st
	}
	return k.watch.unknownNode(id)
}

// firstRanked returns which of the nodes has the highest placement rank for an extent. That node
// repairs it.
func (v *view) firstRanked(x local.ExtentID, ids []string) string {
	var nodes []place.Node
	for _, id := range ids {
		n := place.Node{ID: id}
		if i := slices.IndexFunc(v.members, func(m members.Member) bool { return m.ID == id }); i >= 0 {
			n.CapacityBytes = v.members[i].CapacityBytes
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return ""
	}
	return place.Rank(members.PlaceKey(x), nodes)[0].ID
}

// topRanked returns the n members with the highest placement rank for an extent.
func (v *view) topRanked(x local.ExtentID, n int) []string {
	nodes := make([]place.Node, len(v.members))
	for i, m := range v.members {
		nodes[i] = place.Node{ID: m.ID, CapacityBytes: m.CapacityBytes}
	}
	var ids []string
	for _, n := range place.Rank(members.PlaceKey(x), nodes)[:min(n, len(nodes))] {
		ids = append(ids, n.ID)
	}
	return ids
}
