package master

import "slices"

// PendingMerge is a pending merge of two neighbours.
type PendingMerge struct {
	Lower, Upper string // keys of the tablets' rows
	Why          string
}

// has reports whether the server reports to hold a tablet.
func (v *TabletServer) has(key string) bool {
	if v.index != nil {
		_, ok := v.index[key]
		return ok
	}
	return slices.ContainsFunc(v.Has, func(h Held) bool { return h.Key == key })
}

// serves reports whether the server is of the kind that a tablet is assigned to.
func (v *TabletServer) serves(key string) bool {
	t := Tablet{Key: key}
	return v.Metadata == t.OfMetadata()
}

// accepts reports whether the server can be assigned tablets now.
func (v *TabletServer) accepts() bool { return v != nil && !v.Silent && !v.Draining }

// destination returns the server that an unassigned tablet should go to, and the empty string if
// any server will do. It is the server of the neighbour that the tablet is to be merged with, or
// else the one that it is pinned to.
func (p *planner) destination(t *Tablet) string {
	for _, u := range p.state.PendingMerges {
		other := u.Upper
		if t.Key == u.Upper {
			other = u.Lower
		} else if t.Key != u.Lower {
			continue
		}
		if o := p.row(other); o != nil && p.alive[o.Server].accepts() {
			return o.Server
		}
	}
	if v := p.pinned(t.Key); v != nil {
		return v.Name
	}
	return ""
}

// pinned returns the server that a tablet is pinned to; nil if there is none or it can be assigned
// nothing.
func (p *planner) pinned(key string) *TabletServer {
	node, ok := p.state.Pins[key]
	if !ok {
		return nil
	}
	for i := range p.state.Servers {
		if v := &p.state.Servers[i]; v.Node == node && v.serves(key) && v.accepts() {
			return v
		}
	}
	return nil
}

// pending reports whether a move, merge or pin concerns the tablet, so that the balance leaves it
// alone.
func (p *planner) pending(key string) bool {
	return p.pinned(key) != nil || p.inUnion(key)
}

func (p *planner) inUnion(key string) bool {
	return slices.ContainsFunc(p.state.PendingMerges, func(u PendingMerge) bool { return u.Lower == key || u.Upper == key })
}

func (p *planner) row(key string) *Tablet { return p.rows[key] }

// planMoves plans the moves of tablets to the nodes that they are pinned to.
func (p *planner) planMoves() {
	for i := range p.state.Tablets {
		t := &p.state.Tablets[i]
		to, from := p.pinned(t.Key), p.alive[t.Server]
		if to == nil || from == nil || from == to || p.inUnion(t.Key) || !from.has(t.Key) || p.moves >= requestedMovesMax {
			continue
		}
		if p.add(Order{Kind: Unload, Tablet: *t, Server: from.Name, To: to.Name, Why: "move to node " + to.Node + " requested"}) {
			p.moves++
		}
	}
}

// planMerges plans the merges of neighbours on one server, and moves that bring the others
// together.
func (p *planner) planMerges() {
	for _, u := range p.state.PendingMerges {
		lower, upper := p.row(u.Lower), p.row(u.Upper)
		if lower == nil || upper == nil {
			continue
		}
		a, b := p.alive[lower.Server], p.alive[upper.Server]
		if a == nil || b == nil || !a.has(lower.Key) || !b.has(upper.Key) {
			continue
		}
		if a == b {
			p.add(Order{Kind: Merge, Tablet: *lower, Upper: *upper, Server: a.Name, Why: u.Why})
			continue
		}
		// The lighter tablet moves. If one server is draining, its tablet moves.
		t, from, to := lower, a, b
		if to.Draining || !from.Draining && p.heavier(a, lower.Key, b, upper.Key) {
			t, from, to = upper, b, a
		}
		if to.accepts() && p.moves < requestedMovesMax && p.add(Order{Kind: Unload, Tablet: *t, Server: from.Name, To: to.Name, Why: "to be merged with its neighbour on " + to.Name}) {
			p.moves++
		}
	}
}

// heavier reports whether moving a tablet of a costs more than moving another tablet of b.
func (p *planner) heavier(a *TabletServer, key string, b *TabletServer, other string) bool {
	weigh := func(v *TabletServer, key string) float64 {
		i := slices.IndexFunc(v.Has, func(h Held) bool { return h.Key == key })
		return v.weightOf(v.Has[i])
	}
	return weigh(a, key) > weigh(b, other)
}
