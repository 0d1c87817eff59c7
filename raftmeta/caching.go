package raftmeta

import (
	"context"
	"errors"

	"github.com/steledb/stele/raftmeta/api"
)

// cachedFile is a file that sessions cache, or that is being written.
type cachedFile struct {
	// writers counts the writes in progress. While it is not zero, no session gets permission to
	// cache the file.
	writers int
	// holders are the sessions that may cache the file. The value is the number of the event that
	// invalidates the copy, zero if the session has not been invalidated.
	holders map[*served]uint64
	// drained, if not nil, is closed when holders becomes empty.
	drained chan struct{}
}

// toldFile is a file that the event seq invalidates in a session.
type toldFile struct {
	seq  uint64
	path string
}

func (k *keeper) fileLocked(path string) *cachedFile {
	f := k.mu.files[path]
	if f == nil {
		f = &cachedFile{}
		k.mu.files[path] = f
	}
	return f
}

// unregisterLocked records that a session no longer caches a file.
func (k *keeper) unregisterLocked(s *served, path string) {
	f := k.mu.files[path]
	delete(s.cached, path)
	delete(f.holders, s)
	k.mu.registered--
	k.freeLocked(s, leaderCharge(path))
	k.doneLocked(path, f)
}

// doneLocked wakes those that wait for f to have no holders, and removes f when it is unused.
func (k *keeper) doneLocked(path string, f *cachedFile) {
	if len(f.holders) > 0 {
		return
	}
	if f.drained != nil {
		close(f.drained)
		f.drained = nil
	}
	if f.writers == 0 {
		delete(k.mu.files, path)
	}
}

// read returns the node at path, and whether the session may cache it. If mark is not zero, it is
// the generation that must first be marked as cached; the caller then calls read again. The caller
// has verified that it leads.
func (k *keeper) read(path string, id api.SessionID, sh *Share) (st *nodeView, leave api.CacheLeave, mark uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Holding mu ensures that a later write finds the session registered, and that an earlier write
	// has been applied.
	k.machine.view(func(ns *namespace, _ uint64) { st = viewOf(ns, path) })
	s := k.mu.sessions[id]
	f := k.mu.files[path]
	switch {
	case st == nil || st.node.dir || s == nil || s.over || s.closing || !s.heard || k.mu.dropped:
		return st, leave, 0
	case f != nil && f.writers > 0 || k.endingLocked(st.node.ephemeral):
		return st, leave, 0
	case st.node.cached == 0:
		return st, leave, st.node.generation
	}
	if _, ok := s.cached[path]; !ok {
		if len(s.cached) >= api.CachedMax || k.mu.registered >= registeredMax || k.takeLocked(s, leaderCharge(path), sh) != nil {
			return st, leave, 0
		}
		if s.cached == nil {
			s.cached = map[string]struct{}{}
		}
		s.cached[path] = struct{}{}
		k.mu.registered++
	}
	f = k.fileLocked(path)
	if f.holders == nil {
		f.holders = map[*served]uint64{}
	}
	f.holders[s] = 0
	return st, api.CacheLeave{OK: true, Term: k.term, At: s.last}, 0
}

// endingLocked reports whether a session is about to end, and its ephemeral files with it.
func (k *keeper) endingLocked(id api.SessionID) bool {
	if id == 0 {
		return false
	}
	s := k.mu.sessions[id]
	return s == nil || s.over || s.closing
}

// write proposes a change of the files at paths after no session caches them any more. It
// invalidates the files and waits until each session that may cache them has acknowledged, or its
// lease has expired. Meanwhile no session gets permission to cache them. Unless the error is
// ErrOutcomeUnknown, an error means that nothing was changed.
func (k *keeper) write(ctx context.Context, c command, paths ...string) (result, error) {
	if err := k.invalidate(ctx, paths); err != nil {
		k.wrote(paths)
		return result{}, err
	}
	r, err := k.propose(ctx, c)
	if errors.Is(err, ErrOutcomeUnknown) {
		k.doubt(paths)
		return r, err
	}
	k.wrote(paths)
	return r, err
}

// invalidate is the part of write before the proposal.
func (k *keeper) invalidate(ctx context.Context, paths []string) error {
	for _, drained := range k.beginWrite(paths) {
		select {
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		case <-k.ctx.Done():
			return k.refusal()
		}
	}
	return nil
}

// beginWrite registers a write, invalidates the files in the sessions that cache them, and returns
// the channels to wait for.
func (k *keeper) beginWrite(paths []string) []<-chan struct{} {
	if len(paths) == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var waits []<-chan struct{}
	unknown := false
	k.machine.view(func(ns *namespace, _ uint64) {
		for _, path := range paths {
			// Any session may cache a file that was marked before this lease manager started.
			n := ns.get(path)
			unknown = unknown || n != nil && n.cached != 0 && n.cached <= k.since
		}
	})
	if unknown {
		waits = append(waits, k.mu.allHeard)
	}
	for _, path := range paths {
		f := k.fileLocked(path)
		f.writers++
		for s, told := range f.holders {
			if told != 0 {
				continue
			}
			seq := k.pushLocked(s, api.Event{Kind: api.CacheInvalid, Path: path})
			if f.holders[s] == 0 { // else the queue collapsed into a FailedOver, which invalidates it
				f.holders[s] = seq
				s.told = append(s.told, toldFile{seq, path})
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

// wrote records that a write is over.
func (k *keeper) wrote(paths []string) {
	if len(paths) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, path := range paths {
		f := k.mu.files[path]
		f.writers--
		k.doneLocked(path, f)
	}
}

// doubt records that a write may still be applied, although its caller is gone. The write counts as
// in progress until a later proposal has been answered.
func (k *keeper) doubt(paths []string) {
	if len(paths) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	first := len(k.mu.doubtful) == 0
	k.mu.doubtful = append(k.mu.doubtful, paths...)
	if first && !k.mu.dropped {
		k.workers.Go(k.settle)
	}
}

// settle waits until the outcome of such writes is decided, and ends them.
func (k *keeper) settle() {
	for {
		k.mu.Lock()
		paths := k.mu.doubtful
		k.mu.Unlock()
		// This command does nothing. Once it is answered, every earlier proposal has been applied
		// or never will be.
		_, err := k.propose(k.ctx, command{op: opEndLockDelay})
		switch {
		case k.ctx.Err() != nil:
			return
		case err != nil:
			k.pause()
			continue
		}
		k.wrote(paths)
		k.mu.Lock()
		k.mu.doubtful = k.mu.doubtful[len(paths):]
		done := len(k.mu.doubtful) == 0
		k.mu.Unlock()
		if done {
			return
		}
	}
}
