package fsm

import (
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/raftmeta/api"
)

// Limits that the state machine enforces, as those in namespace.go.
const (
	// holdsTotalMax bounds the held locks and the ephemeral files of all sessions together.
	holdsTotalMax = NodesMax
)

// Session is the replicated state of a session. It is immutable once it is in a namespace.
type Session struct {
	ID    api.SessionID
	Name  string
	Lease time.Duration
	// Owner is the user whose quota is charged for the session and its holds; empty for the
	// cluster.
	Owner string
	// Holds is the number of its locks and ephemeral files.
	Holds int
}

func sessionLess(a, b *Session) bool { return a.ID < b.ID }

// Session returns the session with that id, or nil.
func (ns *Namespace) Session(id api.SessionID) *Session {
	s, _ := ns.sessions.Get(&Session{ID: id})
	return s
}

// openSession opens a session with index as its id.
func (ns *Namespace) openSession(index uint64, c *Command) Result {
	if n := len(c.Name); n > api.SessionNameBytesMax {
		return Result{Code: CodeNameBytes, size: int64(n)}
	}
	if c.Duration < api.LeaseMin || c.Duration > api.LeaseMax {
		return Result{Code: CodeUnknown}
	}
	if n := ns.sessions.Len(); n >= api.SessionsMax {
		return Result{Code: CodeSessions, size: int64(n) + 1}
	}
	if r := ns.CheckQuota(c); r.Code != CodeDone {
		return r
	}
	s := &Session{ID: api.SessionID(index), Name: c.Name, Lease: c.Duration, Owner: c.owner()}
	ns.sessions.ReplaceOrInsert(s)
	ns.users.charge(s.Owner, s.charged(), 1)
	ns.notify(Change{Kind: SessionOpened, Index: index, Session: s.ID, Duration: s.Lease, Owner: s.Owner})
	return Result{Generation: index}
}

// endSession ends a session: it deletes its ephemeral files and frees its locks, or starts their
// lock-delays if the session expired. It does nothing if the session does not exist.
func (ns *Namespace) endSession(index uint64, id api.SessionID, expired bool) {
	s := ns.Session(id)
	if s == nil {
		return
	}
	for _, h := range ns.holdsOf(s) {
		if h.mode != 0 {
			ns.unlock(index, h, expired)
			continue
		}
		ns.unhold(h)
		ns.drop(index, ns.Get(h.path))
	}
	if invariant.On {
		left := len(ns.holdsOf(s))
		invariant.Check(left == 0, "session %d ended with %d holds", int64(id), int64(left))
	}
	ns.sessions.Delete(s)
	ns.users.charge(s.Owner, -s.charged(), -1)
	ns.notify(Change{Kind: SessionEnded, Index: index, Session: id})
}

// holdsOf returns the holds of s, ordered by path.
func (ns *Namespace) holdsOf(s *Session) []hold {
	held := make([]hold, 0, s.Holds)
	ns.holds.AscendGreaterOrEqual(hold{session: s.ID}, func(h hold) bool {
		if h.session != s.ID {
			return false
		}
		held = append(held, h)
		return true
	})
	return held
}

// EachSession calls f with each session, in order of their ids.
func (ns *Namespace) EachSession(f func(s *Session)) {
	ns.sessions.Ascend(func(s *Session) bool {
		f(s)
		return true
	})
}

// CachedFiles returns the ephemeral files of a session that sessions may cache.
func (ns *Namespace) CachedFiles(id api.SessionID) []string {
	var paths []string
	ns.holds.AscendGreaterOrEqual(hold{session: id}, func(h hold) bool {
		if h.session == id && h.mode == 0 && ns.Get(h.path).Cached != 0 {
			paths = append(paths, h.path)
		}
		return h.session == id
	})
	return paths
}

// hold adds a hold to its session, within the limits. The session must exist.
func (ns *Namespace) hold(h hold) Result {
	s := *ns.Session(h.session)
	if s.Holds >= api.HoldsMax {
		return Result{Code: CodeHolds, size: int64(s.Holds) + 1, limit: api.HoldsMax}
	}
	if n := ns.holds.Len(); n >= holdsTotalMax {
		return Result{Code: CodeHolds, size: int64(n) + 1, limit: holdsTotalMax}
	}
	s.Holds++
	ns.users.charge(s.Owner, holdOverhead, 0)
	ns.sessions.ReplaceOrInsert(&s)
	ns.holds.ReplaceOrInsert(h)
	return Result{}
}

// unhold removes a hold from its session.
func (ns *Namespace) unhold(h hold) {
	if _, ok := ns.holds.Delete(h); !ok {
		return
	}
	s := *ns.Session(h.session)
	s.Holds--
	invariant.Check(s.Holds >= 0, "session %d has %d holds", int64(s.ID), int64(s.Holds))
	ns.users.charge(s.Owner, -holdOverhead, 0)
	ns.sessions.ReplaceOrInsert(&s)
}
