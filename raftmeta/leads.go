package raftmeta

import (
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/fsm"
)

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
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		if s := ns.Session(id); s != nil {
			name, known = s.Name, true
		}
	})
	return name, known
}
