package raftmeta

import (
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
)

// counters count events since Open.
type counters struct {
	gets, lists, sets, deletes atomic.Uint64
}

// Stats is the state of a group at one moment, for metrics. Counters start at Open.
type Stats struct {
	Leader bool // this server leads
	Ready  bool // this server leads and has caught up
	Term   uint64
	// LastIndex is the newest entry in the log. AppliedIndex is the newest that was passed to the
	// namespace.
	LastIndex, AppliedIndex uint64
	Voters                  int

	Sessions           int
	Files, Directories int
	Bytes              int64 // of all paths, contents and ACL names

	// Users is the number of users that hold something, UsersBytes and UsersSessions are their
	// total usage, and UsersBytesMost is the largest usage of one user. See Quota.
	Users                      int
	UsersBytes, UsersBytesMost int64
	UsersSessions              int64

	Gets, Lists, Sets, Deletes uint64 // calls
	Refused                    uint64 // writes that the namespace rejected

	LogWrites  uint64        // synced writes of the log
	LogEntries uint64        // entries in them
	LogBytes   uint64        // bytes in them
	LogTime    time.Duration // time spent on them

	Snapshots        uint64 // taken since Open
	SnapshotLogBytes int64  // size of the log since the last snapshot
}

// Stats returns the state of the group. It does not block.
func (g *Group) Stats() Stats {
	_, leader, term, _ := g.lead.state()
	log := g.store.Counters()
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
		Refused:          g.service.RefusedWrites(),
		LogWrites:        log.Writes,
		LogEntries:       log.Entries,
		LogBytes:         log.Bytes,
		LogTime:          log.Time,
		Snapshots:        g.snapshots.taken.Load(),
		SnapshotLogBytes: g.snapshots.logBytes.Load(),
	}
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		counts := ns.Counts()
		s.Files, s.Directories, s.Bytes, s.Sessions = counts.Files, counts.Directories, counts.Bytes, counts.Sessions
		s.Users, s.UsersBytes, s.UsersSessions = counts.Users, counts.UsersBytes, counts.UsersSessions
		s.UsersBytesMost = ns.LargestUsage()
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

// Sessions returns the number of open sessions that this server knows.
func (g *Group) Sessions() (open int) {
	g.machine.View(func(ns *fsm.Namespace, _ uint64) { open = ns.Counts().Sessions })
	return open
}

// DiskFull reports whether changes are rejected because the disk has too little free space.
func (g *Group) DiskFull() bool { return g.disk.check() != nil }

// StateSum returns the index of the last command that a server has applied, and the xxHash of the state
// after it, which is the same on all servers. It takes a time that is linear in the namespace.
func StateSum(g *Group) (applied, sum uint64) {
	h := xxhash.New()
	g.machine.View(func(ns *fsm.Namespace, last uint64) {
		applied = last
		_ = fsm.WriteSnapshot(h, ns, last) // a hash accepts everything
	})
	return applied, h.Sum64()
}
