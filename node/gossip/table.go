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

// table is the state of the nodes, by run. Memberlist calls it under its own lock, so it never
// blocks: readers get copies.
type table struct {
	self string
	keep time.Duration
	// removed is Config.Removed.
	removed func(id string) bool
	log     func(logLine) // to the log; never blocks

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		runs       map[string]*Member   // by memberlist name
		byID       map[string][]string  // names of the runs of each node
		left       map[string]departure // runs that left, by memberlist name
		removed    map[string]removal   // removed nodes, by id
		duplicates map[string]time.Time // ids of nodes with two live runs, and since when
		changed    chan struct{}        // closed at the next change; nil if unused
	}
}

// departure is the end of a run that was announced.
type departure struct {
	at     time.Time
	reason string // of the note
}

// removal is the removal of a node.
type removal struct {
	start uint64 // runs up to this one are removed
	at    time.Time
}

func (t *table) init(self string, keep time.Duration, removed func(string) bool, log func(logLine)) {
	t.self, t.keep, t.removed, t.log = self, keep, removed, log
	t.mu.runs, t.mu.byID, t.mu.left = map[string]*Member{}, map[string][]string{}, map[string]departure{}
	t.mu.removed, t.mu.duplicates = map[string]removal{}, map[string]time.Time{}
}

// alive records that a run is alive, and its meta.
func (t *table) alive(n *memberlist.Node) {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return // NotifyAlive has rejected these
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.mu.runs[n.Name]
	if run == nil || run.State != Alive {
		if run == nil {
			t.mu.byID[m.ID] = append(t.mu.byID[m.ID], n.Name)
		}
		run = &Member{State: Alive, Since: now, Self: m.ID == t.self}
		t.mu.runs[n.Name] = run
		delete(t.mu.left, n.Name)
		if !run.Self {
			t.log(logLine{slog.LevelInfo, "member joined", memberArgs(&Member{Meta: m})})
		}
	}
	run.Meta, run.Gossip = m, n.Address()
	for _, name := range slices.Clone(t.mu.byID[m.ID]) { // earlier runs
		if other := t.mu.runs[name]; other.Start < m.Start && other.State != Alive {
			t.deleteLocked(name)
		}
	}
	t.changeLocked()
}

// dead records that a run is no longer alive.
func (t *table) dead(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.mu.runs[name]
	if run == nil || run.State != Alive {
		return
	}
	run.State, run.Since = Dead, time.Now()
	if d, left := t.mu.left[name]; left {
		run.State, run.Reason = Left, d.reason
	}
	if slices.ContainsFunc(t.mu.byID[run.ID], func(name string) bool {
		other := t.mu.runs[name]
		return other.Start > run.Start && other.State == Alive
	}) {
		t.deleteLocked(name) // the node has restarted
	}
	switch {
	case run.Self: // the node leaves, or refutes this at once
	case run.State == Left:
		t.log(logLine{slog.LevelInfo, "member left", memberArgs(run)})
	default:
		t.log(logLine{slog.LevelWarn, "member dead", memberArgs(run)})
	}
	t.changeLocked()
}

func memberArgs(m *Member) []any {
	args := []any{"node", cmp.Or(m.Name, m.ID), "id", m.ID, "rpc", m.RPC}
	if m.Reason != "" {
		args = append(args, "reason", m.Reason)
	}
	return args
}

// apply records a note, and reports whether it was new.
func (t *table) apply(n note) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n.kind {
	case noteLeft:
		name := instanceName(n.id, n.start)
		if _, known := t.mu.left[name]; known || n.id == t.self || len(t.mu.left) >= notesMax {
			return false
		}
		t.mu.left[name] = departure{time.Now(), n.reason}
		if run := t.mu.runs[name]; run != nil && run.State == Dead {
			run.State, run.Reason = Left, n.reason
			t.changeLocked()
		}
		return true
	case noteForget:
		if old, known := t.mu.removed[n.id]; known && old.start >= n.start || !known && len(t.mu.removed) >= notesMax {
			return false
		}
		t.mu.removed[n.id] = removal{start: n.start, at: time.Now()}
		t.changeLocked()
		return true
	}
	return false
}

// removalNote returns the note that a node was removed, if the node is known.
func (t *table) removalNote(id string) (note, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := note{kind: noteForget, id: id}
	for _, name := range t.mu.byID[id] {
		n.start = max(n.start, t.mu.runs[name].Start)
	}
	return n, len(t.mu.byID[id]) > 0
}

// removals returns the notes of removals, for exchange with other nodes.
func (t *table) removals() []note {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []note
	for _, id := range slices.Sorted(maps.Keys(t.mu.removed)) {
		all = append(all, note{kind: noteForget, id: id, start: t.mu.removed[id].start})
	}
	return all
}

// count returns the number of runs, live and dead.
func (t *table) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.runs)
}

// hiddenLocked reports whether the run belongs to a removed node.
func (t *table) hiddenLocked(run *Member) bool {
	g, ok := t.mu.removed[run.ID]
	return !run.Self && (ok && run.Start <= g.start || t.removed(run.ID))
}

// preferredTo reports whether m represents its node rather than o, another run of it: a live run before
// a dead one, a later run before an earlier one.
func (m *Member) preferredTo(o *Member) bool {
	if (m.State == Alive) != (o.State == Alive) {
		return m.State == Alive
	}
	return m.Start > o.Start
}

// nodesLocked returns the run that represents each node.
func (t *table) nodesLocked() map[string]*Member {
	nodes := make(map[string]*Member, len(t.mu.runs))
	for _, run := range t.mu.runs {
		if best := nodes[run.ID]; !t.hiddenLocked(run) && (best == nil || run.preferredTo(best)) {
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
	for _, name := range t.mu.byID[id] {
		if run := t.mu.runs[name]; !t.hiddenLocked(run) && (best == nil || run.preferredTo(best)) {
			best = run
		}
	}
	if best == nil {
		return Member{}, false
	}
	return *best, true
}

// deleteLocked deletes a run.
func (t *table) deleteLocked(name string) {
	id := t.mu.runs[name].ID
	delete(t.mu.runs, name)
	names := slices.DeleteFunc(t.mu.byID[id], func(o string) bool { return o == name })
	if t.mu.byID[id] = names; len(names) == 0 {
		delete(t.mu.byID, id)
	}
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
	// runsMax is the number of runs above which dead ones are kept for only a minute.
	runsMax = 4096
	// duplicateAfter is how long two runs of a node may be alive: after a restart the earlier one
	// is found dead sooner.
	duplicateAfter = 30 * time.Second
)

// prune drops old entries, and logs nodes with two live runs.
func (t *table) prune() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := t.keep
	if len(t.mu.runs) > runsMax {
		keep = time.Minute
	}
	before := len(t.mu.runs)
	for name, m := range t.mu.runs {
		if m.State != Alive && now.Sub(m.Since) > keep {
			t.deleteLocked(name)
		}
	}
	maps.DeleteFunc(t.mu.left, func(_ string, d departure) bool { return now.Sub(d.at) > t.keep })
	maps.DeleteFunc(t.mu.removed, func(_ string, g removal) bool { return now.Sub(g.at) > t.keep })
	if len(t.mu.runs) != before {
		t.changeLocked()
	}
	alive := map[string][]*Member{}
	for _, m := range t.mu.runs {
		if m.State == Alive {
			alive[m.ID] = append(alive[m.ID], m)
		}
	}
	maps.DeleteFunc(t.mu.duplicates, func(id string, _ time.Time) bool { return len(alive[id]) < 2 })
	for id, runs := range alive {
		since, known := t.mu.duplicates[id]
		switch {
		case len(runs) < 2:
		case !known:
			t.mu.duplicates[id] = now
		case now.Sub(since) > duplicateAfter:
			t.mu.duplicates[id] = now.Add(math.MaxInt64 / 2) // logged once
			t.log(logLine{slog.LevelError, "node runs twice: its data folders were copied; stop one", []any{
				"id", id, "rpc", runs[0].RPC, "other_rpc", runs[1].RPC}})
		}
	}
}

// deadAddrs returns the gossip addresses of nodes that died without leaving.
func (t *table) deadAddrs() []string {
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

// hosts returns the hosts of all listed nodes.
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

// aliveAddrs returns the gossip addresses of live nodes, except this one.
func (t *table) aliveAddrs() map[string]bool {
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
