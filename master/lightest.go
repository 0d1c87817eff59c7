package master

import (
	"cmp"
	"container/heap"
	"slices"
)

// ranked is a server that can be given tablets.
type ranked struct {
	v  *TabletServer
	in *ranking // nil once it cannot be given any more
	at int      // its index there
}

// ranking is a heap of servers, the one that gets the next tablet first. It makes a plan for many tablets take a time that hardly depends
// on the number of servers.
type ranking struct {
	p   *planner
	all []*ranked
}

// Len implements heap.Interface.
func (r *ranking) Len() int { return len(r.all) }

// Less implements heap.Interface: the server with less weight comes first. See lightest for ties.
func (r *ranking) Less(i, j int) bool { return r.p.compare(r.all[i].v, r.all[j].v) < 0 }

// Swap implements heap.Interface.
func (r *ranking) Swap(i, j int) {
	r.all[i], r.all[j] = r.all[j], r.all[i]
	r.all[i].at, r.all[j].at = i, j
}

// Push implements heap.Interface.
func (r *ranking) Push(x any) {
	e := x.(*ranked)
	e.in, e.at = r, len(r.all)
	r.all = append(r.all, e)
}

// Pop implements heap.Interface.
func (r *ranking) Pop() any {
	last := r.all[len(r.all)-1]
	r.all = r.all[:len(r.all)-1]
	last.in = nil
	return last
}

// compare orders servers by the weight that decides which gets the next tablet, then by that of the node, then by name.
func (p *planner) compare(a, b *TabletServer) int {
	x, xNode := p.ranks(a)
	y, yNode := p.ranks(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(xNode, yNode), cmp.Compare(a.Name, b.Name))
}

// ranks returns the weights by which a server is compared.
func (p *planner) ranks(v *TabletServer) (w, node float64) {
	w, node = p.weight[v.Name], p.nodeWeight[v.Node]
	if v.Metadata {
		node = 0
		if w < metadataTogether {
			w = -w
		}
	}
	if v.Failing {
		w += failingWeight
	}
	return w, node
}

// rank puts the servers into rankings: of METADATA servers or not, draining or not.
func (p *planner) rank() {
	p.ranked = map[string][]*ranked{}
	for i := range p.state.Servers {
		v := &p.state.Servers[i]
		if v.Silent || p.loads[v.Name] >= v.loadsMax() {
			continue
		}
		r := p.ranking(v.Metadata, v.Draining)
		if r.p == nil {
			r.p = p
		}
		e := &ranked{v: v}
		p.ranked[v.Node] = append(p.ranked[v.Node], e)
		heap.Push(r, e)
	}
}

// ranking returns the ranking of METADATA servers or of others that are draining or not.
func (p *planner) ranking(metadata, draining bool) *ranking {
	i := 0
	if metadata {
		i = 1
	}
	if draining {
		i += 2
	}
	return &p.rankings[i]
}

// reorder moves the servers of a node to their places after a change of weights or loads. A node has one server of each kind, or, while it
// is replaced, two.
func (p *planner) reorder(node string) {
	for i, e := range p.ranked[node] {
		switch {
		case e.in == nil:
		case slices.ContainsFunc(p.ranked[node][:i], func(o *ranked) bool { return o.in == e.in }):
			heap.Init(e.in) // two that have changed
		default:
			heap.Fix(e.in, e.at)
		}
	}
	for _, e := range p.ranked[node] {
		if e.in != nil && p.loads[e.v.Name] >= e.v.loadsMax() {
			heap.Remove(e.in, e.at)
		}
	}
}

// lightest returns the server with the least weight that can be given another tablet, of the
// METADATA servers or of the others; the empty string if there is none. A draining server is chosen
// only if all are draining.
//
// Ties go to the node with the smaller weight, then to the lower name. METADATA servers tie by name
// alone, and the first METADATA tablets are packed on one server: see metadataTogether.
//
// The server named last is chosen only if there is no other: it failed to load the tablet, and has
// the least weight because it failed.
func (p *planner) lightest(metadata bool, last string) string {
	for _, draining := range []bool{false, true} {
		if best := p.ranking(metadata, draining).first(last); best != "" {
			return best
		}
		if p.anyStays(metadata) {
			break // better to wait than to assign it to a draining server
		}
	}
	return ""
}

// first returns the first server, or the next one if that is last and not the only one; the empty string if there is none.
func (r *ranking) first(last string) string {
	if len(r.all) == 0 {
		return ""
	}
	if r.all[0].v.Name != last || len(r.all) == 1 {
		return r.all[0].v.Name
	}
	children := r.all[1:min(3, len(r.all))]
	return slices.MinFunc(children, func(a, b *ranked) int { return r.p.compare(a.v, b.v) }).v.Name
}
