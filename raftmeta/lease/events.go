package lease

import (
	"context"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// pushLocked queues an event for a session, and returns its number. If the queue is full, one
// FailedOver replaces all queued events, and its number is returned. The session then reads again
// what it watches.
func (lm *manager) pushLocked(s *leaderSession, e api.Event) uint64 {
	if s.leaseOver {
		return 0
	}
	if len(s.events) >= queueMax || len(s.events) > 0 && lm.mu.ledger.queueFull(s) {
		lm.collapseLocked(s)
		return s.last
	}
	if len(s.events) == 0 {
		s.first = s.last + 1
	}
	s.last++
	s.events = append(s.events, e)
	lm.mu.ledger.queue(s, 1)
	lm.queueAnswerLocked(s)
	return s.last
}

// collapseLocked replaces all events of a session by one FailedOver, on which the client drops its
// whole cache and sets its watches again.
func (lm *manager) collapseLocked(s *leaderSession) {
	lm.mu.ledger.queue(s, 1-len(s.events))
	s.last++
	s.events, s.first = failedOver[:1:1], s.last
	lm.mu.watches.removeAll(s)
	s.invalidated = nil
	for path := range s.cached {
		lm.mu.caches.files[path].holders[s.id] = s.last
		s.invalidated = append(s.invalidated, invalidation{s.last, path})
	}
	lm.queueAnswerLocked(s)
}

// ackLocked records that a session has processed the events up to seq.
func (lm *manager) ackLocked(s *leaderSession, seq uint64) {
	seq = min(seq, s.sent)
	if seq <= s.acked {
		return
	}
	s.acked = seq
	n := min(seq+1-min(s.first, seq+1), uint64(len(s.events)))
	s.events = s.events[n:]
	s.first += n
	lm.mu.ledger.queue(s, -int(n))
	if len(s.events) == 0 {
		s.events, s.first = nil, s.last+1
	}
	for len(s.invalidated) > 0 && s.invalidated[0].seq <= seq {
		t := s.invalidated[0]
		s.invalidated = s.invalidated[1:]
		// The session may have got the file again since.
		if f := lm.mu.caches.files[t.path]; f != nil && f.holders[s.id] == t.seq {
			lm.mu.caches.unregister(s, t.path)
		}
	}
}

// sessionWatch is a watch of a session.
type sessionWatch struct {
	kinds  api.EventKind
	number uint64
}

// watchTable has the watches of all sessions. manager.mu guards it.
type watchTable struct {
	byPath map[string]map[api.SessionID]api.EventKind
	// count is the number of pairs of a session and a path that it watches, number that of the
	// last watch.
	count  int
	number uint64
	ledger *ledger
}

// add adds kinds to what a session watches at path, and returns the number of the watch. The error
// is a *api.TooLargeError.
func (t *watchTable) add(s *leaderSession, path string, kinds api.EventKind, quota *fsm.Quota) (uint64, error) {
	w, there := s.watches[path]
	switch {
	case there:
	case len(s.watches) >= api.WatchesMax:
		return 0, &api.TooLargeError{What: api.LimitWatches, Limit: api.WatchesMax, Got: api.WatchesMax + 1}
	case t.count >= watchedMax:
		return 0, &api.TooLargeError{What: api.LimitWatches, Limit: watchedMax, Got: watchedMax + 1}
	default:
		if err := t.ledger.reserve(s, leaderCharge(path), quota); err != nil {
			return 0, err
		}
		t.count++
	}
	t.number++
	w.kinds |= kinds
	w.number = t.number
	if s.watches == nil {
		s.watches = map[string]sessionWatch{}
	}
	s.watches[path] = w
	if t.byPath[path] == nil {
		t.byPath[path] = map[api.SessionID]api.EventKind{}
	}
	t.byPath[path][s.id] = w.kinds
	return w.number, nil
}

// remove ends the watch of path, if there is one.
func (t *watchTable) remove(s *leaderSession, path string) {
	if _, ok := s.watches[path]; !ok {
		return
	}
	delete(s.watches, path)
	t.count--
	t.ledger.release(s, leaderCharge(path))
	of := t.byPath[path]
	delete(of, s.id)
	if len(of) == 0 {
		delete(t.byPath, path)
	}
}

// removeAll ends all watches of a session.
func (t *watchTable) removeAll(s *leaderSession) {
	for path := range s.watches {
		t.remove(s, path)
	}
	s.watches = nil
}

// watch adds kinds to what a session watches at path, and returns the number of the watch.
func (lm *manager) watch(ctx context.Context, id api.SessionID, path string, kinds api.EventKind, gen uint64, quota *fsm.Quota) (uint64, error) {
	number, err := lm.addWatch(id, path, kinds&api.AllEvents, gen, quota)
	// A deposed leader would promise events that only the new leader sees, and it may not know the
	// session.
	if term, verr := lm.replica.Verify(ctx); verr != nil {
		return 0, verr
	} else if term != lm.term {
		return 0, fsm.ErrOtherTerm
	}
	return number, err
}

func (lm *manager) addWatch(id api.SessionID, path string, kinds api.EventKind, gen uint64, quota *fsm.Quota) (uint64, error) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	s := lm.mu.sessions[id]
	if s == nil || s.leaseOver {
		return 0, api.ErrNoSession
	}
	number, err := lm.mu.watches.add(s, path, kinds, quota)
	if err != nil || gen == 0 {
		return number, err
	}
	now := uint64(0)
	lm.machine.View(func(ns *fsm.Namespace, _ uint64) {
		if n := ns.Get(path); n != nil {
			now = n.Generation
		}
	})
	if now != gen {
		lm.pushLocked(s, api.Event{Kind: api.ContentsChanged, Path: path, Index: now})
	}
	return number, nil
}

// unwatch ends the watch of path if it has that number.
func (lm *manager) unwatch(id api.SessionID, path string, number uint64) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if s := lm.mu.sessions[id]; s != nil && s.watches[path].number == number {
		lm.mu.watches.remove(s, path)
	}
}
