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
	if len(s.events) >= queueMax || len(s.events) > 0 && lm.queueFullLocked(s) {
		lm.collapseLocked(s)
		return s.last
	}
	if len(s.events) == 0 {
		s.first = s.last + 1
	}
	s.last++
	s.events = append(s.events, e)
	lm.queueLocked(s, 1)
	lm.queueAnswerLocked(s)
	return s.last
}

// collapseLocked replaces all events of a session by one FailedOver, on which the client drops its
// whole cache and sets its watches again.
func (lm *manager) collapseLocked(s *leaderSession) {
	lm.queueLocked(s, 1-len(s.events))
	s.last++
	s.events, s.first = failedOver[:1:1], s.last
	lm.unwatchAllLocked(s)
	s.invalidated = nil
	for path := range s.cached {
		lm.mu.files[path].holders[s] = s.last
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
	lm.queueLocked(s, -int(n))
	if len(s.events) == 0 {
		s.events, s.first = nil, s.last+1
	}
	for len(s.invalidated) > 0 && s.invalidated[0].seq <= seq {
		t := s.invalidated[0]
		s.invalidated = s.invalidated[1:]
		// The session may have got the file again since.
		if f := lm.mu.files[t.path]; f != nil && f.holders[s] == t.seq {
			lm.unregisterLocked(s, t.path)
		}
	}
}

// sessionWatch is a watch of a session.
type sessionWatch struct {
	kinds  api.EventKind
	number uint64
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
	w, there := s.watches[path]
	switch {
	case there:
	case len(s.watches) >= api.WatchesMax:
		return 0, &api.TooLargeError{What: api.LimitWatches, Limit: api.WatchesMax, Got: api.WatchesMax + 1}
	case lm.mu.watchCount >= watchedMax:
		return 0, &api.TooLargeError{What: api.LimitWatches, Limit: watchedMax, Got: watchedMax + 1}
	default:
		if err := lm.reserveLocked(s, leaderCharge(path), quota); err != nil {
			return 0, err
		}
		lm.mu.watchCount++
	}
	lm.mu.watchNumber++
	w.kinds |= kinds
	w.number = lm.mu.watchNumber
	if s.watches == nil {
		s.watches = map[string]sessionWatch{}
	}
	s.watches[path] = w
	if lm.mu.watches[path] == nil {
		lm.mu.watches[path] = map[*leaderSession]api.EventKind{}
	}
	lm.mu.watches[path][s] = w.kinds
	if gen == 0 {
		return w.number, nil
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
	return w.number, nil
}

// unwatch ends the watch of path if it has that number.
func (lm *manager) unwatch(id api.SessionID, path string, number uint64) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if s := lm.mu.sessions[id]; s != nil && s.watches[path].number == number {
		lm.unwatchLocked(s, path)
	}
}

func (lm *manager) unwatchLocked(s *leaderSession, path string) {
	if _, ok := s.watches[path]; !ok {
		return
	}
	delete(s.watches, path)
	lm.mu.watchCount--
	lm.releaseLocked(s, leaderCharge(path))
	of := lm.mu.watches[path]
	delete(of, s)
	if len(of) == 0 {
		delete(lm.mu.watches, path)
	}
}

func (lm *manager) unwatchAllLocked(s *leaderSession) {
	for path := range s.watches {
		lm.unwatchLocked(s, path)
	}
	s.watches = nil
}
