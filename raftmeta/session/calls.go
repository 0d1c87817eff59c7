package session

import (
	"context"
	"errors"

	"github.com/steledb/stele/raftmeta/api"
)

// callError expires the session if the leader does not know it. If the session has ended, callError
// replaces the context's error by the reason.
func (s *Session) callError(err error) error {
	if errors.Is(err, api.ErrNoSession) {
		s.expire("the leader does not know it")
	}
	if over := s.Err(); err != nil && over != nil {
		if errors.Is(err, api.ErrOutcomeUnknown) {
			return errors.Join(err, over)
		}
		return over
	}
	return err
}

// Get returns the file at path, from the cache if it is there and the lease is valid. In both cases
// it is as written by the last Set that has returned to any client, or a later one. The lock state
// of a cached file may be out of date. The caller owns the File.
func (s *Session) Get(ctx context.Context, path string) (api.File, error) {
	if f, ok := s.cache.get(path); ok {
		return f, nil
	}
	f, _, err := s.fetch(ctx, path, false)
	return f, err
}

// fetch gets a file from the leader, and caches it if the leader permits that; it then returns a
// Version if hold is set.
func (s *Session) fetch(ctx context.Context, path string, hold bool) (f api.File, v *Version, err error) {
	t := s.cache.begin(path, hold)
	var perm api.CachePermission
	_, err = s.do(ctx, true, func(ctx context.Context, service api.Service) (err error) {
		f, perm, err = service.Get(ctx, path, s.id)
		return err
	})
	if err != nil {
		s.cache.finish(t, nil, api.CachePermission{})
		return api.File{}, nil, err
	}
	return f, s.cache.finish(t, &f, perm), nil
}

// Cached returns the generation of the file at path if it is in the session's cache and the lease
// is valid. No Set of the file can then have returned since that generation was made. Cached makes
// no call, does not block and copies nothing.
func (s *Session) Cached(path string) (generation uint64, ok bool) {
	return s.cache.generation(path)
}

// Set is Client.Set with o.Session set to this session.
func (s *Session) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	made, err := s.client.Set(ctx, path, data, gen, o)
	return made, s.callError(err)
}

// Delete is Client.Delete with o.Session set to this session.
func (s *Session) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	if err := s.Err(); err != nil {
		return err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.callError(s.client.Delete(ctx, path, gen, o))
}

// SetACL is Client.SetACL with o.Session set to this session.
func (s *Session) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	gen, err := s.client.SetACL(ctx, path, acl, o)
	return gen, s.callError(err)
}

// Stat is Client.Stat.
func (s *Session) Stat(ctx context.Context, path string) (api.Stat, error) {
	return s.client.Stat(ctx, path)
}

// List is Client.List.
func (s *Session) List(ctx context.Context, dir string) ([]api.Stat, error) {
	return s.client.List(ctx, dir)
}

// CheckSequencer is Client.CheckSequencer.
func (s *Session) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return s.client.CheckSequencer(ctx, q)
}
