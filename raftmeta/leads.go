package raftmeta

import "github.com/steledb/stele/raftmeta/api"

// Leads reports whether this server leads the group and has caught up, as far as it knows. The
// channel is closed when that may have changed, and by Close.
func (g *Group) Leads() (bool, <-chan struct{}) {
	_, _, term, changed := g.lead.state()
	return term != 0, changed
}

// SessionName returns the name that a session was opened with. known is false if this server does
// not know the session, which may exist all the same. The leader knows all sessions that were
// opened before its term, and those that it opened.
func (g *Group) SessionName(id api.SessionID) (name string, known bool) {
	g.machine.view(func(ns *namespace, _ uint64) {
		if s, ok := ns.sessions.Get(&sessionState{id: id}); ok {
			name, known = s.name, true
		}
	})
	return name, known
}
