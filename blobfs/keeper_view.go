package blobfs

import (
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/place"
)

// standing is what the keeper makes of what the fleet says of a node.
type standing uint8

const (
	present standing = iota // alive, and to stay
	leaving                 // alive, to be emptied
	away                    // not alive, or not known, for less than the grace period
	gone                    // for longer
)

// view is the fleet as the keeper sees it at one time. It does not change.
type view struct {
	standings map[string]standing
	members   []Member
	present   int
	// remaining counts the nodes that are to stay, dead or alive.
	remaining int
	// changed is when a node's standing last changed.
	changed time.Duration
	at      time.Duration
	// number counts the changes of the fleet that there were: what was found in an earlier view may not be so any more.
	number uint64
}

// sighting is what the keeper remembers of a node.
type sighting struct {
	dead    bool
	since   time.Duration   // of dead
	returns []time.Duration // in the last hour
	was     standing
	alive   time.Time // since when, as the fleet says
	// audit is when to ask it next whether it has what it should.
	audit  time.Duration
	audits int
	undone int  // how many times in a row it could not be asked
	seen   bool // by the present refresh
	member bool // seen by any: if it is not any more, it was removed
}

// flapTime is how long a return from the dead counts against a node, flapMax how many returns do.
const (
	flapTime = time.Hour
	flapMax  = 4
)

// strangersMax bounds the nodes that are remembered though they are no members.
const strangersMax = 4096

// watch makes views.
type watch struct {
	fleet Fleet
	clock Clock
	cfg   KeepConfig

	// mu guards what follows. Never held across I/O.
	mu    sync.Mutex
	nodes map[string]*sighting
	last  *view
}

func newWatch(s *Store, cfg KeepConfig) *watch {
	w := &watch{fleet: s.cluster.Fleet, clock: s.cluster.Clock, cfg: cfg, nodes: map[string]*sighting{}}
	w.refresh()
	return w
}

// refresh looks at the fleet. It tells whether that has changed: who is in it, or some standing.
func (w *watch) refresh() (*view, bool) {
	members := w.fleet.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	v := &view{standings: make(map[string]standing), members: members, at: now}
	for _, n := range w.nodes {
		n.seen = false
	}
	for _, m := range members {
		n := w.nodeLocked(m.ID)
		n.seen, n.member = true, true
		w.observe(n, m.Alive, now)
		if m.Alive && !m.Since.Equal(n.alive) {
			// It may have lost something, though its death was too short to be seen.
			n.alive, n.audit = m.Since, now
		}
	}
	changed := w.last == nil
	for id, n := range w.nodes {
		if !n.seen {
			w.observe(n, false, now)
		}
		was := n.was
		n.was = w.judge(n, now)
		if i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id && m.Leaving }); i >= 0 {
			n.was = gone
			if members[i].Alive {
				n.was = leaving
			}
		}
		if n.was != was {
			changed = true
			if was >= away && n.was < away {
				n.audit = now // it may have lost something
			}
		}
		v.standings[id] = n.was
		if n.was == gone && !n.seen && now-n.since > flapTime {
			delete(w.nodes, id)
		}
	}
	for _, m := range members {
		if !m.Leaving {
			v.remaining++
		}
		if v.standings[m.ID] == present {
			v.present++
		}
	}
	v.changed = now
	if !changed {
		v.changed = w.last.changed
	}
	news := changed || !sameMembers(members, w.last.members)
	if w.last != nil {
		v.number = w.last.number
	}
	if news {
		v.number++
	}
	w.last = v
	return v, news
}

// sameMembers tells whether lists have the same nodes, which live and stay as before. How full they are does not count.
func sameMembers(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(x, y Member) bool { return x.ID == y.ID && x.Alive == y.Alive && x.Leaving == y.Leaving })
}

// settled returns the number of the present view, and whether what was found in it counts: not if the fleet has changed
// since, nor while somebody is waited for that it does not know.
func (w *watch) settled() (number uint64, ok bool) {
	members := w.fleet.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if !n.seen && n.was == away {
			return w.last.number, false
		}
	}
	return w.last.number, sameMembers(members, w.last.members)
}

func (w *watch) nodeLocked(id string) *sighting {
	n := w.nodes[id]
	if n == nil {
		n = &sighting{was: away, since: w.clock.Now(), dead: true}
		w.nodes[id] = n
	}
	return n
}

func (w *watch) observe(n *sighting, alive bool, now time.Duration) {
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

// judge says what a node is that does not leave. One that comes and goes is waited for longer, one that was removed is not:
// it never comes back.
func (w *watch) judge(n *sighting, now time.Duration) standing {
	switch {
	case !n.dead:
		return present
	case n.member && !n.seen:
		return gone
	case now-n.since < w.cfg.Grace<<len(n.returns):
		return away
	}
	return gone
}

// view returns the present view.
func (w *watch) view() *view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// stranger notes a node that some list names and the fleet does not know: it is waited for, too.
func (w *watch) stranger(id string) standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		return n.was
	}
	if len(w.nodes) < strangersMax {
		w.nodeLocked(id)
	}
	return away
}

// wholeAudit is how many times as rare as other audits those are that ask a node for all extents here.
const wholeAudit = 8

// due returns the nodes to ask whether they have what they should, and notes that they are asked. Those with a true value
// are asked for all extents.
func (w *watch) due() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	ids := map[string]bool{}
	for id, n := range w.nodes {
		if n.was <= leaving && id != w.fleet.Self() && now >= n.audit {
			n.audit = now + w.cfg.AuditEvery
			n.audits++
			ids[id] = n.audits%wholeAudit == 0
		}
	}
	return ids
}

// auditRetry is when a node is asked again that could not be, twice as long each time, up to ScanEvery: gossip hears
// of a node that starts some seconds before it answers. When it is heard of again that is done at once.
const auditRetry = time.Second

// undone notes that a node could not be asked.
func (w *watch) undone(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		n.audit = w.clock.Now() + min(auditRetry<<min(n.undone, 10), w.cfg.ScanEvery)
		n.undone++
	}
}

// audited notes that a node was asked.
func (w *watch) audited(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.nodes[id]; n != nil {
		n.undone = 0
	}
}

// hurry has those asked now that could not be: one of them answers.
func (w *watch) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.undone > 0 {
			n.audit = w.clock.Now()
		}
	}
}

// of returns a node's standing.
func (k *keeper) of(v *view, id string) standing {
	if st, ok := v.standings[id]; ok {
		return st
	}
	return k.watch.stranger(id)
}

// first returns the one of the nodes that comes first for an extent: the survivor that repairs.
func (v *view) first(x ExtentID, among []string) string {
	var nodes []place.Node
	for _, id := range among {
		n := place.Node{ID: id}
		if i := slices.IndexFunc(v.members, func(m Member) bool { return m.ID == id }); i >= 0 {
			n.CapacityBytes = v.members[i].CapacityBytes
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return ""
	}
	return place.Rank(placeKey(x), nodes)[0].ID
}

// likely returns the n members that come first for an extent.
func (v *view) likely(x ExtentID, n int) []string {
	nodes := make([]place.Node, len(v.members))
	for i, m := range v.members {
		nodes[i] = place.Node{ID: m.ID, CapacityBytes: m.CapacityBytes}
	}
	var ids []string
	for _, n := range place.Rank(placeKey(x), nodes)[:min(n, len(nodes))] {
		ids = append(ids, n.ID)
	}
	return ids
}
