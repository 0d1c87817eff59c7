package lockserver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// userGroup is the part of the Raft group that the lock service for users needs.
type userGroup interface {
	ServiceFor(raftmeta.Quota) metaapi.Service
	Sessions() int
	SessionName(id metaapi.SessionID) (name string, known bool)
}

// errAsking is the error of a call that must not wait for the lookup of rights.
var errAsking = fmt.Errorf("%w: rights are being looked up", metaapi.ErrNotReady)

// rightCached returns nil if a principal has the right to the lock service, without waiting. known is false if a lookup is needed.
func (sv *Service) rightCached(caller *authz.Subject) (err error, known bool) {
	name, generation, s := caller.Principal()
	if s != nil {
		if seen := s.Seen.Load(); seen == nil || !sv.Authz.Rights.Cache.Holds(*seen) {
			return nil, false
		}
		if err := s.Record.Valid(time.Now()); err != nil {
			return err, true
		}
	}
	if s == nil && caller.Peer.Serial != "" {
		if revoked, known := sv.Authz.Rights.Cache.CertificateRevokedNow(name, caller.Peer.Serial); revoked || !known {
			return acl.ErrRevoked, known
		}
	}
	return sv.Authz.Rights.Cache.CheckClusterNow(name, generation, acl.Write)
}

// lookUpRight looks up the right for rightCached, once at a time per connection.
func (sv *Service) lookUpRight(caller *authz.Subject) {
	if !caller.Asking.CompareAndSwap(false, true) {
		return
	}
	sv.Background.Go(func() {
		defer caller.Asking.Store(false)
		_, _ = sv.Authz.Rights.Check(sv.Ctx, caller, acl.Write)
	})
}

// userService is the lock service below namespace.LocksDir, with the sessions that one principal has opened: their names begin with prefix. It
// implements metaapi.Service.
type userService struct {
	clientService
	group  userGroup
	prefix string
	server *Service
	caller *authz.Subject
}

// pathError returns the error for paths outside namespace.LocksDir.
func pathError(p string) error {
	return &api.PermissionError{Text: fmt.Sprintf("path %.80q is reserved for the cluster: use paths below %s", p, namespace.LocksDir)}
}

// checkUserPath returns nil if users may access a path.
func (s userService) checkUserPath(p string) error {
	if p == namespace.LocksDir || strings.HasPrefix(p, namespace.LocksDir+"/") && path.Clean(p) == p {
		return nil
	}
	return reply.ToAPI(pathError(p))
}

// own returns nil if a session belongs to the principal, or id is 0.
func (s userService) own(id metaapi.SessionID) error {
	if id == 0 {
		return nil
	}
	name, known := s.group.SessionName(id)
	switch {
	case !known: // not known, or not yet
		return fmt.Errorf("%w: session %d is not known", metaapi.ErrNotReady, id)
	case !strings.HasPrefix(name, s.prefix):
		return reply.ToAPI(&api.PermissionError{Text: fmt.Sprintf("session %d belongs to another user", id)})
	}
	return nil
}

// both combines checkUserPath and own.
func (s userService) both(id metaapi.SessionID, p string) error {
	if err := s.checkUserPath(p); err != nil {
		return err
	}
	return s.own(id)
}

func (s userService) options(p string, o metaapi.SetOptions) error {
	if o.Guard.Path != "" {
		if err := s.checkUserPath(o.Guard.Path); err != nil {
			return err
		}
	}
	for _, p := range o.Paths(p) {
		if err := s.checkUserPath(p); err != nil {
			return err
		}
	}
	return s.own(o.Session)
}

// OpenSession implements metaapi.Service.
func (s userService) OpenSession(ctx context.Context, name string, lease time.Duration) (metaapi.SessionID, time.Duration, error) {
	name = s.prefix + name
	return s.clientService.OpenSession(ctx, name[:min(len(name), metaapi.SessionNameBytesMax)], lease)
}

// KeepAlive implements metaapi.Service. It may have waited for long: if the principal has lost the right meanwhile, its session ends.
func (s userService) KeepAlive(ctx context.Context, req metaapi.KeepAliveRequest, done func(metaapi.KeepAliveResponse, error)) {
	if err := s.own(req.Session); err != nil {
		done(metaapi.KeepAliveResponse{}, err)
		return
	}
	s.Service.KeepAlive(ctx, req, func(r metaapi.KeepAliveResponse, err error) {
		if err == nil {
			if gone, known := s.server.rightCached(s.caller); gone != nil || !known {
				// At most one for each call that waited when rights changed: later calls are rejected.
				s.server.Background.Go(func() { done(s.still(req.Session, r)) })
				return
			}
		}
		done(r, err)
	})
}

// still checks the right again and closes the session if it is lost. Otherwise it returns r.
func (s userService) still(id metaapi.SessionID, r metaapi.KeepAliveResponse) (metaapi.KeepAliveResponse, error) {
	if _, err := s.server.Authz.Rights.Check(s.server.Ctx, s.caller, acl.Write); err != nil {
		if reply.IsRefusal(err) {
			s.leave(func(ctx context.Context) error { return s.Service.CloseSession(ctx, id) })
			return metaapi.KeepAliveResponse{}, s.server.Authz.Refuse(metaapi.MethodKeepAlive, s.caller, err)
		}
		return metaapi.KeepAliveResponse{}, errAsking
	}
	return r, nil
}

// leave releases what a principal has lost the right to. If that fails, it ends with the lease, which is not extended.
func (s userService) leave(give func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(s.server.Ctx, authz.RightsTimeout)
	defer cancel()
	if err := give(ctx); err != nil {
		s.server.Log.Info("session of user without rights not closed; it ends with its lease", "user", s.caller.Owner(), "err", err)
	}
}

// CloseSession implements metaapi.Service.
func (s userService) CloseSession(ctx context.Context, id metaapi.SessionID) error {
	err := s.own(id)
	if errors.Is(err, metaapi.ErrNotReady) {
		// A new leader may not have applied its opening yet. After a linearizable read it has.
		if _, err := s.Service.Stat(ctx, namespace.LocksDir); err != nil && !errors.Is(err, metaapi.ErrNotFound) {
			return err
		}
		if err = s.own(id); errors.Is(err, metaapi.ErrNotReady) {
			return nil // the session has ended
		}
	}
	if err != nil {
		return err
	}
	return s.Service.CloseSession(ctx, id)
}

// Get implements metaapi.Service.
func (s userService) Get(ctx context.Context, p string, id metaapi.SessionID) (f metaapi.File, perm metaapi.CachePermission, err error) {
	if err := s.both(id, p); err != nil {
		return f, perm, err
	}
	return s.Service.Get(ctx, p, id)
}

// GetStale implements metaapi.Service.
func (s userService) GetStale(ctx context.Context, p string) (metaapi.File, error) {
	if err := s.checkUserPath(p); err != nil {
		return metaapi.File{}, err
	}
	return s.Service.GetStale(ctx, p)
}

// Stat implements metaapi.Service.
func (s userService) Stat(ctx context.Context, p string) (metaapi.Stat, error) {
	if err := s.checkUserPath(p); err != nil {
		return metaapi.Stat{}, err
	}
	return s.Service.Stat(ctx, p)
}

// List implements metaapi.Service.
func (s userService) List(ctx context.Context, dir string) ([]metaapi.Stat, error) {
	if err := s.checkUserPath(dir); err != nil {
		return nil, err
	}
	return s.Service.List(ctx, dir)
}

// ReadDirectory implements metaapi.Service.
func (s userService) ReadDirectory(ctx context.Context, dir string, o metaapi.DirectoryOptions) (metaapi.DirectoryPage, error) {
	if err := s.checkUserPath(dir); err != nil {
		return metaapi.DirectoryPage{}, err
	}
	return s.Service.ReadDirectory(ctx, dir, o)
}

// Set implements metaapi.Service.
func (s userService) Set(ctx context.Context, p string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	if err := s.options(p, o); err != nil {
		return 0, err
	}
	return s.clientService.Set(ctx, p, data, gen, o)
}

// Delete implements metaapi.Service.
func (s userService) Delete(ctx context.Context, p string, gen uint64, o metaapi.SetOptions) error {
	if err := s.options(p, o); err != nil {
		return err
	}
	return s.clientService.Delete(ctx, p, gen, o)
}

// SetACL implements metaapi.Service.
func (s userService) SetACL(ctx context.Context, p, acl string, o metaapi.SetOptions) (uint64, error) {
	if err := s.options(p, o); err != nil {
		return 0, err
	}
	return s.clientService.SetACL(ctx, p, acl, o)
}

// Acquire implements metaapi.Service.
func (s userService) Acquire(ctx context.Context, id metaapi.SessionID, p string, mode metaapi.Mode, wait, delay time.Duration) (metaapi.Grant, error) {
	if err := s.both(id, p); err != nil {
		return metaapi.Grant{}, err
	}
	g, err := s.clientService.Acquire(ctx, id, p, mode, wait, delay)
	if err != nil {
		return g, err
	}
	if _, lost := s.server.Authz.Rights.Check(s.server.Ctx, s.caller, acl.Write); lost != nil { // the right may have been revoked while waiting
		s.leave(func(ctx context.Context) error { return s.Service.Release(ctx, id, p, g.Hold) })
		return metaapi.Grant{}, s.server.Authz.Refuse(metaapi.MethodAcquire, s.caller, lost)
	}
	return g, nil
}

// Release implements metaapi.Service.
func (s userService) Release(ctx context.Context, id metaapi.SessionID, p string, hold uint64) error {
	if err := s.both(id, p); err != nil {
		return err
	}
	return s.Service.Release(ctx, id, p, hold)
}

// CheckSequencer implements metaapi.Service.
func (s userService) CheckSequencer(ctx context.Context, q metaapi.Sequencer) error {
	if err := s.checkUserPath(q.Path); err != nil {
		return err
	}
	return s.Service.CheckSequencer(ctx, q)
}

// Watch implements metaapi.Service.
func (s userService) Watch(ctx context.Context, id metaapi.SessionID, p string, kinds metaapi.EventKind, gen uint64) (uint64, error) {
	if err := s.both(id, p); err != nil {
		return 0, err
	}
	return s.Service.Watch(ctx, id, p, kinds, gen)
}

// Unwatch implements metaapi.Service.
func (s userService) Unwatch(ctx context.Context, id metaapi.SessionID, p string, watch uint64) error {
	if err := s.both(id, p); err != nil {
		return err
	}
	return s.Service.Unwatch(ctx, id, p, watch)
}
