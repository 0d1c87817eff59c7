package authz

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// access returns what a user may do with a table in one request.
func (g *guardedServer) access(user, name string) *Access {
	return &Access{z: g.z, caller: userNamed(user), method: api.MethodRead, table: name}
}

// begin returns an access of an operation that may wait.
func begin(a *Access) tablet.Access {
	as := a.Of(true)
	as.Begin()
	return as
}

// withUsers adds a lock service with the table t of the families f and g, and users: ann writes and reads all of it, bob reads f,
// carl writes f, dave does both, eve has no right, and root administers the cluster.
func (g *guardedServer) withUsers(t *testing.T) *table.Schema {
	t.Helper()
	s := g.withTable(t)
	g.rights.Set(t, map[string]acl.Rights{"root": acl.Admin, "ann": 0, "bob": 0, "carl": 0, "dave": 0, "eve": 0})
	f := s.Families[0].ID
	g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: acl.Read | acl.Write}, acl.Grant{Principal: "bob", Family: f, Rights: acl.Read},
		acl.Grant{Principal: "carl", Family: f, Rights: acl.Write}, acl.Grant{Principal: "dave", Family: f, Rights: acl.Read | acl.Write})
	return s
}

// logged returns a file of the audit log, which ends with it.
func (g *guardedServer) logged(t *testing.T, file string) string {
	t.Helper()
	if err := g.z.Audit.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAccessReads: a user reads the families on which it has the right. A missing right is refused and recorded; a table without any
// right does not exist.
func TestAccessReads(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	all, onlyF := []uint64(nil), []uint64{1}
	for user, c := range map[string]struct {
		want  error
		sees  []uint64
		check error // of CheckTable
	}{
		"root": {nil, all, nil}, "ann": {nil, all, nil}, "bob": {nil, onlyF, nil}, "dave": {nil, onlyF, nil},
		"carl": {api.ErrPermission, nil, nil}, "eve": {api.ErrNoTable, nil, api.ErrNoTable}, "gone": {api.ErrUnauthenticated, nil, api.ErrUnauthenticated},
	} {
		a := g.access(user, "t")
		v, err := begin(a).Read(t.Context(), s)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || !slices.Equal(v.Families, c.sees) || v.Row != nil {
			t.Errorf("%s reads families %b: %v; want %b, %v", user, v.Families, err, c.sees, c.want)
		}
		if err := a.MayRead(t.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s may read: %v, want %v", user, err, c.want)
		}
		if err := a.CheckTable(t.Context()); !errors.Is(err, c.check) || (err == nil) != (c.check == nil) {
			t.Errorf("the table as %s sees it: %v, want %v", user, err, c.check)
		}
	}
	for what, err := range map[string]error{
		"read": g.access("root", "T").MayRead(t.Context()), "described": g.access("root", "T").CheckTable(t.Context()),
	} {
		if !errors.Is(err, api.ErrNoTable) {
			t.Errorf("a table that does not exist is %s: %v", what, err)
		}
	}
	if err := g.access("eve", metadata.Name).MayRead(t.Context()); err != nil {
		t.Errorf("METADATA by a user without rights: %v", err)
	}
	log := g.logged(t, "refusals.log")
	if !strings.Contains(log, `"name":"carl"`) || !strings.Contains(log, `"action":"read","on":"table t"`) || strings.Contains(log, `"name":"eve"`) {
		t.Errorf("refusals:\n%s", log)
	}
}

// TestAccessWrites: a user writes the families on which it has the right. A family without any right does not exist, and the deletion of
// a row deletes the families that the user sees.
func TestAccessWrites(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	set := func(family string) table.Mutation { return table.Set(family, []byte("q"), 1, []byte("v")) }
	for _, c := range []struct {
		user string
		m    []table.Mutation
		want error
		at   int
	}{
		{"ann", []table.Mutation{set("f"), set("g"), table.DeleteRow()}, nil, 0},
		{"dave", []table.Mutation{set("f")}, nil, 0},
		{"carl", []table.Mutation{set("f")}, nil, 0},
		{"bob", []table.Mutation{set("f")}, api.ErrPermission, 0},
		{"bob", []table.Mutation{table.DeleteRow()}, api.ErrPermission, 0},
		{"dave", []table.Mutation{set("f"), set("g")}, table.ErrNoFamily, 1},
		{"ann", []table.Mutation{set("f"), set("h")}, table.ErrNoFamily, 1},
		{"eve", []table.Mutation{set("f")}, api.ErrNoTable, -1},
	} {
		rm := &table.RowMutation{Row: []byte("r"), Mutations: c.m}
		got, err := begin(g.access(c.user, "t")).Write(s, rm)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && got != rm {
			t.Errorf("%s writes %v: %v, want %v", c.user, c.m, err, c.want)
		}
		var at *table.ElementError
		if err != nil && c.at >= 0 && (!errors.As(err, &at) || at.Index != c.at) {
			t.Errorf("%s writes %v: %v, want mutation %d", c.user, c.m, err, c.at)
		}
	}
	rm := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{set("f"), table.DeleteRow(), set("f")}}
	got, err := begin(g.access("dave", "t")).Write(s, rm)
	if err != nil || len(got.Mutations) != 2 || got.Mutations[0].Op != table.OpDeleteFamily || got.Mutations[0].Family != "f" || got.Mutations[1].Op != table.OpSet {
		t.Errorf("deletion of a row with a hidden family: %+v, %v", got, err)
	}
	for _, c := range []struct {
		user, family string
		want         error
	}{
		{"ann", "g", nil}, {"dave", "f", nil}, {"carl", "f", api.ErrPermission}, {"bob", "f", api.ErrPermission}, {"dave", "g", table.ErrNoFamily}, {"eve", "f", api.ErrNoTable},
	} {
		err := begin(g.access(c.user, "t")).Modify(s, []byte("r"), []table.Rule{{Op: table.RuleIncrement, Family: c.family, Qualifier: []byte("q"), Amount: 1}})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s increments in %s: %v, want %v", c.user, c.family, err, c.want)
		}
	}
	if log := g.logged(t, "refusals.log"); !strings.Contains(log, `"name":"bob"`) || !strings.Contains(log, `"name":"carl"`) || strings.Contains(log, `"name":"dave"`) {
		t.Errorf("refusals:\n%s", log)
	}
}

// TestAccessMustNotWait: an operation that must not wait uses only rights that another on the same connection has looked up, and that
// have not changed since.
func TestAccessMustNotWait(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	a := g.access("ann", "t")
	now := func() error {
		as := a.Of(false)
		as.Begin()
		_, err := as.Read(t.Context(), s)
		return err
	}
	if err := now(); !errors.Is(err, tablet.ErrWouldWait) {
		t.Errorf("rights that are unknown: %v", err)
	}
	if _, err := begin(a).Read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := now(); err != nil {
		t.Errorf("rights that are known: %v", err)
	}
	g.rights.SetTable(t, s.ID)
	if err := now(); !errors.Is(err, tablet.ErrWouldWait) {
		t.Errorf("rights that have changed: %v", err)
	}
}

// TestAccessRestarts: an operation restarts at most begunMax times because rights change.
func TestAccessRestarts(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	for _, schema := range []*table.Schema{s, metadata.Schema()} {
		as := g.access("ann", schema.Name).Of(true)
		for i := range begunMax + 1 {
			as.Begin()
			_, err := as.Read(t.Context(), schema)
			if (err == nil) != (i < begunMax) || err != nil && !errors.Is(err, api.ErrUnavailable) {
				t.Errorf("%s, time %d: %v", schema.Name, i+1, err)
			}
			g.rights.Put("/x", nil) // another epoch
			if err == nil && as.Holds() {
				t.Errorf("%s, time %d: the rights of another epoch hold", schema.Name, i+1)
			}
		}
	}
}

// TestAccessSettles (I12): a result is returned after a change of rights only if the rights that it needs are left, and otherwise the
// error reports whether something was written.
func TestAccessSettles(t *testing.T) {
	const read, write = 1, 2
	grant := func(rights acl.Rights) func(*testing.T, *guardedServer, uint64) {
		return func(t *testing.T, g *guardedServer, id uint64) {
			if rights == 0 {
				g.rights.SetTable(t, id)
				return
			}
			g.rights.SetTable(t, id, acl.Grant{Principal: "ann", Rights: rights})
		}
	}
	gone := func(t *testing.T, g *guardedServer, _ uint64) { g.rights.Set(t, nil) }
	down := func(_ *testing.T, g *guardedServer, _ uint64) { g.rights.Stop() }
	same := func(*testing.T, *guardedServer, uint64) {}
	g := newGuardedServer(t)
	s := g.withUsers(t)
	for name, c := range map[string]struct {
		did      int
		change   func(*testing.T, *guardedServer, uint64)
		want     error
		executed bool
	}{
		"nothing has changed":          {read | write, same, nil, false},
		"read, all kept":               {read, grant(acl.Read | acl.Write), nil, false},
		"read, reads only":             {read, grant(acl.Read), nil, false},
		"read, writes only":            {read, grant(acl.Write), api.ErrPermission, false},
		"read, nothing left":           {read, grant(0), api.ErrPermission, false},
		"written, all kept":            {write, grant(acl.Read | acl.Write), nil, false},
		"written, writes only":         {write, grant(acl.Write), nil, false},
		"written, reads only":          {write, grant(acl.Read), api.ErrPermission, true},
		"read and written, reads only": {read | write, grant(acl.Read), api.ErrPermission, true},
		"read and written, writes":     {read | write, grant(acl.Write), api.ErrPermission, true},
		"read, user gone":              {read, gone, api.ErrUnauthenticated, false},
		"written, user gone":           {write, gone, api.ErrPermission, true},
		"read, rights unknown":         {read, down, api.ErrUnavailable, false},
		"written, rights unknown":      {write, down, api.ErrOutcomeUnknown, false},
	} {
		g.rights.Set(t, map[string]acl.Rights{"ann": 0})
		grant(acl.Read|acl.Write)(t, g, s.ID)
		a := g.access("ann", "t")
		as := begin(a)
		if c.did&write != 0 {
			if _, err := as.Write(s, &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.DeleteRow()}}); err != nil {
				t.Fatal(err)
			}
		}
		if c.did&read != 0 {
			if _, err := as.Read(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		c.change(t, g, s.ID)
		err := a.Settle(t.Context())
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		var denied *api.PermissionError
		if executed := errors.As(err, &denied) && denied.Executed; executed != c.executed {
			t.Errorf("%s: executed is %v", name, executed)
		}
	}
}

// TestAccessSettlesByFamily: the loss of a right on a family matters only to an operation that used it.
func TestAccessSettlesByFamily(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	for _, c := range []struct {
		families string // one letter each
		lost     bool
	}{{"f", false}, {"ff", false}, {"g", true}, {"fg", true}, {"gf", true}} {
		g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: acl.Write})
		a, rm := g.access("ann", "t"), &table.RowMutation{Row: []byte("r")}
		for _, family := range strings.Split(c.families, "") {
			rm.Mutations = append(rm.Mutations, table.Set(family, []byte("q"), 1, nil))
		}
		if _, err := begin(a).Write(s, rm); err != nil {
			t.Fatal(err)
		}
		g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Family: s.Families[0].ID, Rights: acl.Write})
		if err := a.Settle(t.Context()); errors.Is(err, api.ErrPermission) != c.lost {
			t.Errorf("a write into %s, with the right on f left: %v", c.families, err)
		}
	}
}

// TestAccessMovesOnce (I12): the rights of an operation that has seen two epochs do not hold, whatever those of the second are.
func TestAccessMovesOnce(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	as := begin(g.access("ann", "t"))
	for range 2 {
		if _, err := as.Read(t.Context(), s); err != nil || !as.Holds() {
			t.Fatalf("rights of one epoch: %v, hold %v", err, as.Holds())
		}
	}
	g.rights.Put("/x", nil)
	if _, err := as.Read(t.Context(), s); err != nil || as.Holds() {
		t.Errorf("rights of two epochs: %v, hold %v", err, as.Holds())
	}
}

// TestAccessToMetadata: without the right to read the cluster a user sees the locations of tablets of the tables on which it has a
// right, and of METADATA itself.
func TestAccessToMetadata(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withUsers(t)
	meta := metadata.Schema()
	if v, err := begin(g.access("root", metadata.Name)).Read(t.Context(), meta); err != nil || v.Families != nil || v.Row != nil {
		t.Errorf("an administrator sees %+v, %v", v, err)
	}
	if _, err := begin(g.access("gone", metadata.Name)).Read(t.Context(), meta); !errors.Is(err, api.ErrUnauthenticated) {
		t.Errorf("a user that does not exist: %v", err)
	}
	for user, sees := range map[string]bool{"ann": true, "bob": true, "eve": false} {
		a := g.access(user, metadata.Name)
		v, err := begin(a).Read(t.Context(), meta)
		if err != nil {
			t.Fatal(err)
		}
		for i := range meta.Families {
			if got := acl.Mask(v.Families).Has(i); got != (meta.Families[i].Name == metadata.LocationFamily) {
				t.Errorf("%s sees family %s: %v", user, meta.Families[i].Name, got)
			}
		}
		for range 2 { // the second time from memory
			for key, want := range map[string]bool{
				string(metadata.Key(nil, s.ID, nil)): sees, string(metadata.Key(nil, s.ID, []byte("m"))): sees, string(metadata.Key(nil, s.ID+1, nil)): false,
				string(metadata.Key(nil, metadata.TableID, nil)): true, "": false,
			} {
				if got, err := v.Row([]byte(key)); err != nil || got != want {
					t.Errorf("%s sees row %q: %v, %v", user, key, got, err)
				}
			}
		}
		g.rights.Put("/x", nil)
		if err := a.Settle(t.Context()); !errors.Is(err, api.ErrUnavailable) {
			t.Errorf("a read of METADATA after a change of rights: %v", err)
		}
	}
	v, err := begin(g.access("ann", metadata.Name)).Read(t.Context(), meta)
	if err != nil {
		t.Fatal(err)
	}
	g.rights.Stop()
	if _, err := v.Row(metadata.Key(nil, s.ID, nil)); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a row while rights are unknown: %v", err)
	}
}

// TestAccessOfCall: calls of users are restricted, and those of nodes and of clients of an open node are not.
func TestAccessOfCall(t *testing.T) {
	z := &Authorizer{}
	var got *Access
	s := authztest.Serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){api.MethodRead: func(c *rpc.Call) {
		got = z.Access(c, "t", "")
		c.Reply(nil)
	}})
	for _, c := range []struct {
		identity   any
		restricted bool
	}{{nil, false}, {nodeNamed("n2"), false}, {userNamed("ann"), true}, {&Subject{}, true}} {
		if err := s.Call(t, c.identity, api.MethodRead, authztest.Values()); err != nil {
			t.Fatal(err)
		}
		if (got != nil) != c.restricted {
			t.Errorf("%+v has access %+v", c.identity, got)
		}
		if got != nil && (got.z != z || got.caller != c.identity || got.method != api.MethodRead || got.table != "t") {
			t.Errorf("the access of %+v is %+v", c.identity, got)
		}
		if as := got.Of(true); (as != nil) != c.restricted {
			t.Errorf("%+v has the tablet server check %v", c.identity, as)
		}
		got.Release()
	}
	var none *Access
	if err := none.Settle(t.Context()); err != nil {
		t.Errorf("without restrictions: %v", err)
	}
}

// look returns the work that rights cost one read: a lookup, and another before the answer.
func look(t testing.TB) func() error {
	t.Helper()
	rights := &authztest.Rights{}
	rights.Set(t, map[string]acl.Rights{"ann": 0})
	s := newSchema(t)
	rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Family: s.Families[0].ID, Rights: acl.Read})
	limits := table.DefaultLimits()
	led := func() error { return nil }
	z := &Authorizer{Limits: &limits, Meta: &namespace.Access{}, Rights: &Rights{Cache: acl.NewCache(rights), CheckLeader: led}, CheckLeader: led}
	caller, ctx := userNamed("ann"), t.Context()
	return func() error {
		a := accesses.Get().(*Access)
		a.z, a.caller, a.table = z, caller, s.Name
		as := begin(a)
		_, err := as.Read(ctx, s)
		if err == nil && !as.Holds() {
			err = errors.New("rights have changed")
		}
		a.Release()
		return err
	}
}

// TestRightsCostLittle: known rights are looked up without an allocation.
func TestRightsCostLittle(t *testing.T) {
	look := look(t)
	if err := look(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200_000, func() { _ = look() }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRights is what rights cost a read.
func BenchmarkRights(b *testing.B) {
	look := look(b)
	var once sync.Once
	b.ReportAllocs()
	for b.Loop() {
		if err := look(); err != nil {
			once.Do(func() { b.Error(err) })
		}
	}
}
