package raftmeta

import "github.com/steledb/stele/raftmeta/api"

// tally is the usage of a lease manager by one user, or by all users together.
type tally struct {
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

// addLocked adds to the usage of a session's owner; negative numbers are released.
func (k *keeper) addLocked(s *served, bytes int64, queued int) {
	if s.owner == "" {
		return
	}
	t := k.mu.tallies[s.owner]
	if t == nil {
		t = &tally{}
		k.mu.tallies[s.owner] = t
	}
	t.bytes += bytes
	t.queued += queued
	k.mu.users.bytes += bytes
	k.mu.users.queued += queued
	if *t == (tally{}) {
		delete(k.mu.tallies, s.owner)
	}
}

// takeLocked charges bytes to the owner of a session if they fit into sh. The error is a
// *TooLargeError.
func (k *keeper) takeLocked(s *served, bytes int64, sh *Share) error {
	if sh != nil && s.owner != "" {
		own := int64(0)
		if t := k.mu.tallies[s.owner]; t != nil {
			own = t.bytes
		}
		if got := own + bytes; got > sh.LeaderBytes {
			return &TooLargeError{What: api.LimitUserWatches, Limit: sh.LeaderBytes, Got: got}
		}
		if got := k.mu.users.bytes + bytes; got > sh.AllLeaderBytes {
			return &TooLargeError{What: api.LimitUsersWatches, Limit: sh.AllLeaderBytes, Got: got}
		}
	}
	k.addLocked(s, bytes, 0)
	return nil
}

func (k *keeper) freeLocked(s *served, bytes int64) { k.addLocked(s, -bytes, 0) }

// queueLocked counts events that were added to the queue of a session, or removed if n is negative.
func (k *keeper) queueLocked(s *served, n int) {
	k.mu.queued += n
	k.addLocked(s, 0, n)
}

// queueFullLocked reports whether the events of a session must be replaced by one FailedOver.
func (k *keeper) queueFullLocked(s *served) bool {
	if k.mu.queued >= queuedMax {
		return true
	}
	t := k.mu.tallies[s.owner]
	return t != nil && (t.queued >= queuedOfUserMax || k.mu.users.queued >= queuedOfUsersMax)
}
