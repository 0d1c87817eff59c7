package raftmeta

import "github.com/steledb/stele/raftmeta/api"

// Leads tells whether this server leads the group and has caught up, as far as it
// knows. The channel is closed when that may have changed, and by Close.
func (g *Group) Leads() (bool, <-chan struct{}) {
	_, _, term, changed := g.lead.state()
	return term != 0, changed
}

// SessionName returns what a session calls itself, as far as this server knows: one that
// it does not know may be there. The leader knows all that were opened before it led, and
// those that it has opened.
func (g *Group) SessionName(id api.SessionID) (name string, known bool) {
	g.machine.view(func(ns *namespace, _ uint64) {
		if s, ok := ns.sessions.Get(&sessionState{id: id}); ok {
			name, known = s.name, true
		}
	})
	return name, known
}
