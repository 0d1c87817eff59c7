package raftmeta

import (
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Limits that the state machine enforces, as those in namespace.go.
const (
	// holdsTotalMax bounds the held locks and the ephemeral files of all sessions together.
	holdsTotalMax = NodesMax
)

// sessionState is the replicated state of a session. It is immutable once it is in a namespace.
type sessionState struct {
	id    api.SessionID
	name  string
	lease time.Duration
	// owner is the user whose quota is charged for the session and its holds; empty for the
	// cluster.
	owner string
	// holds is the number of its locks and ephemeral files.
	holds int
}

func sessionLess(a, b *sessionState) bool { return a.id < b.id }

// session returns the session with that id, or nil.
func (ns *namespace) session(id api.SessionID) *sessionState {
	s, _ := ns.sessions.Get(&sessionState{id: id})
	return s
}

// openSession opens a session with index as its id.
func (ns *namespace) openSession(index uint64, c *command) result {
	if n := len(c.name); n > api.SessionNameBytesMax {
		return result{code: codeNameBytes, size: int64(n)}
	}
	if c.duration < api.LeaseMin || c.duration > api.LeaseMax {
		return result{code: codeUnknown}
	}
	if n := ns.sessions.Len(); n >= api.SessionsMax {
		return result{code: codeSessions, size: int64(n) + 1}
	}
	if r := ns.checkQuota(c); r.code != codeDone {
		return r
	}
	s := &sessionState{id: api.SessionID(index), name: c.name, lease: c.duration, owner: c.owner()}
	ns.sessions.ReplaceOrInsert(s)
	ns.charge(s.owner, s.charged(), 1)
	ns.notify(change{kind: sessionOpened, index: index, session: s.id, duration: s.lease, owner: s.owner})
	return result{generation: index}
}

// endSession ends a session: it deletes its ephemeral files and frees its locks, or starts their
// lock-delays if the session expired. It does nothing if the session does not exist.
func (ns *namespace) endSession(index uint64, id api.SessionID, expired bool) {
	s := ns.session(id)
	if s == nil {
		return
	}
	for _, h := range ns.holdsOf(s) {
		if h.mode != 0 {
			ns.unlock(index, h, expired)
			continue
		}
		ns.unhold(h)
		ns.drop(index, ns.get(h.path))
	}
	ns.sessions.Delete(s)
	ns.charge(s.owner, -s.charged(), -1)
	ns.notify(change{kind: sessionEnded, index: index, session: id})
}

// holdsOf returns the holds of s, ordered by path.
func (ns *namespace) holdsOf(s *sessionState) []hold {
	held := make([]hold, 0, s.holds)
	ns.holds.AscendGreaterOrEqual(hold{session: s.id}, func(h hold) bool {
		if h.session != s.id {
			return false
		}
		held = append(held, h)
		return true
	})
	return held
}

// hold adds a hold to its session, within the limits. The session must exist.
func (ns *namespace) hold(h hold) result {
	s := *ns.session(h.session)
	if s.holds >= api.HoldsMax {
		return result{code: codeHolds, size: int64(s.holds) + 1, limit: api.HoldsMax}
	}
	if n := ns.holds.Len(); n >= holdsTotalMax {
		return result{code: codeHolds, size: int64(n) + 1, limit: holdsTotalMax}
	}
	s.holds++
	ns.charge(s.owner, holdOverhead, 0)
	ns.sessions.ReplaceOrInsert(&s)
	ns.holds.ReplaceOrInsert(h)
	return result{}
}

// unhold removes a hold from its session.
func (ns *namespace) unhold(h hold) {
	if _, ok := ns.holds.Delete(h); !ok {
		return
	}
	s := *ns.session(h.session)
	s.holds--
	ns.charge(s.owner, -holdOverhead, 0)
	ns.sessions.ReplaceOrInsert(&s)
}
