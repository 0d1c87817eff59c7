package appprofiles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// Config is what the service needs.
type Config struct {
	Log     *slog.Logger
	Limits  *table.Limits
	Catalog *namespace.Catalog
	Changes *changes.Changes
	// Directory returns a directory of the lock service. It is called once, when the node has a session.
	Directory func(path string) *session.Directory
}

// Service keeps the app profiles.
type Service struct {
	Config
	files func() *session.Directory
	bad   loglimit.ByReason
}

// New creates a service.
func New(cfg Config) *Service {
	return &Service{Config: cfg, files: sync.OnceValue(func() *session.Directory { return cfg.Directory(Dir) })}
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	guard := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("app profile"), Leader: authz.LeaderFirst}
	r.Handle(api.MethodCreateAppProfile, rpc.Spawned, guard, func(c *rpc.Call) { s.save(c, api.MethodCreateAppProfile, s.create) })
	r.Handle(api.MethodUpdateAppProfile, rpc.Spawned, guard, func(c *rpc.Call) { s.save(c, api.MethodUpdateAppProfile, s.update) })
	r.HandleNames(api.MethodDeleteAppProfile, 1, guard, func(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
		return nil, s.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return s.remove(ctx, r.Names[0]) })
	})
	r.HandleNames(api.MethodListAppProfiles, 0, authz.Guard{To: authz.Known, Leader: authz.LeaderThroughout}, s.list)
}

// save serves a method that writes a profile.
func (s *Service) save(c *rpc.Call, method string, write func(context.Context, *api.AppProfile) error) {
	c.Retain() // the change may outlive the call
	var r api.AppProfileRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, method), &r.Options) {
		return
	}
	p := &r.Profile
	err := s.Limits.CheckName("app profile id", p.ID)
	if err == nil {
		err = s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: method, Name: p.ID}, func(ctx context.Context) error { return write(ctx, p) })
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	saved := *p
	saved.Etag = etag(encode(p))
	c.Reply(saved.Append)
}

// create writes the record of a new profile, within a change.
func (s *Service) create(ctx context.Context, p *api.AppProfile) error {
	exists := fmt.Errorf("app profile %q: %w", p.ID, api.ErrAppProfileExists)
	if p.ID == api.DefaultAppProfile {
		return exists
	}
	ids, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return err
	}
	if slices.Contains(ids, p.ID) {
		return exists
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == api.DefaultAppProfile })
	if n := int64(len(ids)); n >= api.AppProfilesMax {
		return &table.LimitError{What: "app profiles", Limit: api.AppProfilesMax, Got: n + 1}
	}
	if _, err = s.Catalog.Set(ctx, recordPath(p.ID), encode(p), 0); err == nil {
		s.Log.Info("app profile created", "app_profile", p.ID)
	}
	return err
}

// update writes the record of a profile that exists, within a change.
func (s *Service) update(ctx context.Context, p *api.AppProfile) error {
	f, err := s.Catalog.Meta.Get(ctx, recordPath(p.ID))
	now := etag(f.Data)
	if errors.Is(err, metaapi.ErrNotFound) {
		if p.ID != api.DefaultAppProfile {
			return noProfile(p.ID)
		}
		now, err = unchanged().Etag, nil // f.Generation is 0: the file must not exist
	}
	if err != nil {
		return err
	}
	if p.Etag != "" && p.Etag != now {
		return fmt.Errorf("app profile %q has the etag %s, not %s: %w", p.ID, now, p.Etag, api.ErrAppProfileChanged)
	}
	if _, err = s.Catalog.Set(ctx, recordPath(p.ID), encode(p), f.Generation); err == nil {
		s.Log.Info("app profile changed", "app_profile", p.ID)
	}
	return err
}

// remove deletes the record of a profile, within a change.
func (s *Service) remove(ctx context.Context, id string) error {
	if id == api.DefaultAppProfile {
		return rpc.Errorf(rpc.CodeBadRequest, "the app profile %q cannot be deleted", id)
	}
	if s.Limits.CheckName("app profile id", id) != nil {
		return noProfile(id)
	}
	err := s.Catalog.Remove(ctx, recordPath(id), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return noProfile(id)
	}
	if err == nil {
		s.Log.Info("app profile deleted", "app_profile", id)
	}
	return err
}

func noProfile(id string) error { return fmt.Errorf("app profile %.80q: %w", id, api.ErrNoAppProfile) }

func (s *Service) list(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	return (&api.AppProfiles{Profiles: all}).Append, nil
}

// Read returns all profiles by id, for the node itself. Its errors are those of the API.
func (s *Service) Read(ctx context.Context) ([]api.AppProfile, error) {
	all, err := s.read(ctx)
	if err != nil {
		return nil, api.FromRPC(reply.ToAPI(err))
	}
	return all, nil
}

// read returns all profiles by id (PF1, PF3). Only what has changed since the last read comes from the leader.
func (s *Service) read(ctx context.Context) ([]api.AppProfile, error) {
	files, err := s.files().Read(ctx)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	all := []api.AppProfile{*unchanged()}
	var bad error
	for i := range files {
		p, err := decode(path.Base(files[i].Path), files[i].Data)
		switch {
		case err != nil:
			bad = errors.Join(bad, fmt.Errorf("%s: %w", files[i].Path, err))
		case p.ID == api.DefaultAppProfile:
			all[0] = *p
		default:
			all = append(all, *p)
		}
	}
	if bad != nil {
		s.bad.WarnError(s.Log, "app profiles not decoded", bad)
	}
	slices.SortFunc(all, func(a, b api.AppProfile) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}
