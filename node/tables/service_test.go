package tables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/metarows/metarowstest"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/schemabundles"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/node/users"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// master is the service on the master's node, and its port. The test's master serves each table as soon as it is nudged.
type master struct {
	*changestest.Node
	*Service
	port    *authztest.Server
	rows    *metarowstest.Rows
	files   *hookedFiles
	t       *testing.T
	idle    atomic.Bool // nudges do nothing
	nudged  atomic.Int64
	compact atomic.Int64 // compactions that the tablet server got
}

// hookedFiles is files of a lock service whose writes a test may see, and have fail.
type hookedFiles struct {
	namespace.Files
	mu   sync.Mutex
	hook func(path string) error
	list func(dir string)
}

func (f *hookedFiles) onList(hook func(dir string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = hook
}

// List implements namespace.Files.
func (f *hookedFiles) List(ctx context.Context, dir string) ([]metaapi.Stat, error) {
	all, err := f.Files.List(ctx, dir)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list != nil {
		f.list(dir)
	}
	return all, err
}

func (f *hookedFiles) on(hook func(path string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *hookedFiles) call(path string) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(path)
}

// SetGuarded implements namespace.Files.
func (f *hookedFiles) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	if err := f.call(path); err != nil {
		return 0, err
	}
	return f.Files.SetGuarded(ctx, path, data, gen, o)
}

// newMaster returns the service of a node of a new cluster, with or without certificates.
func newMaster(t *testing.T, open bool) *master {
	t.Helper()
	m := &master{rows: metarowstest.New(t), t: t}
	if open {
		m.Node = changestest.NewOpen(t)
	} else {
		m.Node = changestest.New(t)
	}
	m.files = &hookedFiles{Files: m.Node.Meta}
	catalog := &namespace.Catalog{Meta: m.files}
	id := func() string { return changestest.ID }
	accounts := users.New(users.Config{Log: m.Node.Log, Catalog: catalog, Meta: m.Node.Meta, Authz: m.Node.Authz, Changes: m.Node.Changes})
	owners := quotas.New(quotas.Config{Ctx: m.Node.Ctx, Log: m.Node.Log, Catalog: catalog, Meta: m.Node.Meta, Authz: m.Node.Authz, Changes: m.Node.Changes})
	rows := metarows.NewTable(m.files, func() metaapi.SetOptions { return metaapi.SetOptions{} }, m.rows.Table())
	server := authztest.Serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){tabletadmin.MethodDescribe: m.describe, tabletadmin.MethodCompact: m.compactHere})
	set := &peers.Set{
		Resolve: func(string) (string, bool) { return "", true },
		Dial:    func(ctx context.Context, _ string) (*rpc.Conn, error) { return server.Dial(ctx, nil) },
	}
	t.Cleanup(set.Close)
	admin := tabletadmin.New(tabletadmin.Config{Log: m.Node.Log, ID: id, Limits: m.Node.Limits, Authz: m.Node.Authz, Catalog: catalog, Peers: set, Rows: func() *metarows.Table { return rows }})
	m.Service = New(Config{
		Ctx: m.Node.Ctx, Background: m.Node.Background, Log: m.Node.Log, ID: id, Limits: m.Node.Limits, Authz: m.Node.Authz, Catalog: catalog, Meta: m.Node.Meta,
		Changes: m.Node.Changes, Users: accounts, Quotas: owners, Tablets: admin, MasterEpoch: m.Epoch, NudgeMaster: m.nudge,
	})
	m.port = m.Serve(m.Register)
	return m
}

// nudge creates the rows of new tables' tablets, on the tablet server of this node.
func (m *master) nudge(ctx context.Context) {
	m.nudged.Add(1)
	if m.idle.Load() {
		return
	}
	names, err := m.Node.Catalog.Names(ctx)
	if err != nil {
		return
	}
	for _, name := range names {
		s, cut, _, err := namespace.ReadTable(ctx, m.Node.Meta, name)
		if err != nil {
			continue
		}
		for _, x := range tabletsOf(s, cut) {
			r := metarowstest.Row(x.ID, s.ID, string(x.Start), string(x.End))
			r.Server = namespace.ServerName(changestest.ID, 1)
			for _, mutation := range metadata.Create(r, "").Else {
				if mutation.Op == table.OpSet {
					m.rows.Plant(r.Key(), mutation.Family, string(mutation.Qualifier), mutation.Value)
				}
			}
		}
	}
}

// tabletsOf returns the tablets of a new table.
func tabletsOf(s *table.Schema, cut *namespace.SplitPoints) (all []api.TabletInfo) {
	start, first := []byte(nil), s.ID+1
	if cut != nil {
		first = cut.First
		for i, end := range cut.Ends {
			all = append(all, api.TabletInfo{ID: cut.First + uint64(i), Node: "one", Start: start, End: end})
			start = end
		}
	}
	return append(all, api.TabletInfo{ID: first + uint64(len(all)), Node: "one", Start: start})
}

// describe answers for the tablet server, whose tablets have some bytes each.
func (m *master) describe(c *rpc.Call) {
	name := c.Params.Str()
	s, cut, _, err := namespace.ReadTable(c.Context(), m.Node.Meta, name)
	if name == metadata.Name {
		s, err = metadata.Schema(), nil
	}
	if err != nil {
		c.Fail(api.ToRPC(err))
		return
	}
	info := api.TableInfo{Schema: s, Tablets: tabletsOf(s, cut)}
	for i := range info.Tablets {
		info.Tablets[i].MemtableBytes = 77
	}
	c.Reply(info.Append)
}

func (m *master) compactHere(c *rpc.Call) {
	m.compact.Add(1)
	c.Reply(nil)
}

// create makes a request to create a table of the families f and g.
func (m *master) create(as *authz.Subject, name string, splits ...string) (*table.Schema, error) {
	m.t.Helper()
	r := &api.CreateTableRequest{Name: name, Families: []table.FamilySpec{{Name: "f"}, {Name: "g"}}}
	for _, row := range splits {
		r.SplitAt = append(r.SplitAt, []byte(row))
	}
	var s *table.Schema
	err := m.port.Ask(m.t, identity(as), api.MethodCreateTable, r.Append, func(d *wire.Decoder) (err error) {
		s, err = table.DecodeSchema(d, nil)
		return err
	})
	return s, err
}

func identity(as *authz.Subject) any {
	if as == nil {
		return nil
	}
	return as
}

// addUser adds a user with rights on the cluster.
func (m *master) addUser(name string, rights acl.Rights) *authz.Subject {
	m.t.Helper()
	m.Put(acl.PrincipalFile(name), (&acl.Principal{Name: name, Created: time.Now()}).Encode())
	if rights != 0 {
		m.grant(acl.Cluster, name, 0, rights)
	}
	m.Put(acl.EpochFile, []byte(name))
	return changestest.User(name, 0)
}

// grant adds a grant.
func (m *master) grant(tableID uint64, name string, family uint32, rights acl.Rights) {
	m.t.Helper()
	p := m.policy(tableID)
	p, err := p.Grant(acl.Grant{Principal: name, Family: family, Rights: rights})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Put(acl.PolicyFile(tableID), p.Encode())
	m.Put(acl.EpochFile, []byte(name))
}

// policy returns the grants on a table.
func (m *master) policy(tableID uint64) *acl.Policy {
	m.t.Helper()
	f, err := m.Node.Meta.Get(m.t.Context(), acl.PolicyFile(tableID))
	if errors.Is(err, metaapi.ErrNotFound) {
		return &acl.Policy{Table: tableID}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	p, err := acl.DecodePolicy(f.Data)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// left returns the files about a table that exist.
func (m *master) left(tableID uint64) (files []string) {
	m.t.Helper()
	for _, file := range []string{acl.TableFile(tableID), quota.OwnerFile(tableID), quota.TableFile(tableID)} {
		if m.Generation(file) != 0 {
			files = append(files, file)
		}
	}
	return files
}

// TestCreate (T1): the creator's grant and ownership are there when the table appears, and the table is served when its creation is
// answered.
func TestCreate(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	var early []string
	m.files.on(func(path string) error {
		if path == namespace.TablePath("t") {
			early = append(m.left(metadata.FirstID), fmt.Sprint(m.policy(metadata.FirstID).Rights("ann").Has(acl.Admin)))
		}
		return nil
	})
	s, err := m.create(ann, "t", "m", "c")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{acl.TableFile(s.ID), quota.OwnerFile(s.ID), "true"}; s.ID != metadata.FirstID || !slices.Equal(early, want) {
		t.Errorf("before table %d there were %q, want %q", s.ID, early, want)
	}
	if n := len(m.rows.Keys()); n != 3 || m.nudged.Load() == 0 {
		t.Errorf("%d tablets, %d nudges", n, m.nudged.Load())
	}
	got, cut, _, err := namespace.ReadTable(t.Context(), m.Node.Meta, "t")
	if err != nil || got.ID != s.ID || cut == nil || cut.First != s.ID+1 || len(cut.Ends) != 2 || string(cut.Ends[0]) != "c" {
		t.Errorf("the table is %+v with split points %+v, %v", got, cut, err)
	}
	m.files.on(nil)
	next, err := m.create(changestest.AsNode(), "u")
	if err != nil || next.ID != s.ID+4 || len(m.left(next.ID)) != 0 {
		t.Errorf("a table of a node: %+v with %q, %v; the ids of tablets are not to be issued again", next, m.left(next.ID), err)
	}
}

// TestRejectedCreation: a creation that is rejected issues no ids and leaves nothing.
func TestRejectedCreation(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann, bob := m.addUser("ann", acl.Admin), m.addUser("bob", acl.Read|acl.Write)
	if _, err := m.create(ann, "t"); err != nil {
		t.Fatal(err)
	}
	ids := m.Generation(namespace.IDsPath)
	for what, c := range map[string]struct {
		as    *authz.Subject
		name  string
		split []string
		want  error
	}{
		"a name that is taken": {ann, "t", nil, api.CodeTableExists}, "METADATA": {ann, metadata.Name, nil, api.CodeTableExists},
		"a bad name": {ann, "a/b", nil, api.CodeBadName}, "no name": {ann, "", nil, api.CodeBadName}, "no right": {bob, "u", nil, rpc.CodePermissionDenied},
		"an unknown user": {changestest.User("eve", 0), "u", nil, rpc.CodeUnauthenticated}, "a row twice": {ann, "u", []string{"a", "a"}, api.CodeBadSplit},
		"an empty row": {ann, "u", []string{""}, api.CodeBadRowKey},
	} {
		if _, err := m.create(c.as, c.name, c.split...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if names, err := m.Node.Catalog.Names(t.Context()); err != nil || !slices.Equal(names, []string{"t"}) || m.Generation(namespace.IDsPath) != ids {
		t.Errorf("tables %q, %v; ids were issued: %v", names, err, m.Generation(namespace.IDsPath) != ids)
	}
}

// TestFailedCreation (T1): a creation that certainly failed removes the grant and the ownership that it has written. If it is unknown whether
// the table exists, they stay until a master has found that it does not.
func TestFailedCreation(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	id, prepared := metadata.FirstID, []string(nil)
	failing := func(errs ...error) func(path string) error {
		return func(path string) error {
			if path != namespace.TablePath("t") {
				return nil
			}
			prepared = m.left(id)
			err := errs[0]
			if len(errs) > 1 {
				errs = errs[1:]
			}
			return err
		}
	}
	m.files.on(failing(metaapi.ErrDiskFull))
	if _, err := m.create(ann, "t"); !errors.Is(err, api.CodeDiskFull) || len(prepared) != 2 || len(m.left(id)) != 0 {
		t.Errorf("a full disk: %v; there were %q, left are %q", err, prepared, m.left(id))
	}
	for _, exists := range []bool{false, true} {
		id += 2
		m.files.on(failing(metaapi.ErrOutcomeUnknown, metaapi.ErrClosed))
		if _, err := m.create(ann, "t"); !errors.Is(err, api.CodeOutcomeUnknown) || len(m.left(id)) != 2 {
			t.Errorf("an unknown outcome: %v; left are %q", err, m.left(id))
		}
		m.files.on(nil)
		if exists { // the write arrives later
			if err := m.Node.Catalog.SaveTable(t.Context(), table.NewSchema("t", id), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.RemoveOrphansNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(m.left(id)); (got == 2) != exists || !exists && got != 0 {
			t.Errorf("the next master leaves %q of a table that exists: %v", m.left(id), exists)
		}
	}
}

// TestOrphans (T1): files of tables that do not exist are removed, those of others stay, and a file that is no table's ends the search
// without a removal.
func TestOrphans(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	s, err := m.create(ann, "t")
	if err != nil {
		t.Fatal(err)
	}
	m.Put(quota.TableFile(s.ID), []byte("q"))
	const gone = 5000
	orphans := func() {
		for _, file := range []string{acl.TableFile(gone), quota.OwnerFile(gone + 1), quota.TableFile(gone + 1)} {
			m.Put(file, []byte("x"))
		}
	}
	orphans()
	m.Put(quota.TablesDir+"/x", []byte("x"))
	if err := m.RemoveOrphansNow(t.Context()); err == nil || len(m.left(gone)) != 1 {
		t.Errorf("with a file that is no table's: %v, left are %q", err, m.left(gone))
	}
	if err := m.Node.Meta.Delete(t.Context(), quota.TablesDir+"/x", metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.Service.Ctx)
	var epoch atomic.Uint64
	cfg := m.Service.Config
	cfg.Ctx, cfg.MasterEpoch = ctx, epoch.Load
	loop := New(cfg)
	var running sync.WaitGroup
	running.Go(loop.RemoveOrphans)
	defer func() {
		cancel()
		running.Wait()
	}()
	for _, now := range []uint64{3, 4} { // once in each mastership
		orphans()
		epoch.Store(now)
		for loop.Swept() != now && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if a, b := m.left(gone), m.left(gone+1); len(a) != 0 || len(b) != 0 {
			t.Errorf("mastership %d: left are %q and %q", now, a, b)
		}
	}
	if left := m.left(s.ID); len(left) != 3 {
		t.Errorf("of a table that exists: %q", left)
	}
}

// TestOrphansOfCreation (T1): the files of a table that is being created while orphans are searched stay.
func TestOrphansOfCreation(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	const id = 6000
	release := m.Hold() // as a creation does
	m.Put(acl.TableFile(id), (&acl.Policy{Table: id}).Encode())
	listed, removed := make(chan struct{}), make(chan error, 1)
	m.files.onList(func(dir string) {
		if dir == quota.TablesDir {
			close(listed)
		}
	})
	go func() { removed <- m.RemoveOrphansNow(t.Context()) }()
	<-listed
	if err := m.Node.Catalog.SaveTable(t.Context(), table.NewSchema("t", id), nil, 0); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-removed; err != nil || len(m.left(id)) != 1 {
		t.Errorf("left are %q, %v", m.left(id), err)
	}
}

// TestDropNow: a table that is dropped for good is gone, with its grants and quota, and the master is nudged to remove its rows.
func TestDropNow(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann, bob := m.addUser("ann", acl.Admin), m.addUser("bob", acl.Read|acl.Write)
	s, err := m.create(ann, "t")
	if err != nil {
		t.Fatal(err)
	}
	m.Put(quota.TableFile(s.ID), []byte("q"))
	drop := func(as *authz.Subject, name string) error {
		return m.port.Call(t, as, api.MethodDropTable, authztest.Values(name, map[string]any{"now": true}))
	}
	if err := drop(bob, "t"); !errors.Is(err, rpc.CodePermissionDenied) || len(m.left(s.ID)) != 3 {
		t.Errorf("without the right: %v", err)
	}
	if err := drop(ann, metadata.Name); !errors.Is(err, api.CodeSystemTable) {
		t.Errorf("METADATA: %v", err)
	}
	before := m.nudged.Load()
	if err := drop(ann, "t"); err != nil || len(m.left(s.ID)) != 0 || m.nudged.Load() == before {
		t.Errorf("dropped: %v, left are %q, %d nudges", err, m.left(s.ID), m.nudged.Load()-before)
	}
	if err := drop(ann, "t"); !errors.Is(err, api.CodeTableNotFound) {
		t.Errorf("dropped twice: %v", err)
	}
	if again, err := m.create(ann, "t"); err != nil || again.ID <= s.ID+1 {
		t.Errorf("another table of the name: %+v, %v", again, err)
	}
}

// TestAlter: families are set and dropped by administrators of the table. The split points of a table whose tablets are not all there stay
// with the schema, and the grants on a dropped family go with it.
func TestAlter(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann, bob := m.addUser("ann", acl.Admin), m.addUser("bob", 0)
	s, err := m.create(ann, "t", "m")
	if err != nil {
		t.Fatal(err)
	}
	dropped := s.Family("f").ID
	m.grant(s.ID, "bob", dropped, acl.Read)
	set := func(as *authz.Subject, name, family string) error {
		return m.port.Call(t, as, api.MethodSetFamily, (&api.SetFamilyRequest{Table: name, Family: table.FamilySpec{Name: family}}).Append)
	}
	dropFamily := func(name, family string) error {
		return m.port.Call(t, ann, api.MethodDropFamily, authztest.Values(name, family))
	}
	for what, c := range map[string]struct{ err, want error }{
		"without the right": {set(bob, "t", "h"), rpc.CodePermissionDenied}, "no table": {set(ann, "x", "h"), api.CodeTableNotFound},
		"METADATA": {set(ann, metadata.Name, "h"), api.CodeSystemTable}, "of METADATA": {dropFamily(metadata.Name, "loc"), api.CodeSystemTable},
		"a bad name": {set(ann, "t", "a/b c"), api.CodeBadName}, "no family": {dropFamily("t", "x"), api.CodeFamilyNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if err := errors.Join(set(ann, "t", "h"), dropFamily("t", "f")); err != nil {
		t.Fatal(err)
	}
	now, cut, _, err := namespace.ReadTable(t.Context(), m.Node.Meta, "t")
	if err != nil || now.ID != s.ID || now.Family("h") == nil || now.Family("f") != nil || cut == nil || len(cut.Ends) != 1 {
		t.Errorf("the table is %+v with split points %+v, %v", now, cut, err)
	}
	if p := m.policy(s.ID); len(p.Grants) != 1 || p.Grants[0].Principal != "ann" {
		t.Errorf("grants: %+v", p.Grants)
	}
	if err := set(ann, "t", "f"); err != nil {
		t.Fatal(err)
	}
	if now, _, err = m.Node.Catalog.Schema(t.Context(), "t"); err != nil || now.Family("f").ID == dropped {
		t.Errorf("another family has the id of a dropped one: %+v, %v", now, err)
	}
}

// TestAlterTable: a list of changes is made at once or not at all, by administrators of the table. A protected table is not dropped.
func TestAlterTable(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann, bob := m.addUser("ann", acl.Admin), m.addUser("bob", 0)
	s, err := m.create(ann, "t")
	if err != nil {
		t.Fatal(err)
	}
	m.grant(s.ID, "bob", s.Family("f").ID, acl.Read)
	alter := func(as *authz.Subject, name string, changes ...table.Change) error {
		return m.port.Call(t, as, api.MethodAlterTable, (&api.AlterTableRequest{Table: name, Changes: changes}).Append)
	}
	drop := func() error { return m.port.Call(t, ann, api.MethodDropTable, authztest.Values("t")) }
	family := func(op table.ChangeOp, name string) table.Change {
		return table.Change{Op: op, Family: table.FamilySpec{Name: name}}
	}
	protect := table.Change{Op: table.ChangeProtect, Protect: true}
	for what, c := range map[string]struct{ err, want error }{
		"without the right": {alter(bob, "t", protect), rpc.CodePermissionDenied}, "no table": {alter(ann, "x", protect), api.CodeTableNotFound},
		"METADATA":    {alter(ann, metadata.Name, protect), api.CodeSystemTable},
		"no family":   {alter(ann, "t", family(table.ChangeAdd, "h"), family(table.ChangeDrop, "x")), api.CodeFamilyNotFound},
		"it is there": {alter(ann, "t", family(table.ChangeAdd, "h"), family(table.ChangeAdd, "f")), api.CodeBadSchema},
		"protected":   {alter(ann, "t", protect, family(table.ChangeDrop, "f")), api.CodeTableProtected},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if now, _, err := m.Node.Catalog.Schema(t.Context(), "t"); err != nil || now.Family("h") != nil || now.Protected {
		t.Errorf("a change that failed has changed the table: %+v, %v", now, err)
	}
	if err := alter(ann, "t", family(table.ChangeAdd, "h"), family(table.ChangeDrop, "f"), protect); err != nil {
		t.Fatal(err)
	}
	if p := m.policy(s.ID); len(p.Grants) != 1 || p.Grants[0].Principal != "ann" {
		t.Errorf("grants: %+v", p.Grants)
	}
	if err := drop(); !errors.Is(err, api.CodeTableProtected) {
		t.Errorf("a protected table is dropped: %v", err)
	}
	if err := errors.Join(alter(ann, "t", table.Change{Op: table.ChangeProtect}), drop()); err != nil {
		t.Error(err)
	}
}

// TestSeenByRights: a user sees the tables and families on which it has a right, and the sizes of tablets only as an administrator of
// the table.
func TestSeenByRights(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	root := m.addUser("root", acl.Admin)
	ids := map[string]uint64{}
	for _, name := range []string{"t", "u"} {
		s, err := m.create(root, name)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = s.ID
	}
	s, _, err := m.Node.Catalog.Schema(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	owner, reader, part, none, all := m.addUser("owner", 0), m.addUser("reader", 0), m.addUser("part", 0), m.addUser("none", 0), m.addUser("all", acl.Read)
	m.grant(ids["t"], "owner", 0, acl.Admin)
	m.grant(ids["t"], "reader", 0, acl.Read)
	m.grant(ids["t"], "part", s.Family("g").ID, acl.Write)
	if _, err := m.Service.Tablets.Rows().SetRoot(t.Context(), rootRow(), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		as      *authz.Subject
		lists   string // tables with their families
		sees    string // families of t; empty: no table
		sizes   bool   // of t
		ofMeta  bool   // sizes of METADATA
		unknown bool
	}{
		{root, "t f g, u f g", "f g", true, true, false},
		{owner, "t f g", "f g", true, false, false},
		{reader, "t f g", "f g", false, false, false},
		{part, "t g", "g", false, false, false},
		{all, "t f g, u f g", "f g", true, true, false},
		{none, "", "", false, false, false},
		{changestest.AsNode(), "t f g, u f g", "f g", true, true, false},
		{changestest.User("eve", 0), "", "", false, false, true},
	} {
		name, _, _ := c.as.Principal()
		var schemas []*table.Schema
		err := m.port.Ask(t, c.as, api.MethodListTables, authztest.Values(), func(d *wire.Decoder) (err error) {
			schemas, err = api.DecodeSchemas(d)
			return err
		})
		if got := families(schemas...); got != c.lists || (err != nil) != c.unknown {
			t.Errorf("%s lists %q, %v; want %q", name, got, err, c.lists)
		}
		info, err := m.describeAs(c.as, "t")
		switch {
		case c.unknown:
			if !errors.Is(err, rpc.CodeUnauthenticated) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case c.sees == "":
			if !errors.Is(err, api.CodeTableNotFound) {
				t.Errorf("%s sees %+v, %v", name, info, err)
			}
		case err != nil || families(info.Schema) != "t "+c.sees || len(info.Tablets) != 1 || info.SizesHidden == c.sizes || (info.Tablets[0].MemtableBytes == 77) != c.sizes:
			t.Errorf("%s sees %+v, %v; want %s, sizes %v", name, info, err, c.sees, c.sizes)
		}
		if info, err = m.describeAs(c.as, metadata.Name); err != nil || info.SizesHidden == c.ofMeta || (info.Tablets[0].MemtableBytes == 77) != c.ofMeta {
			t.Errorf("%s sees of METADATA %+v, %v; want sizes %v", name, info, err, c.ofMeta)
		}
	}
}

func rootRow() []byte {
	describe := tablet.EncodeMeta(&tablet.Meta{ID: metadata.RootTabletID, Table: metadata.TableID, End: metadata.RootEnd()})
	return metadata.EncodeRoot(&metadata.Row{Meta: describe, Server: namespace.ServerName(changestest.ID, 1)})
}

func (m *master) describeAs(as *authz.Subject, name string) (info api.TableInfo, err error) {
	m.t.Helper()
	err = m.port.Ask(m.t, identity(as), api.MethodDescribeTable, authztest.Values(name), info.Decode)
	return info, err
}

// families returns tables with their families.
func families(schemas ...*table.Schema) string {
	var all []string
	for _, s := range schemas {
		line := s.Name
		for _, f := range s.Families {
			line += " " + f.Name
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

// TestRightsMoveMeanwhile: a description for which the rights were lost while it was made has nothing of the table.
func TestRightsMoveMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	s, err := m.create(m.addUser("ann", acl.Admin), "t")
	if err != nil {
		t.Fatal(err)
	}
	bob := m.addUser("bob", 0)
	info := api.TableInfo{Schema: s, Tablets: tabletsOf(s, nil)}
	if err := m.hideSizes(authz.WithSubject(t.Context(), bob), &info); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a user without rights: %v", err)
	}
}

// TestCompact: a compaction goes to the servers of the table's tablets.
func TestCompact(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	ann := m.addUser("ann", acl.Admin)
	if _, err := m.create(ann, "t"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"t": nil, "x": api.CodeTableNotFound} {
		if err := m.port.Call(t, ann, api.MethodCompactTable, authztest.Values(name)); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("table %s: %v", name, err)
		}
	}
	if n := m.compact.Load(); n != 1 {
		t.Errorf("%d compactions", n)
	}
}

// TestNotServedInTime: a creation is answered although the table is not served yet when its caller's time is nearly up, and other changes
// do not wait for that. The master is nudged until the table is served, or dropped.
func TestNotServedInTime(t *testing.T) {
	t.Parallel()
	m := newMaster(t, false)
	m.idle.Store(true)
	ann := m.addUser("ann", acl.Admin)
	conn, err := m.port.Dial(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := conn.Call(ctx, api.MethodCreateTable, (&api.CreateTableRequest{Name: "t", Families: []table.FamilySpec{{Name: "f"}}}).Append, nil); err != nil {
		t.Errorf("a creation: %v", err)
	}
	s, _, err := m.Node.Catalog.Schema(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	served := m.AwaitServed(s, 1)
	select {
	case <-served:
		t.Error("a table without tablets is served")
	default:
	}
	if err := m.port.Call(t, ann, api.MethodDropTable, authztest.Values("t")); err != nil {
		t.Error(err)
	}
	<-served // it was dropped
}

// TestAwaitTable: the wait for a new table leaves a second of the caller's time for the answer, or a quarter of less.
func TestAwaitTable(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{time.Minute: 59 * time.Second, 2 * time.Second: 1500 * time.Millisecond, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			began := time.Now()
			AwaitTable(ctx, nil)
			if took := time.Since(began); took != want {
				t.Errorf("of %v it waits for %v, want %v", left, took, want)
			}
		})
	}
	served := make(chan struct{})
	close(served)
	AwaitTable(t.Context(), served)
}

// TestOpenNode: a table of an open cluster has no grants and no owner, and all clients see everything.
func TestOpenNode(t *testing.T) {
	t.Parallel()
	m := newMaster(t, true)
	s, err := m.create(nil, "t")
	if err != nil || len(m.left(s.ID)) != 0 {
		t.Fatalf("created: %v", err)
	}
	if info, err := m.describeAs(nil, "t"); err != nil || info.SizesHidden || families(info.Schema) != "t f g" {
		t.Errorf("described as %+v, %v", info, err)
	}
	bundles := schemabundles.File(5000) // they are also in open clusters
	m.Put(bundles, []byte("x"))
	if err := m.RemoveOrphansNow(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := m.Node.Meta.Get(t.Context(), bundles); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("bundles of no table: %v", err)
	}
	if err := m.port.Call(t, nil, api.MethodDropTable, authztest.Values("t")); err != nil {
		t.Error(err)
	}
}
