package backups

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/node/tables"
	"github.com/steledb/stele/node/tabletadmin"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// Config is what the service needs.
type Config struct {
	Ctx         context.Context // of the node
	Log         *slog.Logger
	ID          func() string // of the node
	Catalog     *namespace.Catalog
	Changes     *changes.Changes
	Roots       *roots.Reader
	Tables      *tables.Service
	Tablets     *tabletadmin.Service
	Store       func() *blobfs.Store
	Results     *results.Memory
	MasterEpoch func() uint64 // 0 unless the node is the master
	StagedFor   time.Duration // how long staged blobs are kept. Zero means 48 h
}

// Service makes and restores backups.
type Service struct {
	Config
	// wake wakes the maker, and replays the one of backups for a time.
	wake, replays chan struct{}
	// schedules is the state of all schedules when Run last looked at them; nil before.
	schedules atomic.Pointer[[]api.ScheduleInfo]
	// stagedSeen is when staged blobs were looked at. Only Run uses it.
	stagedSeen time.Time
}

// New creates a service.
func New(cfg Config) *Service {
	return &Service{Config: cfg, wake: make(chan struct{}, 1), replays: make(chan struct{}, 1)}
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	admin := func(about func(*rpc.Call) string) authz.Guard {
		return authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: about, Leader: authz.LeaderFirst}
	}
	r.Handle(api.MethodCreateBackup, rpc.Spawned, admin(authz.TablesOfBackup), s.create)
	r.HandleNames(api.MethodListBackups, 1, authz.Guard{To: authz.Right, Right: acl.Read, Leader: authz.LeaderThroughout}, s.list)
	r.HandleNames(api.MethodDeleteBackup, 1, admin(authz.Named("backup")), s.remove)
	r.Handle(api.MethodRestoreBackup, rpc.Spawned, admin(authz.Named("backup")), s.restore)
	r.Handle(api.MethodImportBackup, rpc.Spawned, admin(authz.Named("backup")), s.importBackup)
	r.Handle(api.MethodBackupFiles, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Named("backup")}, s.files)
	scheduler{s}.register(r)
	// A copy reads many parts: the audit log has its backup_files.
	r.Handle(api.MethodReadBackup, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, SelfAudited: true}, s.read)
}

func (s *Service) create(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.CreateBackupRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	id, caller := "", authz.SubjectOf(c)
	err := s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodCreateBackup}, func(ctx context.Context) (err error) {
		id, err = s.begin(ctx, &r, caller.Owner())
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	s.nudge()
	c.Reply(func(e *wire.Encoder) { e.Str(id) })
}

// begin writes the record of a new backup, within a change.
func (s *Service) begin(ctx context.Context, r *api.CreateBackupRequest, by string) (id string, err error) {
	rec := &backup.Record{State: backup.Making, Created: time.Now(), By: by}
	if r.From != "" {
		rec.Replay = &backup.Replay{From: r.From, Table: r.Tables[0], To: r.To}
		p, err := s.planReplay(ctx, rec.Replay, rec.Created)
		if err != nil {
			return "", err
		}
		p.close()
	} else if rec.Tables, err = s.tablesOf(ctx, r.Tables); err != nil {
		return "", err
	}
	ids, err := s.Catalog.List(ctx, backup.Dir)
	if err != nil {
		return "", err
	}
	if n := int64(len(ids)); n >= api.BackupsMax {
		return "", &table.LimitError{What: "backups", Limit: api.BackupsMax, Got: n + 1}
	}
	if r.Keep > 0 {
		rec.Expires = rec.Created.Add(r.Keep)
	}
	id = newID(rec.Created)
	if _, err := s.Catalog.Set(ctx, backup.Path(id), rec.Encode(), 0); err != nil {
		return "", err
	}
	s.Log.Info("backup requested", "backup", id)
	return id, nil
}

// tablesOf returns the tables of a new backup: those with the names, or all.
func (s *Service) tablesOf(ctx context.Context, names []string) ([]string, error) {
	if len(names) == 0 {
		var err error
		if names, err = s.Catalog.Names(ctx); err != nil {
			return nil, err
		}
	}
	if n := int64(len(names)); n > api.BackupTablesMax {
		return nil, &table.LimitError{What: "tables of a backup", Limit: api.BackupTablesMax, Got: n}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no table: %w", api.ErrNoTable)
	}
	for i, name := range names {
		if metadata.IsSystem(name) {
			return nil, fmt.Errorf("table %q: %w", name, api.ErrSystemTable)
		}
		if slices.Contains(names[:i], name) {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "table %.80q is given twice", name)
		}
		if _, _, err := s.Catalog.Schema(ctx, name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// newID returns the id of a backup. Ids sort by time.
func newID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // it never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

func (s *Service) list(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	ids, err := s.Catalog.List(ctx, backup.Dir)
	if err != nil {
		return nil, err
	}
	var page api.Backups
	for _, id := range ids {
		if id <= r.Names[0] || len(page.Backups) == api.BackupsPageMax {
			continue
		}
		rec, _, err := s.Roots.Backup(ctx, id)
		if errors.Is(err, api.ErrNoBackup) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		page.Backups = append(page.Backups, info(id, rec))
	}
	return page.Append, nil
}

func info(id string, r *backup.Record) api.BackupInfo {
	ms := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	return api.BackupInfo{
		ID: id, State: r.State.String(), CreatedMS: ms(r.Created), EndedMS: ms(r.Ended), ExpiresMS: ms(r.Expires), By: r.By, Error: r.Error,
		Tables: r.Tables, Tablets: r.Tablets, Bytes: r.Bytes, Schedule: r.Schedule,
	}
}

func (s *Service) remove(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	return nil, s.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return s.removeNow(ctx, r.Names[0], r.Making) })
}

// removeNow deletes a backup, or only one that is being made, within a change. Its files are left to garbage collection.
func (s *Service) removeNow(ctx context.Context, id string, making bool) error {
	if strings.Contains(id, "/") {
		return fmt.Errorf("backup %.80q: %w", id, api.ErrNoBackup)
	}
	rec, gen, err := s.Roots.Backup(ctx, id)
	if err != nil && errors.Is(err, api.ErrNoBackup) {
		return err
	}
	if making && err == nil && rec.State != backup.Making {
		return rpc.Errorf(rpc.CodeBadRequest, "backup %s is not being made any more: its state is %q", id, rec.State)
	}
	if err != nil {
		gen = metaapi.AnyGeneration // damaged
	}
	err = s.Catalog.Remove(ctx, backup.Path(id), gen)
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) {
		return fmt.Errorf("backup %.80q: %w", id, api.ErrNoBackup)
	}
	if err == nil {
		s.Log.Info("backup deleted", "backup", id)
	}
	return err
}

func (s *Service) restore(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.NamesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodRestoreBackup, 3), &r.Options) {
		return
	}
	var restored *table.Schema
	var served <-chan struct{}
	caller := authz.SubjectOf(c)
	err := s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodRestoreBackup, Name: r.Names[0]}, func(ctx context.Context) (err error) {
		restored, served, err = s.restoreNow(ctx, r.Names[0], r.Names[1], r.Names[2], caller.Owner())
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	tables.AwaitTable(c.Context(), served)
	c.Reply(func(e *wire.Encoder) { table.AppendSchema(e, restored) })
}

// restoreNow creates a table from a backup, within a change, so that the backup is not deleted before the table refers to its manifest.
func (s *Service) restoreNow(ctx context.Context, id, name, as, creator string) (*table.Schema, <-chan struct{}, error) {
	rec, _, err := s.Roots.Backup(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if rec.State != backup.Made {
		return nil, nil, fmt.Errorf("backup %s: %w: its state is %q", id, api.ErrBackupNotMade, rec.State)
	}
	m, done, err := s.Roots.OpenManifest(ctx, rec.Manifest)
	if err != nil {
		return nil, nil, fmt.Errorf("backup %s: %w", id, err)
	}
	defer done()
	at := slices.IndexFunc(m.Tables, func(t backup.Table) bool { return t.Schema.Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("backup %s has no table %.80q: %w", id, name, api.ErrNoTable)
	}
	from := &namespace.Source{Manifest: rec.Manifest, Table: at, Tablets: int(m.Tables[at].Tablets)}
	restored, served, err := s.Tables.Restore(ctx, as, m.Tables[at].Schema, from, creator)
	if err == nil {
		s.Log.Info("table restored", "backup", id, "table", as, "tablets", from.Tablets)
	}
	return restored, served, err
}
