package raftmeta

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// counters count calls since Open.
type counters struct {
	gets, lists, sets, deletes, snapshots atomic.Uint64
}

// Stats is the state of a group at one moment, for metrics. Counters are since
// Open.
type Stats struct {
	Leader bool // this server leads
	Ready  bool // and has caught up
	Term   uint64
	// LastIndex is the newest entry in the log, AppliedIndex the newest that was
	// handed to the namespace.
	LastIndex, AppliedIndex uint64
	Voters                  int

	Sessions           int
	Files, Directories int
	Bytes              int64 // of all paths and contents

	// Users counts the users that hold something; the rest is what they hold
	// together, and UsersBytesMost what the one with the most does. See Share.
	Users                      int
	UsersBytes, UsersBytesMost int64
	UsersSessions              int64

	Gets, Lists, Sets, Deletes uint64 // calls
	Refused                    uint64 // Sets and Deletes that the namespace refused

	LogWrites  uint64        // fsynced writes of the log
	LogEntries uint64        // entries in them
	LogBytes   uint64        // bytes in them
	LogTime    time.Duration // spent on them

	Snapshots        uint64 // taken since Open
	SnapshotLogBytes int64  // size of the log since the last one
}

// Stats returns the group's state. It waits for nobody.
func (g *Group) Stats() Stats {
	_, leader, term, _ := g.lead.state()
	s := Stats{
		Leader:           leader,
		Ready:            term != 0,
		Term:             g.raft.CurrentTerm(),
		LastIndex:        g.raft.LastIndex(),
		AppliedIndex:     g.raft.AppliedIndex(),
		Voters:           voters(g.raft.GetConfiguration().Configuration().Servers),
		Gets:             g.count.gets.Load(),
		Lists:            g.count.lists.Load(),
		Sets:             g.count.sets.Load(),
		Deletes:          g.count.deletes.Load(),
		Refused:          g.service.refused.Load(),
		LogWrites:        g.store.writes.Load(),
		LogEntries:       g.store.entries.Load(),
		LogBytes:         g.store.bytes.Load(),
		LogTime:          time.Duration(g.store.nanos.Load()),
		Snapshots:        g.count.snapshots.Load(),
		SnapshotLogBytes: g.logBytes.Load(),
	}
	g.machine.view(func(ns *namespace, _ uint64) {
		s.Files, s.Directories = ns.files, ns.nodes.Len()-ns.files
		s.Bytes = ns.bytes
		s.Sessions = ns.sessions.Len()
		s.Users, s.UsersBytes, s.UsersSessions = ns.usages.Len(), ns.used.bytes, ns.used.sessions
		ns.usages.Ascend(func(u *usage) bool {
			s.UsersBytesMost = max(s.UsersBytesMost, u.bytes)
			return true
		})
	})
	return s
}

func voters(servers []raft.Server) int {
	n := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// Sessions returns how many sessions are open, as this server knows.
func (g *Group) Sessions() (open int) {
	g.machine.view(func(ns *namespace, _ uint64) { open = ns.sessions.Len() })
	return open
}

// DiskFull tells whether the disk has so little room that changes are refused.
func (g *Group) DiskFull() bool { return g.disk.check() != nil }
