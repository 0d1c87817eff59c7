package master

import "slices"

// Union is two neighbours that are to become one tablet.
type Union struct {
	Lower, Upper string // keys
	Why          string
}

// has says whether a server says that it has a tablet.
func (v *TabletServer) has(key string) bool {
	if v.index != nil {
		_, ok := v.index[key]
		return ok
	}
	return slices.ContainsFunc(v.Has, func(h Held) bool { return h.Key == key })
}

// serves says whether a server may be given a tablet at all.
func (v *TabletServer) serves(key string) bool {
	t := Tablet{Key: key}
	return v.Metadata == t.OfMetadata()
}

// takes says whether a server can be given tablets.
func (v *TabletServer) takes() bool { return v != nil && !v.Silent && !v.Leaving }

// destination returns the server that a tablet which has none should go to, if there is one that it should
// rather than any: where somebody wants it, or where the tablet is that it is to be merged with.
func (p *planner) destination(t *Tablet) string {
	for _, u := range p.state.Unions {
		other := u.Upper
		if t.Key == u.Upper {
			other = u.Lower
		} else if t.Key != u.Lower {
			continue
		}
		if o := p.row(other); o != nil && p.alive[o.Server].takes() {
			return o.Server
		}
	}
	if v := p.pinned(t.Key); v != nil {
		return v.Name
	}
	return ""
}

// pinned returns the server where somebody wants a tablet, nil if there is none or it can take nothing.
func (p *planner) pinned(key string) *TabletServer {
	node, ok := p.state.Pins[key]
	if !ok {
		return nil
	}
	for i := range p.state.Servers {
		if v := &p.state.Servers[i]; v.Node == node && v.serves(key) && v.takes() {
			return v
		}
	}
	return nil
}

// wanted says whether somebody wants something of a tablet, so that the balance leaves it alone.
func (p *planner) wanted(key string) bool {
	return p.pinned(key) != nil || p.inUnion(key)
}

func (p *planner) inUnion(key string) bool {
	return slices.ContainsFunc(p.state.Unions, func(u Union) bool { return u.Lower == key || u.Upper == key })
}

func (p *planner) row(key string) *Tablet { return p.rows[key] }

// move has tablets unloaded that somebody wants elsewhere; then they are loaded there.
func (p *planner) move() {
	for i := range p.state.Tablets {
		t := &p.state.Tablets[i]
		to, from := p.pinned(t.Key), p.alive[t.Server]
		if to == nil || from == nil || from == to || p.inUnion(t.Key) || !from.has(t.Key) || p.moves >= wantedMovesMax {
			continue
		}
		if p.add(Order{Kind: Unload, Tablet: *t, Server: from.Name, To: to.Name, Why: "it is wanted on node " + to.Node}) {
			p.moves++
		}
	}
}

// unite merges tablets that are on one server, and brings others together.
func (p *planner) unite() {
	for _, u := range p.state.Unions {
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
		// The smaller one moves, unless its server is the one that goes on.
		t, from, to := lower, a, b
		if to.Leaving || !from.Leaving && p.heavier(a, lower.Key, b, upper.Key) {
			t, from, to = upper, b, a
		}
		if to.takes() && p.moves < wantedMovesMax && p.add(Order{Kind: Unload, Tablet: *t, Server: from.Name, To: to.Name, Why: "its neighbour on " + to.Name + " is to have its rows"}) {
			p.moves++
		}
	}
}

// heavier says whether a tablet on a server is more work to move than another one.
func (p *planner) heavier(a *TabletServer, key string, b *TabletServer, other string) bool {
	weigh := func(v *TabletServer, key string) float64 {
		i := slices.IndexFunc(v.Has, func(h Held) bool { return h.Key == key })
		return v.weightOf(v.Has[i])
	}
	return weigh(a, key) > weigh(b, other)
}
