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

// chargeLocked adds to the usage of a session's owner; negative numbers are released.
func (lm *manager) chargeLocked(s *leaderSession, bytes int64, queued int) {
	if s.owner == "" {
		return
	}
	t := lm.mu.usages[s.owner]
	if t == nil {
		t = &leaderUsage{}
		lm.mu.usages[s.owner] = t
	}
	t.bytes += bytes
	t.queued += queued
	lm.mu.allUsers.bytes += bytes
	lm.mu.allUsers.queued += queued
	if *t == (leaderUsage{}) {
		delete(lm.mu.usages, s.owner)
	}
}

// reserveLocked charges bytes to the owner of a session if they fit into quota. The error is a
// *api.TooLargeError.
func (lm *manager) reserveLocked(s *leaderSession, bytes int64, quota *fsm.Quota) error {
	if quota != nil && s.owner != "" {
		own := int64(0)
		if t := lm.mu.usages[s.owner]; t != nil {
			own = t.bytes
		}
		if got := own + bytes; got > quota.LeaderBytes {
			return &api.TooLargeError{What: api.LimitUserWatches, Limit: quota.LeaderBytes, Got: got}
		}
		if got := lm.mu.allUsers.bytes + bytes; got > quota.AllLeaderBytes {
			return &api.TooLargeError{What: api.LimitUsersWatches, Limit: quota.AllLeaderBytes, Got: got}
		}
	}
	lm.chargeLocked(s, bytes, 0)
	return nil
}

func (lm *manager) releaseLocked(s *leaderSession, bytes int64) { lm.chargeLocked(s, -bytes, 0) }

// queueLocked counts events that were added to the queue of a session, or removed if n is negative.
func (lm *manager) queueLocked(s *leaderSession, n int) {
	lm.mu.queued += n
	lm.chargeLocked(s, 0, n)
}

// queueFullLocked reports whether the events of a session must be replaced by one FailedOver.
func (lm *manager) queueFullLocked(s *leaderSession) bool {
	if lm.mu.queued >= queuedMax {
		return true
	}
	t := lm.mu.usages[s.owner]
	return t != nil && (t.queued >= queuedOfUserMax || lm.mu.allUsers.queued >= queuedOfUsersMax)
}
