package session

import (
	"context"
	"errors"

	"github.com/steledb/stele/raftmeta/api"
)

// judge ends the session when the leader says that it is gone, and says in place of
// the context's error why the session ended a call.
func (s *Session) judge(err error) error {
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

// Get returns the file at path, from the cache if it is there and the lease holds.
// Either way it is what the last Set that has returned, anywhere, wrote, or a later
// one. A file from the cache may have an old state of its lock. The File is the
// caller's own.
func (s *Session) Get(ctx context.Context, path string) (api.File, error) {
	if f, ok := s.cache.get(path); ok {
		return f, nil
	}
	f, _, err := s.fetch(ctx, path, false)
	return f, err
}

// fetch gets a file from the leader, and keeps it if that gives leave. It returns a Version then, if hold.
func (s *Session) fetch(ctx context.Context, path string, hold bool) (f api.File, v *Version, err error) {
	t := s.cache.begin(path, hold)
	var leave api.CacheLeave
	_, err = s.do(ctx, true, func(ctx context.Context, service api.Service) (err error) {
		f, leave, err = service.Get(ctx, path, s.id)
		return err
	})
	if err != nil {
		s.cache.finish(t, nil, api.CacheLeave{})
		return api.File{}, nil, err
	}
	return f, s.cache.finish(t, &f, leave), nil
}

// Cached returns the generation of the file at path if the session has it in its cache
// and its lease holds: until then, no Set of it has returned since that generation was
// made. It asks nobody, blocks for nothing and copies nothing.
func (s *Session) Cached(path string) (generation uint64, ok bool) {
	return s.cache.generation(path)
}

// Set is Client.Set for this session: o.Session is filled in.
func (s *Session) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	made, err := s.client.Set(ctx, path, data, gen, o)
	return made, s.judge(err)
}

// Delete is Client.Delete for this session.
func (s *Session) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	if err := s.Err(); err != nil {
		return err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.judge(s.client.Delete(ctx, path, gen, o))
}

// SetACL is Client.SetACL for this session.
func (s *Session) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	o.Session = s.id
	ctx, cancel := s.within(ctx)
	defer cancel()
	gen, err := s.client.SetACL(ctx, path, acl, o)
	return gen, s.judge(err)
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
