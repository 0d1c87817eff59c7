package gossip

import (
	"cmp"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// table is what is known of the nodes, by run. Memberlist tells it under a lock of
// its own, so that nothing here waits: readers get copies.
type table struct {
	self string
	keep time.Duration
	// removed is Config.Removed.
	removed func(id string) bool
	say     func(line) // to the log; never waits

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		runs    map[string]*Member   // by name in memberlist
		left    map[string]time.Time // names of runs that left
		gone    map[string]forgotten // by node id
		twice   map[string]time.Time // node ids that two runs are alive of: since when
		changed chan struct{}        // closed at the next change; nil if nobody waits
	}
}

// forgotten is a node that was removed.
type forgotten struct {
	start uint64 // runs up to this one
	at    time.Time
}

func (t *table) init(self string, keep time.Duration, removed func(string) bool, say func(line)) {
	t.self, t.keep, t.removed, t.say = self, keep, removed, say
	t.mu.runs, t.mu.left = map[string]*Member{}, map[string]time.Time{}
	t.mu.gone, t.mu.twice = map[string]forgotten{}, map[string]time.Time{}
}

// alive is told that a run of a node is there, and what it tells of itself.
func (t *table) alive(n *memberlist.Node) {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return // NotifyAlive has let none of these pass
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.mu.runs[n.Name]
	if run == nil || run.State != Alive {
		run = &Member{State: Alive, Since: now, Self: m.ID == t.self}
		t.mu.runs[n.Name] = run
		delete(t.mu.left, n.Name)
		if !run.Self {
			t.say(line{slog.LevelInfo, "member is there", memberArgs(&Member{Meta: m})})
		}
	}
	run.Meta, run.Gossip = m, n.Address()
	for name, other := range t.mu.runs { // what was before
		if other.ID == m.ID && other.Start < m.Start && other.State != Alive {
			delete(t.mu.runs, name)
		}
	}
	t.changeLocked()
}

// dead is told that a run of a node is there no more.
func (t *table) dead(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.mu.runs[name]
	if run == nil || run.State != Alive {
		return
	}
	run.State, run.Since = Dead, time.Now()
	if _, left := t.mu.left[name]; left {
		run.State = Left
	}
	for _, other := range t.mu.runs {
		if other.ID == run.ID && other.Start > run.Start && other.State == Alive {
			delete(t.mu.runs, name) // it was started anew
		}
	}
	switch {
	case run.Self: // it goes, or the others are told otherwise at once
	case run.State == Left:
		t.say(line{slog.LevelInfo, "member has left", memberArgs(run)})
	default:
		t.say(line{slog.LevelWarn, "member does not answer", memberArgs(run)})
	}
	t.changeLocked()
}

func memberArgs(m *Member) []any {
	return []any{"node", cmp.Or(m.Name, m.ID), "id", m.ID, "rpc", m.RPC}
}

// apply takes a note in and tells whether it was news.
func (t *table) apply(n note) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n.kind {
	case noteLeft:
		name := instanceName(n.id, n.start)
		if _, known := t.mu.left[name]; known || n.id == t.self || len(t.mu.left) >= notesMax {
			return false
		}
		t.mu.left[name] = time.Now()
		if run := t.mu.runs[name]; run != nil && run.State == Dead {
			run.State = Left
			t.changeLocked()
		}
		return true
	case noteForget:
		if old, known := t.mu.gone[n.id]; known && old.start >= n.start || !known && len(t.mu.gone) >= notesMax {
			return false
		}
		t.mu.gone[n.id] = forgotten{start: n.start, at: time.Now()}
		t.changeLocked()
		return true
	}
	return false
}

// forgetting returns the note that a node was removed, if it is known.
func (t *table) forgetting(id string) (note, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := note{kind: noteForget, id: id}
	known := false
	for _, run := range t.mu.runs {
		if run.ID == id {
			n.start, known = max(n.start, run.Start), true
		}
	}
	return n, known
}

// kept returns the notes that others should know.
func (t *table) kept() []note {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []note
	for _, id := range slices.Sorted(maps.Keys(t.mu.gone)) {
		all = append(all, note{kind: noteForget, id: id, start: t.mu.gone[id].start})
	}
	return all
}

// count returns the number of runs that are alive, or nearly so.
func (t *table) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.runs)
}

// hiddenLocked tells whether the run is of a node that was removed.
func (t *table) hiddenLocked(run *Member) bool {
	g, ok := t.mu.gone[run.ID]
	return !run.Self && (ok && run.Start <= g.start || t.removed(run.ID))
}

// before tells whether m stands for a node rather than o, which is another run of
// it: one that is alive before one that is not, a later before an earlier.
func (m *Member) before(o *Member) bool {
	if (m.State == Alive) != (o.State == Alive) {
		return m.State == Alive
	}
	return m.Start > o.Start
}

// nodesLocked returns the run that stands for each node.
func (t *table) nodesLocked() map[string]*Member {
	nodes := make(map[string]*Member, len(t.mu.runs))
	for _, run := range t.mu.runs {
		if best := nodes[run.ID]; !t.hiddenLocked(run) && (best == nil || run.before(best)) {
			nodes[run.ID] = run
		}
	}
	return nodes
}

func (t *table) members() []Member {
	t.mu.Lock()
	nodes := t.nodesLocked()
	all := make([]Member, 0, len(nodes))
	for _, m := range nodes {
		all = append(all, *m)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (t *table) member(id string) (Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var best *Member
	for _, run := range t.mu.runs {
		if run.ID == id && !t.hiddenLocked(run) && (best == nil || run.before(best)) {
			best = run
		}
	}
	if best == nil {
		return Member{}, false
	}
	return *best, true
}

func (t *table) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.changed == nil {
		t.mu.changed = make(chan struct{})
	}
	return t.mu.changed
}

func (t *table) changeLocked() {
	if t.mu.changed != nil {
		close(t.mu.changed)
		t.mu.changed = nil
	}
}

const (
	// runsMax bounds what is remembered of nodes that are not alive.
	runsMax = 4096
	// twiceAfter is when two runs of one node at a time are an error: a node that was
	// started anew is known to be dead before.
	twiceAfter = 30 * time.Second
)

// tidy drops what is too old, and complains of nodes that are there twice.
func (t *table) tidy() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := t.keep
	if len(t.mu.runs) > runsMax {
		keep = time.Minute
	}
	before := len(t.mu.runs)
	maps.DeleteFunc(t.mu.runs, func(_ string, m *Member) bool { return m.State != Alive && now.Sub(m.Since) > keep })
	maps.DeleteFunc(t.mu.left, func(_ string, at time.Time) bool { return now.Sub(at) > t.keep })
	maps.DeleteFunc(t.mu.gone, func(_ string, g forgotten) bool { return now.Sub(g.at) > t.keep })
	if len(t.mu.runs) != before {
		t.changeLocked()
	}
	alive := map[string][]*Member{}
	for _, m := range t.mu.runs {
		if m.State == Alive {
			alive[m.ID] = append(alive[m.ID], m)
		}
	}
	maps.DeleteFunc(t.mu.twice, func(id string, _ time.Time) bool { return len(alive[id]) < 2 })
	for id, runs := range alive {
		since, known := t.mu.twice[id]
		switch {
		case len(runs) < 2:
		case !known:
			t.mu.twice[id] = now
		case now.Sub(since) > twiceAfter:
			t.mu.twice[id] = now.Add(math.MaxInt64 / 2) // said
			t.say(line{slog.LevelError, "one node is there twice: its data folders were copied; stop one", []any{
				"id", id, "rpc", runs[0].RPC, "and", runs[1].RPC}})
		}
	}
}

// lost returns gossip addresses of nodes that are dead, and did not leave.
func (t *table) lost() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var addrs []string
	for _, m := range t.nodesLocked() {
		if m.State == Dead {
			addrs = append(addrs, m.Gossip)
		}
	}
	return addrs
}

// hosts returns the hosts of all nodes that are listed.
func (t *table) hosts() map[netip.Prefix]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	hosts := map[netip.Prefix]bool{}
	for _, m := range t.nodesLocked() {
		if at, err := netip.ParseAddrPort(m.Gossip); err == nil {
			hosts[hostPrefix(at.Addr())] = true
		}
	}
	return hosts
}

// aliveAt returns the gossip addresses of nodes that are alive, without this one.
func (t *table) aliveAt() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	addrs := map[string]bool{}
	for _, m := range t.mu.runs {
		if m.State == Alive && !m.Self {
			addrs[m.Gossip] = true
		}
	}
	return addrs
}
