package raftmeta

// Leads tells whether this server leads the group and has caught up, as far as it
// knows. The channel is closed when that may have changed, and by Close.
func (g *Group) Leads() (bool, <-chan struct{}) {
	_, _, term, changed := g.lead.state()
	return term != 0, changed
}
