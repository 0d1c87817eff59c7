package tables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/node/users"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// Config is what the service needs.
type Config struct {
	Ctx         context.Context // of the node
	Background  *sync.WaitGroup
	Log         *slog.Logger
	ID          func() string // of the node
	Limits      *table.Limits
	Authz       *authz.Authorizer
	Catalog     *namespace.Catalog
	Meta        *namespace.Access
	Changes     *changes.Changes
	Users       *users.Service
	Quotas      *quotas.Service
	Tablets     *tabletadmin.Service
	MasterEpoch func() uint64             // 0 unless the node is the master
	NudgeMaster func(ctx context.Context) // reports a change to the master
	DroppedFor  time.Duration             // how long dropped tables are kept; 0: KeptFor
}

// Service creates, changes and drops tables.
type Service struct {
	Config
	// swept is the epoch of the last mastership in which orphaned files of tables were removed.
	swept atomic.Uint64
}

// New creates a service.
func New(cfg Config) *Service { return &Service{Config: cfg} }

// Register registers the methods of the service.
func (tb *Service) Register(r method.Registrar) {
	r.Handle(api.MethodCreateTable, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("table"), Leader: authz.LeaderFirst}, tb.createTable)
	r.Handle(api.MethodSetFamily, rpc.Spawned, authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Master: true, About: authz.FamilySet, Leader: authz.LeaderFirst}, tb.setFamily)
	r.Handle(api.MethodAlterTable, rpc.Spawned, authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Master: true, Leader: authz.LeaderFirst}, tb.alterTable)
	r.HandleNames(api.MethodListTables, 0, authz.Guard{To: authz.Known, Leader: authz.LeaderThroughout}, tb.listTables)
	r.HandleNames(api.MethodDescribeTable, 1, authz.Guard{To: authz.OfTable, Leader: authz.LeaderThroughout}, tb.describeTable)
	r.HandleNames(api.MethodDropTable, 1, authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Master: true, Leader: authz.LeaderFirst}, tb.dropTable)
	tb.handleDropped(r)
	r.HandleNames(api.MethodDropFamily, 2, authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Master: true, About: authz.FamilyDropped, Leader: authz.LeaderFirst}, tb.dropFamily)
	r.HandleNames(api.MethodRenameTable, 2, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.TableRenamed, Leader: authz.LeaderFirst}, renamer{tb}.serve)
	r.HandleNames(api.MethodCompactTable, 1, authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Leader: authz.LeaderFirst}, tb.compactTable)
}

func schemaAnswer(s *table.Schema) reply.Result {
	return func(e *wire.Encoder) { table.AppendSchema(e, s) }
}

func (tb *Service) createTable(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.CreateTableRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	var s *table.Schema
	var served <-chan struct{}
	creator := authz.SubjectOf(c).Owner()
	err := tb.Changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodCreateTable, Name: r.Name}, func(ctx context.Context) (err error) {
		s, served, err = tb.create(ctx, &r, creator)
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	AwaitTable(c.Context(), served) // other changes of schemas need not wait for that
	c.Reply(schemaAnswer(s))
}

// create creates a table, within a change. The table exists once its schema is written. The master then creates the rows of its
// tablets and has them served: served is closed when they are, or when that takes too long. The creator, if any, becomes the
// table's administrator.
func (tb *Service) create(ctx context.Context, r *api.CreateTableRequest, creator string) (s *table.Schema, served <-chan struct{}, err error) {
	if err := tb.checkNew(ctx, r.Name); err != nil {
		return nil, nil, err
	}
	if _, err := r.Schema(metadata.FirstID); err != nil {
		return nil, nil, err
	}
	ends, err := namespace.CheckSplitPoints(r.SplitAt, tb.Limits)
	if err != nil {
		return nil, nil, err
	}
	id, err := tb.Catalog.NextIDs(ctx, uint64(len(ends))+2) // for the table and its tablets
	if err != nil {
		return nil, nil, err
	}
	s, err = r.Schema(id)
	if err != nil {
		return nil, nil, err
	}
	var cut *namespace.SplitPoints
	if len(ends) > 0 {
		cut = &namespace.SplitPoints{First: id + 1, Ends: ends}
	}
	served, err = tb.save(ctx, s, cut, creator)
	return s, served, err
}

// checkNew returns an error unless a table may be created with that name.
func (tb *Service) checkNew(ctx context.Context, name string) error {
	if err := tb.Limits.CheckTableName(name); err != nil {
		return err
	}
	if name == metadata.Name {
		return fmt.Errorf("table %q: %w: the name is reserved", name, api.ErrTableExists)
	}
	switch _, _, err := tb.Catalog.Schema(ctx, name); {
	case err == nil:
		return fmt.Errorf("table %q: %w", name, api.ErrTableExists)
	case !errors.Is(err, api.ErrNoTable):
		return err
	}
	return nil
}

// save makes a new table exist, within a change. Its tablets are created from cut; one empty tablet if that is nil.
func (tb *Service) save(ctx context.Context, s *table.Schema, cut *namespace.SplitPoints, creator string) (served <-chan struct{}, err error) {
	if err = tb.prepareTable(ctx, creator, s.ID); err == nil { // before the table exists, so that its creator sees it at once
		err = tb.Catalog.SaveTable(ctx, s, cut, 0)
	}
	if err != nil {
		if !errors.Is(err, metaapi.ErrOutcomeUnknown) { // else the next master checks whether the table exists: orphanfiles.go
			tb.Users.ForgetGrants(ctx, s.ID)
			tb.Quotas.ForgetTable(ctx, s.ID)
		}
		return nil, err
	}
	tb.Log.Info("table created", "table", s.Name, "families", len(s.Families), "tablets", cut.Tablets())
	return tb.AwaitServed(s, cut.Tablets()), nil
}

// Restore creates a table with the schema and the tablets of one in a backup, within a change. It is not protected. Restore returns like create. Errors: those of
// create_table.
func (tb *Service) Restore(ctx context.Context, name string, old *table.Schema, from *namespace.Source, creator string) (s *table.Schema, served <-chan struct{}, err error) {
	if err := tb.checkNew(ctx, name); err != nil {
		return nil, nil, err
	}
	id, err := tb.Catalog.NextIDs(ctx, uint64(from.Tablets)+1) // for the table and its tablets
	if err != nil {
		return nil, nil, err
	}
	restored := *old.Promote()
	restored.Name, restored.ID, restored.Protected, restored.ReadOnly = name, id, false, ""
	if err := restored.Validate(tb.Limits); err != nil {
		return nil, nil, err
	}
	served, err = tb.save(ctx, &restored, &namespace.SplitPoints{First: id + 1, From: from}, creator)
	return &restored, served, err
}

// CreateFollower creates a table that follows one of another cluster, within a change, with the families and groups of that one. Errors: those of
// create_table.
func CreateFollower(ctx context.Context, tb *Service, source *table.Schema, replication, creator string) (served <-chan struct{}, err error) {
	if err := tb.checkNew(ctx, source.Name); err != nil {
		return nil, err
	}
	s := source.Clone()
	s.Protected, s.ReadOnly, s.ChangeRetention = false, "", 0
	if s, err = s.Promote().Follow(replication); err != nil {
		return nil, err
	}
	if s.ID, err = tb.Catalog.NextIDs(ctx, 2); err != nil { // for the table and its tablet
		return nil, err
	}
	if err := s.Validate(tb.Limits); err != nil {
		return nil, err
	}
	return tb.save(ctx, s, &namespace.SplitPoints{First: s.ID + 1}, creator)
}

// AlterNow changes a table's schema, within a change. When it returns, no server uses the old schema (I15).
func AlterNow(ctx context.Context, tb *Service, name string, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	return tb.alterNow(ctx, name, edit)
}

// prepareTable writes the grant and the ownership of the creator, if any, before the table exists.
func (tb *Service) prepareTable(ctx context.Context, creator string, tableID uint64) error {
	if creator == "" {
		return nil
	}
	if err := tb.Users.GrantCreator(ctx, creator, tableID); err != nil {
		return err
	}
	return tb.Quotas.OwnCreator(ctx, creator, tableID)
}

// ServedTimeout is how long the creation of a table waits until the table is served. The table exists in any case.
const (
	ServedTimeout       = 10 * time.Second
	servedTimeoutTablet = 20 * time.Millisecond // for each tablet, in addition
	// servedAnswer is the time reserved for the answer, out of what the caller's deadline leaves.
	servedAnswer = time.Second
)

// AwaitTable waits until a new table is served, or until the caller's deadline is near.
func AwaitTable(ctx context.Context, served <-chan struct{}) {
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(servedAnswer, left/4))
		defer cancel()
	}
	select {
	case <-served:
	case <-ctx.Done():
	}
}

// AwaitServed nudges the master until all of a new table is served, or it is dropped. The caller may leave meanwhile, and the master
// looks for new tables only from time to time.
func (tb *Service) AwaitServed(s *table.Schema, tablets int) <-chan struct{} {
	served := make(chan struct{})
	tb.Background.Go(func() {
		defer close(served)
		tb.nudgeUntilServed(s, tablets)
	})
	return served
}

func (tb *Service) nudgeUntilServed(s *table.Schema, tablets int) {
	ctx, cancel := context.WithTimeout(tb.Ctx, ServedTimeout+time.Duration(tablets)*servedTimeoutTablet)
	defer cancel()
	assigned := false
	pauses := timing.Backoff{Min: 5 * time.Millisecond, Max: 200 * time.Millisecond}
	for ; ctx.Err() == nil; pauses.Sleep(ctx) {
		tb.NudgeMaster(ctx)
		if assigned = assigned || tb.Tablets.AssignedWhole(ctx, s.ID, tablets); assigned {
			infos, err := tb.Tablets.Describe(ctx, s)
			if err == nil && tabletadmin.Whole(infos, s.ID) {
				return
			}
		}
		if now, _, err := tb.Catalog.Schema(ctx, s.Name); errors.Is(err, api.ErrNoTable) || err == nil && now.ID != s.ID {
			return
		}
	}
	tb.Log.Warn("new table not served yet", "table", s.Name)
}

// alter changes a table's schema. When it returns, no server uses the old schema: see schemas (I15).
func (tb *Service) alter(ctx context.Context, a authz.ChangeRequest, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	var s *table.Schema
	err := tb.Changes.Do(ctx, a, func(ctx context.Context) (err error) {
		s, err = tb.alterNow(ctx, a.Name, edit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (tb *Service) alterNow(ctx context.Context, name string, edit func(*table.Schema) (*table.Schema, error)) (*table.Schema, error) {
	if metadata.IsSystem(name) {
		return nil, api.ErrSystemTable
	}
	old, cut, gen, err := namespace.ReadTable(ctx, tb.Catalog.Meta, name)
	if err != nil {
		return nil, err
	}
	s, err := edit(old)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(tb.Limits); err != nil {
		return nil, err
	}
	if err := tb.Catalog.SaveTable(ctx, s, cut, gen); err != nil {
		return nil, err
	}
	return s, nil
}

func (tb *Service) setFamily(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.SetFamilyRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	s, err := tb.alter(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodSetFamily, Name: r.Table}, func(old *table.Schema) (*table.Schema, error) {
		if err := table.CheckWritable(old); err != nil {
			return nil, err
		}
		return old.Apply(r.Family)
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(schemaAnswer(s))
}

func (tb *Service) dropFamily(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	var s *table.Schema
	err := tb.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) (err error) {
		s, err = tb.alterNow(ctx, r.Names[0], func(old *table.Schema) (*table.Schema, error) {
			if err := table.CheckWritable(old); err != nil {
				return nil, err
			}
			return old.DropFamily(r.Names[1])
		})
		if err == nil {
			tb.Users.PruneGrants(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	tb.Log.Info("family dropped", "table", r.Names[0], "family", r.Names[1])
	return schemaAnswer(s), nil
}

func (tb *Service) listTables(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	names, err := tb.Catalog.Names(ctx)
	if err != nil {
		return nil, err
	}
	var schemas []*table.Schema
	for _, name := range names {
		s, _, err := tb.Catalog.Schema(ctx, name)
		if err != nil { // dropped meanwhile
			continue
		}
		if s, err = tb.visible(ctx, s); err != nil {
			return nil, err
		}
		if s != nil {
			schemas = append(schemas, s)
		}
	}
	return func(e *wire.Encoder) { api.AppendSchemas(e, schemas) }, nil
}

func (tb *Service) describeTable(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	s, err := tb.Catalog.SchemaOf(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	info := api.TableInfo{Schema: s}
	if info.Tablets, err = tb.Tablets.Describe(ctx, s); err != nil {
		return nil, err
	}
	if err := tb.hideSizes(ctx, &info); err != nil {
		return nil, err
	}
	return info.Append, nil
}

// visible returns a table as the subject of ctx may see it, or nil if it may not see the table.
func (tb *Service) visible(ctx context.Context, s *table.Schema) (*table.Schema, error) {
	caller := authz.SubjectIn(ctx)
	if caller == nil {
		return s, nil
	}
	v, _, err := tb.Authz.Rights.View(ctx, caller, s)
	if err != nil || v.CheckSeen() != nil {
		return nil, err
	}
	return v.Visible(), nil
}

// hideSizes removes from a table's description what the subject of ctx may not see: families without rights, and the sizes of
// tablets unless Authorizer.MaySeeSizes permits them.
func (tb *Service) hideSizes(ctx context.Context, info *api.TableInfo) error {
	caller := authz.SubjectIn(ctx)
	if caller == nil {
		return nil
	}
	var err error
	if info.Schema.ID == metadata.TableID {
		_, err = tb.Authz.Rights.Check(ctx, caller, acl.Read)
	} else {
		var v *acl.View
		if v, _, err = tb.Authz.Rights.View(ctx, caller, info.Schema); err != nil {
			return err
		}
		if v.CheckSeen() != nil { // rights have changed
			return namespace.NoSuchTable(info.Schema.Name)
		}
		info.Schema, err = v.Visible(), tb.Authz.MaySeeSizes(ctx, caller, v)
	}
	if errors.Is(err, api.ErrPermission) {
		info.SizesHidden = true
		for i := range info.Tablets {
			t := &info.Tablets[i]
			*t = api.TabletInfo{ID: t.ID, Node: t.Node, Start: t.Start, End: t.End}
		}
		return nil
	}
	return err
}

func (tb *Service) dropTable(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	return nil, tb.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return tb.drop(ctx, r.Names[0], r.Now) })
}

// drop removes a table, within a change. The table is gone once its schema is deleted or renamed. No server acts on it by its name from then on: see
// schemas (I15). Unless it is dropped for good now, it is kept for a while. One whose first tablets have not all been created is not kept.
// When it is dropped for good, the master removes the rows of its tablets.
func (tb *Service) drop(ctx context.Context, name string, now bool) error {
	if metadata.IsSystem(name) {
		return api.ErrSystemTable
	}
	s, cut, gen, err := namespace.ReadTable(ctx, tb.Catalog.Meta, name)
	if err != nil {
		return err
	}
	if err := s.CheckDrop(); err != nil {
		return err
	}
	created := true
	if !now {
		if created, err = tb.created(ctx, s, cut); err != nil {
			return err
		}
	}
	if now || !created {
		if err = tb.Catalog.Remove(ctx, namespace.TablePath(name), gen); err == nil {
			tb.forget(ctx, s.ID)
		}
	} else {
		err = tb.Catalog.Keep(ctx, s, gen, time.Now())
	}
	if err != nil {
		return err
	}
	tb.Log.Info("table dropped", "table", name)
	tb.NudgeMaster(ctx)
	return nil
}

func (tb *Service) compactTable(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	s, err := tb.Catalog.SchemaOf(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	return nil, tb.Tablets.CompactTable(ctx, s, r.Major)
}
