package raftmeta

import (
	"context"

	"github.com/steledb/stele/raftmeta/api"
)

// pushLocked queues an event for a session, and returns its number. If the queue is full, one
// FailedOver replaces all queued events, and its number is returned. The session then reads again
// what it watches.
func (k *keeper) pushLocked(s *served, e api.Event) uint64 {
	if s.over {
		return 0
	}
	if len(s.events) >= queueMax || len(s.events) > 0 && k.queueFullLocked(s) {
		k.collapseLocked(s)
		return s.last
	}
	if len(s.events) == 0 {
		s.first = s.last + 1
	}
	s.last++
	s.events = append(s.events, e)
	k.queueLocked(s, 1)
	k.dueLocked(s)
	return s.last
}

// collapseLocked replaces all events of a session by one FailedOver, on which the client drops its
// whole cache and sets its watches again.
func (k *keeper) collapseLocked(s *served) {
	k.queueLocked(s, 1-len(s.events))
	s.last++
	s.events, s.first = failedOver[:1:1], s.last
	k.unwatchAllLocked(s)
	s.told = nil
	for path := range s.cached {
		k.mu.files[path].holders[s] = s.last
		s.told = append(s.told, toldFile{s.last, path})
	}
	k.dueLocked(s)
}

// ackLocked records that a session has processed the events up to seq.
func (k *keeper) ackLocked(s *served, seq uint64) {
	seq = min(seq, s.sent)
	if seq <= s.acked {
		return
	}
	s.acked = seq
	n := min(seq+1-min(s.first, seq+1), uint64(len(s.events)))
	s.events = s.events[n:]
	s.first += n
	k.queueLocked(s, -int(n))
	if len(s.events) == 0 {
		s.events, s.first = nil, s.last+1
	}
	for len(s.told) > 0 && s.told[0].seq <= seq {
		t := s.told[0]
		s.told = s.told[1:]
		// The session may have got the file again since.
		if f := k.mu.files[t.path]; f != nil && f.holders[s] == t.seq {
			k.unregisterLocked(s, t.path)
		}
	}
}

// watched is a watch of a session.
type watched struct {
	kinds  api.EventKind
	number uint64
}

// watch adds kinds to what a session watches at path, and returns the number of the watch.
func (k *keeper) watch(ctx context.Context, id api.SessionID, path string, kinds api.EventKind, gen uint64, sh *Share) (uint64, error) {
	number, err := k.watchNow(id, path, kinds&api.AllEvents, gen, sh)
	// A deposed leader would promise events that only the new leader sees, and it may not know the
	// session.
	if term, verr := k.replica.verify(ctx); verr != nil {
		return 0, verr
	} else if term != k.term {
		return 0, errOtherTerm
	}
	return number, err
}

func (k *keeper) watchNow(id api.SessionID, path string, kinds api.EventKind, gen uint64, sh *Share) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.mu.sessions[id]
	if s == nil || s.over {
		return 0, api.ErrNoSession
	}
	w, there := s.watches[path]
	switch {
	case there:
	case len(s.watches) >= api.WatchesMax:
		return 0, &TooLargeError{What: api.LimitWatches, Limit: api.WatchesMax, Got: api.WatchesMax + 1}
	case k.mu.watched >= watchedMax:
		return 0, &TooLargeError{What: api.LimitWatches, Limit: watchedMax, Got: watchedMax + 1}
	default:
		if err := k.takeLocked(s, leaderCharge(path), sh); err != nil {
			return 0, err
		}
		k.mu.watched++
	}
	k.mu.watchNumber++
	w.kinds |= kinds
	w.number = k.mu.watchNumber
	if s.watches == nil {
		s.watches = map[string]watched{}
	}
	s.watches[path] = w
	if k.mu.watches[path] == nil {
		k.mu.watches[path] = map[*served]api.EventKind{}
	}
	k.mu.watches[path][s] = w.kinds
	if gen == 0 {
		return w.number, nil
	}
	now := uint64(0)
	k.machine.view(func(ns *namespace, _ uint64) {
		if n := ns.get(path); n != nil {
			now = n.generation
		}
	})
	if now != gen {
		k.pushLocked(s, api.Event{Kind: api.ContentsChanged, Path: path, Index: now})
	}
	return w.number, nil
}

// unwatch ends the watch of path if it has that number.
func (k *keeper) unwatch(id api.SessionID, path string, number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.mu.sessions[id]; s != nil && s.watches[path].number == number {
		k.unwatchLocked(s, path)
	}
}

func (k *keeper) unwatchLocked(s *served, path string) {
	if _, ok := s.watches[path]; !ok {
		return
	}
	delete(s.watches, path)
	k.mu.watched--
	k.freeLocked(s, leaderCharge(path))
	of := k.mu.watches[path]
	delete(of, s)
	if len(of) == 0 {
		delete(k.mu.watches, path)
	}
}

func (k *keeper) unwatchAllLocked(s *served) {
	for path := range s.watches {
		k.unwatchLocked(s, path)
	}
	s.watches = nil
}
