package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/remote"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/tables"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// checkTimeout bounds the wait for the source of a new replication.
const checkTimeout = 10 * time.Second

// Config is what the service needs.
type Config struct {
	Ctx         context.Context // of the node
	Log         *slog.Logger
	ID          func() string // of the node
	Limits      *table.Limits
	Catalog     *namespace.Catalog
	Changes     *changes.Changes
	Tables      *tables.Service
	Client      func() *client.Client // of the node, for its own cluster
	MasterEpoch func() uint64         // 0 unless the node is the master
	// Dial opens connections to sources, over the network of the node.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// MessageBytesMax bounds the largest change, as it does for requests to the node.
	MessageBytesMax int
}

// Service manages replications, and runs them while the node is the master.
type Service struct {
	Config
	wake chan struct{}

	// mu guards the running replications. Never held across I/O.
	mu      sync.Mutex
	running map[string]*running
	large   chan struct{} // has a place for the table that reads a large change, or cell
}

// New creates a service.
func New(cfg Config) *Service {
	return &Service{Config: cfg, wake: make(chan struct{}, 1), running: map[string]*running{}, large: make(chan struct{}, 1)}
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	guard := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("replication"), Leader: authz.LeaderFirst}
	r.Handle(api.MethodCreateReplication, rpc.Spawned, guard, s.create)
	r.HandleNames(api.MethodListReplications, 0, authz.Guard{To: authz.Right, Right: acl.Read, Master: true, Knows: true, Leader: authz.LeaderThroughout}, s.list)
	r.HandleNames(api.MethodSyncReplication, 1, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, Knows: true, About: authz.Named("table"), Leader: authz.LeaderThroughout}, s.sync)
	for name, change := range map[string]func(ctx context.Context, name string) error{
		api.MethodPauseReplication:  func(ctx context.Context, name string) error { return s.pause(ctx, name, true) },
		api.MethodResumeReplication: func(ctx context.Context, name string) error { return s.pause(ctx, name, false) },
		api.MethodRemoveReplication: s.remove,
		api.MethodPromoteTable:      s.promote,
	} {
		r.HandleNames(name, 1, guard, func(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
			err := s.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return change(ctx, r.Names[0]) })
			s.nudge()
			return nil, err
		})
	}
}

func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) create(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.CreateReplicationRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller := authz.SubjectOf(c)
	schemas, err := s.check(c.Context(), &r)
	if err == nil {
		err = s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodCreateReplication, Name: r.Name}, func(ctx context.Context) error {
			return s.createNow(ctx, &r, schemas, caller.Owner())
		})
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	s.nudge()
	c.Reply(nil)
}

// check checks a new replication, and returns the schemas of the source's tables. An error of the source is a bad request of this cluster: the caller lacks no right
// here, nothing of this cluster is missing, and nothing was changed.
func (s *Service) check(ctx context.Context, r *api.CreateReplicationRequest) (schemas []*table.Schema, err error) {
	if err := s.Limits.CheckTableName(r.Name); err != nil {
		return nil, err
	}
	for i, name := range r.Tables {
		if metadata.IsSystem(name) {
			return nil, fmt.Errorf("table %q: %w", name, api.ErrSystemTable)
		}
		if err := s.Limits.CheckTableName(name); err != nil {
			return nil, err
		}
		if slices.Contains(r.Tables[:i], name) {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "table %.80q is given twice", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	from, err := remote.Open(ctx, r.Addrs, r.Secret, client.Config{Dial: s.Dial, Logger: s.Log, MessageBytesMax: answerBytesMax})
	if err != nil {
		return nil, ofSource(err)
	}
	defer from.Close()
	for _, name := range r.Tables {
		info, err := from.Tables().Describe(ctx, name)
		if err != nil {
			return nil, ofSource(err)
		}
		if err := checkSchema(info, name); err != nil {
			return nil, ofSource(fmt.Errorf("table %q: %w", name, err))
		}
		if info.Schema.ChangeRetention == 0 {
			return nil, fmt.Errorf("the source: table %q: %w: turn it on there (stele table stream --keep)", name, api.ErrNoChangeStream)
		}
		schemas = append(schemas, info.Schema)
	}
	return schemas, nil
}

func ofSource(err error) error {
	if errors.Is(err, rpc.CodeBadRequest) {
		return fmt.Errorf("the source: %w", err)
	}
	return rpc.Errorf(rpc.CodeBadRequest, "the source, with the given credential: %.500s", err)
}

// createNow creates the tables and writes the record, within a change. It may be repeated after an error.
func (s *Service) createNow(ctx context.Context, r *api.CreateReplicationRequest, schemas []*table.Schema, by string) error {
	names, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return err
	}
	if slices.Contains(names, r.Name) {
		return fmt.Errorf("replication %q: %w", r.Name, api.ErrReplicationExists)
	}
	if n := int64(len(names)); n >= api.ReplicationsMax {
		return &table.LimitError{What: "replications", Limit: api.ReplicationsMax, Got: n + 1}
	}
	for _, schema := range schemas {
		have, _, err := s.Catalog.Schema(ctx, schema.Name)
		if err == nil && have.Follows == r.Name { // of an earlier attempt
			continue
		}
		if err == nil && have.Follows == table.RemovedReplication(r.Name) {
			return fmt.Errorf("table %q is of a replication that was removed: drop it, or promote it and choose another: %w", schema.Name, api.ErrTableExists)
		}
		if _, err := tables.CreateFollower(ctx, s.Tables, schema, r.Name, by); err != nil {
			return err
		}
	}
	rec := &record{addrs: r.Addrs, secret: r.Secret, tables: r.Tables, rate: r.Rate, by: by}
	if _, err := s.Catalog.Set(ctx, recordPath(r.Name), rec.encode(), 0); err != nil {
		return err
	}
	s.Log.Info("replication created", "replication", r.Name)
	return nil
}

// read returns the record of a replication, and its generation.
func (s *Service) read(ctx context.Context, name string) (*record, uint64, error) {
	f, err := s.Catalog.Meta.Get(ctx, recordPath(name))
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) || strings.Contains(name, "/") {
		return nil, 0, fmt.Errorf("replication %.80q: %w", name, api.ErrNoReplication)
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := decodeRecord(f.Data)
	return r, f.Generation, err
}

func (s *Service) pause(ctx context.Context, name string, paused bool) error {
	r, gen, err := s.read(ctx, name)
	if err != nil || r.paused == paused {
		return err
	}
	r.paused = paused
	_, err = s.Catalog.Set(ctx, recordPath(name), r.encode(), gen)
	return err
}

// remove removes a replication, and the progress of its tables, within a change. Tables that follow it accept no changes from then on, also those that were
// renamed, and those that were dropped and may be restored.
func (s *Service) remove(ctx context.Context, name string) error {
	r, gen, err := s.read(ctx, name)
	if err != nil {
		return err
	}
	if err := s.Catalog.AlterEach(ctx, func(t *table.Schema) *table.Schema {
		if t.Follows != name {
			return nil
		}
		return t.Orphan()
	}); err != nil {
		return err
	}
	if err := s.Catalog.Remove(ctx, recordPath(name), gen); err != nil {
		return err
	}
	s.Log.Info("replication removed", "replication", name)
	return s.forget(ctx, name, r.tables...)
}

// forget removes the progress of tables.
func (s *Service) forget(ctx context.Context, name string, of ...string) error {
	for _, t := range of {
		err := s.Catalog.Remove(ctx, statePath(name, t), metaapi.AnyGeneration)
		if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
			return err
		}
	}
	return nil
}

// promote makes a table an ordinary one, within a change. From then on servers reject changes of the replication.
func (s *Service) promote(ctx context.Context, name string) error {
	replication := ""
	if _, err := tables.AlterNow(ctx, s.Tables, name, func(old *table.Schema) (*table.Schema, error) {
		if replication = old.Follows; replication == "" {
			return nil, fmt.Errorf("table %q: %w", name, api.ErrNotFollower)
		}
		return old.Promote(), nil
	}); err != nil {
		return err
	}
	s.Log.Info("table promoted", "table", name, "replication", replication)
	r, gen, err := s.read(ctx, replication)
	if errors.Is(err, api.ErrNoReplication) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.tables = slices.DeleteFunc(r.tables, func(t string) bool { return t == name }); len(r.tables) == 0 {
		return s.remove(ctx, replication)
	}
	if _, err := s.Catalog.Set(ctx, recordPath(replication), r.encode(), gen); err != nil {
		return err
	}
	return s.forget(ctx, replication, name)
}

func (s *Service) list(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	names, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return nil, err
	}
	all := &api.Replications{}
	for _, name := range names {
		r, generation, err := s.read(ctx, name)
		if errors.Is(err, api.ErrNoReplication) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		info := api.ReplicationInfo{Name: name, Addrs: r.addrs, By: r.by, Paused: r.paused, Rate: r.rate}
		for _, t := range r.tables {
			info.Tables = append(info.Tables, s.status(name, generation, t, r.paused))
		}
		all.Replications = append(all.Replications, info)
	}
	return all.Append, nil
}
