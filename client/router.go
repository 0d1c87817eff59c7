package client

import "context"

// router locates many rows of a table. After a failed lookup that suggests that others will fail
// too, it makes no more: they would fail one by one.
type router struct {
	table *Table
	err   error
}

// route returns the location of row. Errors: those of locate.
func (r *router) route(ctx context.Context, row []byte) (destination, error) {
	l := r.table.client.locator
	if p, ok := l.cached(r.table.name, row); ok {
		return p, nil
	}
	if r.err != nil {
		return destination{}, r.err
	}
	p, err := l.find(ctx, r.table.name, row)
	if e, ok := err.(*lookupError); err != nil && (!ok || e.affectsOthers()) {
		r.err = err
	}
	return p, err
}

// group holds the indexes of rows that go to one server, or that could not be located.
type group struct {
	to    destination // location of the first row
	err   error
	items []int
}

// split groups the rows with these indexes by their servers.
func (r *router) split(ctx context.Context, items []int, row func(int) []byte) []group {
	var groups []group
	at := map[string]int{} // indexes of groups, by address
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
		addr := p.node.address()
		g, ok := at[addr]
		if !ok {
			g, at[addr] = len(groups), len(groups)
			groups = append(groups, group{to: p})
		}
		groups[g].items = append(groups[g].items, i)
	}
	return groups
}

// invalidate records that a call with a whole group was misrouted.
func (r *router) invalidate(g *group, why reason, row func(int) []byte) {
	for _, i := range g.items {
		if loc := r.cached(g, row(i)); loc != nil {
			r.table.client.locator.invalidate(destination{loc.node, loc}, why, nil)
		}
	}
}

// cached returns the cached location of a row of a group, if its node and table id are still those
// of the group; otherwise nil.
func (r *router) cached(g *group, row []byte) *location {
	loc := r.table.client.locator.lookUp(r.table.name, row)
	if loc == nil || loc.node != g.to.node || loc.table != g.to.tableID() {
		return nil
	}
	return loc
}

// sentTo returns the place to which a row of a group was sent.
func (r *router) sentTo(g *group, row []byte) destination {
	if g.to.loc == nil {
		return g.to
	}
	if loc := r.cached(g, row); loc != nil {
		return destination{loc.node, loc}
	}
	return destination{node: g.to.node, loc: &location{of: g.to.loc.of}} // no longer cached
}

// join extends v, a decision on several calls, by w.
func (v *decision) join(w decision) {
	v.elsewhere = v.elsewhere && w.elsewhere
	v.usesBudget = v.usesBudget || w.usesBudget
	v.pause = max(v.pause, w.pause)
	v.pauseMax = max(v.pauseMax, w.pauseMax)
	v.err = w.err
}
