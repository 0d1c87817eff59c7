package lease

import (
	"context"
	"errors"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/raftmeta/api"
)

// cachedFile is a file that sessions cache, or that is being written.
type cachedFile struct {
	// writers counts the writes in progress. While it is not zero, no session gets permission to
	// cache the file.
	writers int
	// holders are the sessions that may cache the file. The value is the number of the event that
	// invalidates the copy, zero if the session has not been invalidated.
	holders map[api.SessionID]uint64
	// drained, if not nil, is closed when holders becomes empty.
	drained chan struct{}
}

// invalidation is a file that the event seq invalidates in a session.
type invalidation struct {
	seq  uint64
	path string
}

// cacheTable has the files that sessions cache. manager.mu guards it.
type cacheTable struct {
	files map[string]*cachedFile
	// registered is the number of pairs of a session and a file that it caches.
	registered int
	ledger     *ledger
}

// file returns the entry of a file, which it creates if there is none.
func (t *cacheTable) file(path string) *cachedFile {
	f := t.files[path]
	if f == nil {
		f = &cachedFile{}
		t.files[path] = f
	}
	return f
}

// unregister records that a session no longer caches a file.
func (t *cacheTable) unregister(s *leaderSession, path string) {
	f := t.files[path]
	delete(s.cached, path)
	delete(f.holders, s.id)
	t.registered--
	t.ledger.release(s, leaderCharge(path))
	t.checkDrained(path, f)
}

// checkDrained wakes those that wait for f to have no holders, and removes f when it is unused.
func (t *cacheTable) checkDrained(path string, f *cachedFile) {
	if len(f.holders) > 0 {
		return
	}
	if f.drained != nil {
		close(f.drained)
		f.drained = nil
	}
	if f.writers == 0 {
		delete(t.files, path)
	}
}

// register records that a session may cache a file, unless the session, or all of them, cache too
// many already, or the file does not fit into quota.
func (t *cacheTable) register(s *leaderSession, path string, quota *fsm.Quota) bool {
	if _, ok := s.cached[path]; !ok {
		if len(s.cached) >= api.CachedMax || t.registered >= registeredMax || t.ledger.reserve(s, leaderCharge(path), quota) != nil {
			return false
		}
		if s.cached == nil {
			s.cached = map[string]struct{}{}
		}
		s.cached[path] = struct{}{}
		t.registered++
	}
	f := t.file(path)
	if f.holders == nil {
		f.holders = map[api.SessionID]uint64{}
	}
	f.holders[s.id] = 0
	return true
}

// read returns the node at path, and whether the session may cache it. If mark is not zero, it is
// the generation that must first be marked as cached; the caller then calls read again. The caller
// has verified that it leads.
func (lm *manager) read(path string, id api.SessionID, quota *fsm.Quota) (st *fsm.NodeView, perm api.CachePermission, mark uint64) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	// Holding mu ensures that a later write finds the session registered, and that an earlier write
	// has been applied.
	lm.machine.View(func(ns *fsm.Namespace, _ uint64) { st = ns.Lookup(path) })
	s := lm.mu.sessions[id]
	f := lm.mu.caches.files[path]
	switch {
	case st == nil || st.Node.Dir || s == nil || s.leaseOver || s.closing || !s.termAcked || lm.mu.stopped:
		return st, perm, 0
	case f != nil && f.writers > 0 || lm.endingLocked(st.Node.Ephemeral):
		return st, perm, 0
	case st.Node.Cached == 0:
		return st, perm, st.Node.Generation
	}
	if !lm.mu.caches.register(s, path, quota) {
		return st, perm, 0
	}
	return st, api.CachePermission{OK: true, Term: lm.term, At: s.last}, 0
}

// endingLocked reports whether a session is about to end, and its ephemeral files with it.
func (lm *manager) endingLocked(id api.SessionID) bool {
	if id == 0 {
		return false
	}
	s := lm.mu.sessions[id]
	return s == nil || s.leaseOver || s.closing
}

// write proposes a change of the files at paths after no session caches them any more. It
// invalidates the files and waits until each session that may cache them has acknowledged, or its
// lease has expired. Meanwhile no session gets permission to cache them. Unless the error is
// api.ErrOutcomeUnknown, an error means that nothing was changed.
func (lm *manager) write(ctx context.Context, c fsm.Command, paths ...string) (fsm.Result, error) {
	if err := lm.invalidate(ctx, paths); err != nil {
		lm.endWrite(paths)
		return fsm.Result{}, err
	}
	moment.Pass("before a change of a file is proposed", "")
	r, err := lm.propose(ctx, c)
	moment.Pass("a change of a file is committed", "")
	if errors.Is(err, api.ErrOutcomeUnknown) {
		lm.addUnresolved(paths)
		return r, err
	}
	lm.endWrite(paths)
	return r, err
}

// invalidate is the part of write before the proposal.
func (lm *manager) invalidate(ctx context.Context, paths []string) error {
	for _, drained := range lm.beginWrite(paths) {
		if planted.On(planted.InvalidationNotAwaited) {
			continue
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		case <-lm.ctx.Done():
			return lm.stoppedError()
		}
	}
	return nil
}

// beginWrite registers a write, invalidates the files in the sessions that cache them, and returns
// the channels to wait for.
func (lm *manager) beginWrite(paths []string) []<-chan struct{} {
	if len(paths) == 0 {
		return nil
	}
	lm.mu.Lock()
	defer lm.mu.Unlock()
	var waits []<-chan struct{}
	unknown := false
	lm.machine.View(func(ns *fsm.Namespace, _ uint64) {
		for _, path := range paths {
			// Any session may cache a file that was marked before this lease manager started.
			n := ns.Get(path)
			unknown = unknown || n != nil && n.Cached != 0 && n.Cached <= lm.since
		}
	})
	if unknown {
		waits = append(waits, lm.mu.acks.all)
	}
	for _, path := range paths {
		f := lm.mu.caches.file(path)
		f.writers++
		for id, event := range f.holders {
			if event != 0 {
				continue
			}
			s := lm.mu.sessions[id]
			seq := lm.pushLocked(s, api.Event{Kind: api.CacheInvalid, Path: path})
			if f.holders[id] == 0 { // else the queue collapsed into a FailedOver, which invalidates it
				f.holders[id] = seq
				s.invalidated = append(s.invalidated, invalidation{seq, path})
			}
		}
		if len(f.holders) > 0 {
			if f.drained == nil {
				f.drained = make(chan struct{})
			}
			waits = append(waits, f.drained)
		}
	}
	return waits
}

// endWrite records that a write is over.
func (lm *manager) endWrite(paths []string) {
	if len(paths) == 0 {
		return
	}
	lm.mu.Lock()
	defer lm.mu.Unlock()
	for _, path := range paths {
		f := lm.mu.caches.files[path]
		f.writers--
		lm.mu.caches.checkDrained(path, f)
	}
}

// addUnresolved records that a write may still be applied, although its caller is gone. The write counts as
// in progress until a later proposal has been answered.
func (lm *manager) addUnresolved(paths []string) {
	if len(paths) == 0 {
		return
	}
	lm.mu.Lock()
	defer lm.mu.Unlock()
	first := len(lm.mu.unresolved) == 0
	lm.mu.unresolved = append(lm.mu.unresolved, paths...)
	if first && !lm.mu.stopped {
		lm.workers.Go(lm.resolve)
	}
}

// resolve waits until the outcome of such writes is decided, and ends them.
func (lm *manager) resolve() {
	for {
		lm.mu.Lock()
		paths := lm.mu.unresolved
		lm.mu.Unlock()
		// This command does nothing. Once it is answered, every earlier proposal has been applied
		// or never will be.
		_, err := lm.propose(lm.ctx, fsm.Command{Op: fsm.OpEndLockDelay})
		switch {
		case lm.ctx.Err() != nil:
			return
		case err != nil:
			pause(lm.ctx, lm.clock)
			continue
		}
		lm.endWrite(paths)
		lm.mu.Lock()
		lm.mu.unresolved = lm.mu.unresolved[len(paths):]
		done := len(lm.mu.unresolved) == 0
		lm.mu.Unlock()
		if done {
			return
		}
	}
}
