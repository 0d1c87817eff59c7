package raftmeta

import "github.com/steledb/stele/raftmeta/api"

// tally is what one user, or all users together, have of a keeper.
type tally struct {
	bytes  int64 // watches, Acquires that wait, and files that clients cache
	queued int   // events that are not yet acknowledged
}

// leaderOverhead is what a watch, or a file that a session caches, counts for in
// a share beside its path, in bytes: an entry in each of two maps.
const leaderOverhead = 256

func leaderCharge(path string) int64 { return int64(len(path)) + leaderOverhead }

// Of queuedMax, one user's sessions may have an eighth, and those of all users a
// half: a user whose sessions do not acknowledge must not make the events of
// nodes collapse.
const (
	queuedOfUserMax  = queuedMax / 8
	queuedOfUsersMax = queuedMax / 2
)

// addLocked adds to what the owner of a session has; negative numbers are
// released.
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

// takeLocked adds bytes to what the owner of a session has if sh leaves space for
// them. The error is a *TooLargeError.
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

// queueLocked counts events that were queued for a session, or removed if n is
// negative.
func (k *keeper) queueLocked(s *served, n int) {
	k.mu.queued += n
	k.addLocked(s, 0, n)
}

// queueFullLocked reports whether a session's events must give way to one
// FailedOver.
func (k *keeper) queueFullLocked(s *served) bool {
	if k.mu.queued >= queuedMax {
		return true
	}
	t := k.mu.tallies[s.owner]
	return t != nil && (t.queued >= queuedOfUserMax || k.mu.users.queued >= queuedOfUsersMax)
}
