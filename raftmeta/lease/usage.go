package lease

import (
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/fsm"
)

// leaderUsage is the usage of a lease manager by one user, or by all users together.
type leaderUsage struct {
	bytes  int64 // of watches, waiting Acquires, and files that clients cache
	queued int   // unacknowledged events
}

// leaderOverhead is the charge for a watch or a cached file beside its path, in bytes: an entry in
// each of two maps.
const leaderOverhead = 256

func leaderCharge(path string) int64 { return int64(len(path)) + leaderOverhead }

// Of queuedMax, the sessions of one user may have an eighth, and those of all users a half.
// Otherwise a user whose sessions do not acknowledge could make the event queues of nodes overflow.
const (
	queuedOfUserMax  = queuedMax / 8
	queuedOfUsersMax = queuedMax / 2
)

// ledger counts what the sessions of users hold in a lease manager. manager.mu guards it.
type ledger struct {
	// queued is the number of unacknowledged events of all sessions.
	queued int
	// usages has the usage of each user, allUsers the usage of all users together.
	usages   map[string]*leaderUsage
	allUsers leaderUsage
}

// charge adds to the usage of a session's owner; negative numbers are released.
func (l *ledger) charge(s *leaderSession, bytes int64, queued int) {
	if s.owner == "" {
		return
	}
	t := l.usages[s.owner]
	if t == nil {
		t = &leaderUsage{}
		l.usages[s.owner] = t
	}
	t.bytes += bytes
	t.queued += queued
	l.allUsers.bytes += bytes
	l.allUsers.queued += queued
	if *t == (leaderUsage{}) {
		delete(l.usages, s.owner)
	}
}

// reserve charges bytes to the owner of a session if they fit into quota. The error is a
// *api.TooLargeError.
func (l *ledger) reserve(s *leaderSession, bytes int64, quota *fsm.Quota) error {
	if quota != nil && s.owner != "" {
		own := int64(0)
		if t := l.usages[s.owner]; t != nil {
			own = t.bytes
		}
		if got := own + bytes; got > quota.LeaderBytes {
			return &api.TooLargeError{What: api.LimitUserWatches, Limit: quota.LeaderBytes, Got: got}
		}
		if got := l.allUsers.bytes + bytes; got > quota.AllLeaderBytes {
			return &api.TooLargeError{What: api.LimitUsersWatches, Limit: quota.AllLeaderBytes, Got: got}
		}
	}
	l.charge(s, bytes, 0)
	return nil
}

// release undoes reserve.
func (l *ledger) release(s *leaderSession, bytes int64) { l.charge(s, -bytes, 0) }

// queue counts events that were added to the queue of a session, or removed if n is negative.
func (l *ledger) queue(s *leaderSession, n int) {
	l.queued += n
	l.charge(s, 0, n)
}

// queueFull reports whether the events of a session must be replaced by one FailedOver.
func (l *ledger) queueFull(s *leaderSession) bool {
	if l.queued >= queuedMax {
		return true
	}
	t := l.usages[s.owner]
	return t != nil && (t.queued >= queuedOfUserMax || l.allUsers.queued >= queuedOfUsersMax)
}
