package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// memory is a lock service in memory that follows the rules for leases and caches: the leader's
// side, fast enough for thousands of schedules. It expires each session at the first permitted
// moment.
type memory struct {
	clock Clock
	stop  chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed at every change
	index    uint64
	term     uint64
	down     bool
	files    map[string]*memoryFile
	sessions map[api.SessionID]*memorySession
}

type memoryFile struct {
	api.File
	writing  int  // Sets that wait for caches
	cached   bool // replicated: some session may cache it
	holders  map[api.SessionID]uint64
	mode     api.Mode
	delayEnd time.Duration // on the clock; holders are none then
}

type memorySession struct {
	id     api.SessionID
	lease  time.Duration
	end    time.Duration // on the clock
	delays map[string]time.Duration

	// Lost in a failover.
	termAcked bool // it has acknowledged this term
	acked     uint64
	sent      uint64 // events that it was sent
	events    []api.Event
	pending   *memoryAlive
	watches   map[string]api.EventKind
	numbers   map[string]uint64
	caches    map[string]bool
	invalid   map[string]uint64 // the last CacheInvalid of a path
}

type memoryAlive struct {
	req  api.KeepAliveRequest
	came time.Duration
	done func(api.KeepAliveResponse, error)
}

func newMemory(clock Clock) *memory {
	m := &memory{
		clock: clock, stop: make(chan struct{}), changed: make(chan struct{}), term: 1,
		files: map[string]*memoryFile{}, sessions: map[api.SessionID]*memorySession{},
	}
	go m.sweep()
	return m
}

func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sessions {
		s.answer(api.KeepAliveResponse{}, api.ErrClosed)
	}
	close(m.stop)
}

// look calls f with the lock held.
func (m *memory) look(f func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// sweep expires sessions, ends lock-delays and answers KeepAlives every 5 ms.
func (m *memory) sweep() {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
		}
		m.mu.Lock()
		if !m.down {
			m.sweepLocked(m.clock.Now())
		}
		m.mu.Unlock()
	}
}

func (m *memory) sweepLocked(now time.Duration) {
	for _, id := range m.idsLocked() {
		s := m.sessions[id]
		switch p := s.pending; {
		case now >= s.end:
			m.endLocked(s, true)
		case p != nil && (now-p.came >= p.req.Hang || len(s.events) > 0 || p.req.Term != m.term):
			m.answerLocked(s, now)
		}
	}
	for path, f := range m.files {
		if f.delayEnd != 0 && now >= f.delayEnd {
			f.delayEnd = 0
			m.eventLocked(path, api.LockFreed, "")
			m.wakeLocked()
		}
	}
}

func (m *memory) idsLocked() []api.SessionID {
	ids := make([]api.SessionID, 0, len(m.sessions))
	for id := range m.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *memory) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// failover ends the leadership; another one begins after d, with the same namespace.
func (m *memory) failover(d time.Duration) {
	m.mu.Lock()
	m.down = true
	m.term++
	for _, s := range m.sessions {
		s.answer(api.KeepAliveResponse{}, &api.NotLeaderError{})
		s.reset()
	}
	m.wakeLocked()
	m.mu.Unlock()
	time.Sleep(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = false
	now := m.clock.Now()
	for _, s := range m.sessions {
		s.end = now + s.lease
		s.push(api.Event{Kind: api.FailedOver})
	}
	for _, f := range m.files {
		if f.delayEnd != 0 {
			f.delayEnd = now + api.LockDelayMax
		}
	}
}

func (s *memorySession) reset() {
	s.termAcked, s.acked, s.sent, s.events, s.pending = false, 0, 0, nil, nil
	s.watches, s.numbers, s.caches, s.invalid = map[string]api.EventKind{}, map[string]uint64{}, map[string]bool{}, map[string]uint64{}
}

func (s *memorySession) push(v api.Event) { s.events = append(s.events, v) }

func (s *memorySession) answer(r api.KeepAliveResponse, err error) {
	if p := s.pending; p != nil {
		s.pending = nil
		p.done(r, err)
	}
}

func (m *memory) answerLocked(s *memorySession, now time.Duration) {
	p := s.pending
	r := api.KeepAliveResponse{Term: m.term, First: s.acked + 1, Events: slices.Clone(s.events)}
	r.Events = r.Events[:min(len(r.Events), api.EventsMax)]
	if s.acked >= s.sent { // no unacknowledged events
		s.end = max(s.end, now+s.lease)
		r.Lease = now - p.came + s.lease
	}
	s.sent = s.acked + uint64(len(r.Events))
	s.answer(r, nil)
}

// endLocked ends a session.
func (m *memory) endLocked(s *memorySession, expired bool) {
	delete(m.sessions, s.id)
	s.answer(api.KeepAliveResponse{}, api.ErrNoSession)
	for path, f := range m.files {
		if f.holders[s.id] != 0 {
			delete(f.holders, s.id)
			if len(f.holders) == 0 {
				if f.mode = 0; expired && s.delays[path] > 0 {
					f.delayEnd = m.clock.Now() + s.delays[path]
				} else {
					m.eventLocked(path, api.LockFreed, "")
				}
			}
		}
		if f.Ephemeral == s.id {
			m.removeLocked(path)
		}
	}
	m.wakeLocked()
}

func (m *memory) eventLocked(path string, kind api.EventKind, name string) {
	for _, s := range m.sessions {
		if s.watches[path]&kind != 0 {
			s.push(api.Event{Kind: kind, Path: path, Name: name, Index: m.index})
		}
	}
}

func (m *memory) removeLocked(path string) {
	m.index++
	delete(m.files, path)
	m.eventLocked(path, api.ContentsChanged, "")
	m.wakeLocked()
}

// serve calls f with the lock held, if this is the leader.
func (m *memory) serve(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return &api.NotLeaderError{}
	}
	return f()
}

// waitLocked waits until ok returns true. The lock is released meanwhile.
func (m *memory) waitLocked(ctx context.Context, ok func() bool) error {
	for term := m.term; !ok(); {
		c := m.changed
		m.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
		}
		m.mu.Lock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case m.down || m.term != term:
			return &api.NotLeaderError{}
		}
	}
	return nil
}

func (m *memory) OpenSession(ctx context.Context, _ string, lease time.Duration) (id api.SessionID, _ time.Duration, err error) {
	err = m.serve(ctx, func() error {
		m.index++
		id = api.SessionID(m.index)
		s := &memorySession{id: id, lease: lease, end: m.clock.Now() + lease, delays: map[string]time.Duration{}}
		s.reset()
		m.sessions[id] = s
		return nil
	})
	return id, lease, err
}

func (m *memory) KeepAlive(ctx context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	err := m.serve(ctx, func() error {
		s := m.sessions[req.Session]
		if s == nil {
			return api.ErrNoSession
		}
		s.answer(api.KeepAliveResponse{}, api.ErrSuperseded)
		if req.Term == m.term {
			s.termAcked = true
			if req.Acked > s.acked {
				s.events = s.events[min(req.Acked-s.acked, uint64(len(s.events))):]
				s.acked = req.Acked
			}
			m.wakeLocked()
		}
		s.pending = &memoryAlive{req, m.clock.Now(), done}
		if s.acked < s.sent {
			m.answerLocked(s, m.clock.Now())
		}
		return nil
	})
	if err != nil {
		done(api.KeepAliveResponse{}, err)
	}
}

func (m *memory) CloseSession(ctx context.Context, id api.SessionID) error {
	return m.serve(ctx, func() error {
		if s := m.sessions[id]; s != nil {
			m.endLocked(s, false)
		}
		return nil
	})
}

func (m *memory) Get(ctx context.Context, path string, id api.SessionID) (f api.File, perm api.CachePermission, err error) {
	err = m.serve(ctx, func() error {
		x := m.files[path]
		if x == nil {
			return api.ErrNotFound
		}
		f = x.File
		f.Data = slices.Clone(x.Data)
		if s := m.sessions[id]; s != nil && x.writing == 0 && len(s.caches) < api.CachedMax {
			s.caches[path], x.cached = true, true
			perm = api.CachePermission{OK: true, Term: m.term, At: s.acked + uint64(len(s.events))}
		}
		return nil
	})
	return f, perm, err
}

func (m *memory) GetStale(ctx context.Context, path string) (api.File, error) {
	f, _, err := m.Get(ctx, path, 0)
	return f, err
}

func (m *memory) Stat(ctx context.Context, path string) (api.Stat, error) {
	f, _, err := m.Get(ctx, path, 0)
	return f.Stat, err
}

func (m *memory) List(ctx context.Context, _ string) (all []api.Stat, err error) {
	err = m.serve(ctx, func() error {
		for _, f := range m.files {
			all = append(all, f.Stat)
		}
		return nil
	})
	return all, err
}

func (m *memory) ReadDirectory(context.Context, string, api.DirectoryOptions) (api.DirectoryPage, error) {
	panic("not used")
}

func (m *memory) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (made uint64, err error) {
	err = m.serve(ctx, func() error {
		check := func() error {
			var got uint64
			if f := m.files[path]; f != nil {
				got = f.Generation
			}
			if gen != api.AnyGeneration && gen != got {
				return &api.GenerationError{Path: path, Want: gen, Got: got}
			}
			if o.Session != 0 && m.sessions[o.Session] == nil {
				return api.ErrNoSession
			}
			return nil
		}
		if err := check(); err != nil {
			return err
		}
		if err := m.invalidateLocked(ctx, path); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		m.index++
		made = m.index
		f := m.files[path]
		if f == nil {
			f = &memoryFile{holders: map[api.SessionID]uint64{}}
			f.Path, f.Instance = path, made
			m.files[path] = f
			if o.Ephemeral {
				f.Ephemeral = o.Session
			}
		}
		f.cached, f.Generation, f.Data = false, made, slices.Clone(data)
		m.eventLocked(path, api.ContentsChanged, "")
		return nil
	})
	return made, err
}

// invalidateLocked invalidates path in all sessions that may cache it.
func (m *memory) invalidateLocked(ctx context.Context, path string) error {
	f := m.files[path]
	if f == nil || !f.cached {
		return nil
	}
	f.writing++
	defer func() { f.writing-- }()
	until := map[*memorySession]uint64{}
	for _, s := range m.sessions {
		if s.caches[path] {
			delete(s.caches, path)
			s.push(api.Event{Kind: api.CacheInvalid, Path: path})
			s.invalid[path] = s.acked + uint64(len(s.events))
		}
		if s.invalid[path] > s.acked || !s.termAcked { // perhaps for another Set, that waits too
			until[s] = s.invalid[path]
		}
	}
	return m.waitLocked(ctx, func() bool {
		for s, number := range until {
			if m.sessions[s.id] == s && (!s.termAcked || s.acked < number) {
				return false
			}
		}
		return true
	})
}

func (m *memory) Delete(ctx context.Context, path string, gen uint64, _ api.SetOptions) error {
	return m.serve(ctx, func() error {
		f := m.files[path]
		if f == nil {
			return api.ErrNotFound
		}
		if err := m.invalidateLocked(ctx, path); err != nil {
			return err
		}
		if f = m.files[path]; f == nil || gen != api.AnyGeneration && gen != f.Generation {
			return &api.GenerationError{Path: path, Want: gen}
		}
		m.removeLocked(path)
		return nil
	})
}

func (m *memory) SetACL(context.Context, string, string, api.SetOptions) (uint64, error) {
	return 0, api.ErrNotFound
}

func (m *memory) Acquire(ctx context.Context, id api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (g api.Grant, err error) {
	wctx, cancel := context.WithTimeout(ctx, wait+time.Nanosecond)
	defer cancel()
	err = m.serve(ctx, func() error {
		if m.files[path] == nil {
			m.index++
			f := &memoryFile{holders: map[api.SessionID]uint64{}}
			f.Path, f.Generation, f.Instance = path, m.index, m.index
			m.files[path] = f
		}
		f := m.files[path]
		free := func() bool {
			return m.sessions[id] == nil || f.holders[id] != 0 || f.delayEnd == 0 && (f.mode == 0 || f.mode == mode && mode == api.Shared)
		}
		if err := m.waitLocked(wctx, free); err != nil {
			if ctx.Err() == nil && wctx.Err() != nil {
				return &api.LockedError{Path: path, Mode: f.mode}
			}
			return err
		}
		s := m.sessions[id]
		if s == nil {
			return api.ErrNoSession
		}
		if f.holders[id] == 0 {
			m.index++
			if f.mode == 0 {
				f.mode, f.LockGeneration = mode, m.index
			}
			f.holders[id] = m.index
			m.eventLocked(path, api.LockAcquired, "")
		}
		s.delays[path] = delay
		g = api.Grant{Sequencer: api.Sequencer{Path: path, Mode: mode, Instance: f.Instance, LockGeneration: f.LockGeneration}, Hold: f.holders[id]}
		return nil
	})
	return g, err
}

func (m *memory) Release(ctx context.Context, id api.SessionID, path string, hold uint64) error {
	return m.serve(ctx, func() error {
		f := m.files[path]
		if m.sessions[id] == nil {
			return api.ErrNoSession
		}
		if f == nil || f.holders[id] == 0 || hold != 0 && f.holders[id] != hold {
			return api.ErrNotHeld
		}
		if delete(f.holders, id); len(f.holders) == 0 {
			f.mode = 0
			m.eventLocked(path, api.LockFreed, "")
		}
		m.wakeLocked()
		return nil
	})
}

func (m *memory) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return m.serve(ctx, func() error {
		if f := m.files[q.Path]; f == nil || f.mode != q.Mode || f.LockGeneration != q.LockGeneration {
			return api.ErrStale
		}
		return nil
	})
}

func (m *memory) Watch(ctx context.Context, id api.SessionID, path string, kinds api.EventKind, gen uint64) (number uint64, err error) {
	err = m.serve(ctx, func() error {
		s := m.sessions[id]
		if s == nil {
			return api.ErrNoSession
		}
		m.index++
		s.watches[path], s.numbers[path] = s.watches[path]|kinds, m.index
		number = m.index
		if f := m.files[path]; gen != 0 && (f == nil || f.Generation != gen) {
			s.push(api.Event{Kind: api.ContentsChanged, Path: path})
		}
		return nil
	})
	return number, err
}

func (m *memory) Unwatch(ctx context.Context, id api.SessionID, path string, watch uint64) error {
	return m.serve(ctx, func() error {
		if s := m.sessions[id]; s != nil && s.numbers[path] == watch {
			delete(s.watches, path)
		}
		return nil
	})
}
