package client

import "context"

// router finds the servers of many rows of a table. After a lookup that says nothing
// good of the others it makes no more: they would fail one by one.
type router struct {
	table *Table
	err   error
}

// route returns where row is. Errors: those of locate.
func (r *router) route(ctx context.Context, row []byte) (place, error) {
	l := r.table.client.locator
	if p, ok := l.cached(r.table.name, row); ok {
		return p, nil
	}
	if r.err != nil {
		return place{}, r.err
	}
	p, err := l.find(ctx, r.table.name, row)
	if e, ok := err.(*lookupError); err != nil && (!ok || e.others()) {
		r.err = err
	}
	return p, err
}

// group is rows that go to one server, by their numbers, or that could not be located.
type group struct {
	to    place // where the first is
	err   error
	items []int
}

// split groups the rows with these numbers by their servers.
func (r *router) split(ctx context.Context, items []int, row func(int) []byte) []group {
	var groups []group
	at := map[*node]int{}
	for _, i := range items {
		p, err := r.route(ctx, row(i))
		if err != nil {
			if last := len(groups) - 1; last >= 0 && groups[last].err == err {
				groups[last].items = append(groups[last].items, i)
			} else {
				groups = append(groups, group{err: err, items: []int{i}})
			}
			continue
		}
		g, ok := at[p.node]
		if !ok {
			g, at[p.node] = len(groups), len(groups)
			groups = append(groups, group{to: p})
		}
		groups[g].items = append(groups[g].items, i)
	}
	return groups
}

// wrong reports that a whole group went to its server in vain.
func (r *router) wrong(g *group, why reason, row func(int) []byte) {
	for _, i := range g.items {
		if loc := r.still(g, row(i)); loc != nil {
			r.table.client.locator.wrong(place{loc.node, loc}, why, nil)
		}
	}
}

// still returns what is known of the row of a group if that is still where and of which table it was; else nil.
func (r *router) still(g *group, row []byte) *location {
	loc := r.table.client.locator.lookUp(r.table.name, row)
	if loc == nil || loc.node != g.to.node || loc.table != g.to.tableID() {
		return nil
	}
	return loc
}

// went is where the row of a group went.
func (r *router) went(g *group, row []byte) place {
	if g.to.loc == nil {
		return g.to
	}
	if loc := r.still(g, row); loc != nil {
		return place{loc.node, loc}
	}
	return place{node: g.to.node, loc: &location{of: g.to.loc.of}} // it is forgotten already
}

// join makes v the verdict on more calls than it was.
func (v *verdict) join(w verdict) {
	v.elsewhere = v.elsewhere && w.elsewhere
	v.costs = v.costs || w.costs
	v.pause = max(v.pause, w.pause)
	v.pauseMax = max(v.pauseMax, w.pauseMax)
	v.err = w.err
}
