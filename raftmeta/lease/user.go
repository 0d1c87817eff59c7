package lease

import (
	"context"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// userService is the lock service for the user of a quota.
type userService struct {
	*Service
	quota *fsm.Quota
}

// ForUser returns the service restricted to a quota.
func (v *Service) ForUser(quota fsm.Quota) api.Service { return &userService{v, bounded(quota)} }

// bounded returns a copy of s with the owner truncated to api.OwnerBytesMax. It panics if the owner is
// empty.
func bounded(s fsm.Quota) *fsm.Quota {
	s.Owner = s.Owner[:min(len(s.Owner), api.OwnerBytesMax)]
	if s.Owner == "" {
		panic("BUG: a quota of the lock service without an owner")
	}
	return &s
}

// precheck rejects a command that does not fit its quota before the command takes space in the log.
// The state machine checks again when it applies the command.
func (v *Service) precheck(c *fsm.Command) error {
	if c.Quota == nil || c.Final {
		return nil
	}
	var r fsm.Result
	v.machine.View(func(ns *fsm.Namespace, _ uint64) { r = ns.CheckQuota(c) })
	if err := r.Err(0); err != nil {
		v.refused.Add(1)
		return err
	}
	return nil
}

// OpenSession implements api.Service.
func (s *userService) OpenSession(ctx context.Context, name string, lease time.Duration) (api.SessionID, time.Duration, error) {
	return s.openSession(ctx, name, lease, s.quota)
}

// Get implements api.Service.
func (s *userService) Get(ctx context.Context, path string, id api.SessionID) (api.File, api.CachePermission, error) {
	return s.get(ctx, path, id, s.quota)
}

// Set implements api.Service.
func (s *userService) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	return s.set(ctx, path, data, gen, o, s.quota, false)
}

// SetACL implements api.Service.
func (s *userService) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	return s.setACL(ctx, path, acl, o, s.quota)
}

// Acquire implements api.Service.
func (s *userService) Acquire(ctx context.Context, id api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	return s.acquire(ctx, id, path, mode, wait, delay, s.quota)
}

// Watch implements api.Service.
func (s *userService) Watch(ctx context.Context, id api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	return s.watch(ctx, id, path, kinds, gen, s.quota)
}
