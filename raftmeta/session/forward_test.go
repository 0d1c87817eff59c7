package session

import (
	"context"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// forwardingService is a Service that is looked up at each call.
type forwardingService struct {
	to func() (api.Service, error)
}

func forwarded[T any](f forwardingService, call func(api.Service) (T, error)) (T, error) {
	s, err := f.to()
	if err != nil {
		var none T
		return none, err
	}
	return call(s)
}

func (f forwardingService) only(call func(api.Service) error) error {
	s, err := f.to()
	if err != nil {
		return err
	}
	return call(s)
}

func (f forwardingService) OpenSession(ctx context.Context, name string, lease time.Duration) (id api.SessionID, granted time.Duration, err error) {
	err = f.only(func(s api.Service) error {
		id, granted, err = s.OpenSession(ctx, name, lease)
		return err
	})
	return id, granted, err
}

func (f forwardingService) KeepAlive(ctx context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	s, err := f.to()
	if err != nil {
		done(api.KeepAliveResponse{}, err)
		return
	}
	s.KeepAlive(ctx, req, done)
}

func (f forwardingService) CloseSession(ctx context.Context, id api.SessionID) error {
	return f.only(func(s api.Service) error { return s.CloseSession(ctx, id) })
}

func (f forwardingService) Get(ctx context.Context, path string, id api.SessionID) (x api.File, perm api.CachePermission, err error) {
	err = f.only(func(s api.Service) error {
		x, perm, err = s.Get(ctx, path, id)
		return err
	})
	return x, perm, err
}

func (f forwardingService) GetStale(ctx context.Context, path string) (api.File, error) {
	return forwarded(f, func(s api.Service) (api.File, error) { return s.GetStale(ctx, path) })
}

func (f forwardingService) Stat(ctx context.Context, path string) (api.Stat, error) {
	return forwarded(f, func(s api.Service) (api.Stat, error) { return s.Stat(ctx, path) })
}

func (f forwardingService) List(ctx context.Context, dir string) ([]api.Stat, error) {
	return forwarded(f, func(s api.Service) ([]api.Stat, error) { return s.List(ctx, dir) })
}

func (f forwardingService) ReadDirectory(ctx context.Context, dir string, o api.DirectoryOptions) (api.DirectoryPage, error) {
	return forwarded(f, func(s api.Service) (api.DirectoryPage, error) { return s.ReadDirectory(ctx, dir, o) })
}

func (f forwardingService) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	return forwarded(f, func(s api.Service) (uint64, error) { return s.Set(ctx, path, data, gen, o) })
}

func (f forwardingService) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	return f.only(func(s api.Service) error { return s.Delete(ctx, path, gen, o) })
}

func (f forwardingService) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	return forwarded(f, func(s api.Service) (uint64, error) { return s.SetACL(ctx, path, acl, o) })
}

func (f forwardingService) Acquire(ctx context.Context, id api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	return forwarded(f, func(s api.Service) (api.Grant, error) { return s.Acquire(ctx, id, path, mode, wait, delay) })
}

func (f forwardingService) Release(ctx context.Context, id api.SessionID, path string, hold uint64) error {
	return f.only(func(s api.Service) error { return s.Release(ctx, id, path, hold) })
}

func (f forwardingService) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return f.only(func(s api.Service) error { return s.CheckSequencer(ctx, q) })
}

func (f forwardingService) Watch(ctx context.Context, id api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	return forwarded(f, func(s api.Service) (uint64, error) { return s.Watch(ctx, id, path, kinds, gen) })
}

func (f forwardingService) Unwatch(ctx context.Context, id api.SessionID, path string, watch uint64) error {
	return f.only(func(s api.Service) error { return s.Unwatch(ctx, id, path, watch) })
}
