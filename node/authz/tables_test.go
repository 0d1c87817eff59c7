package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// openMeta returns access to a lock service without files.
func openMeta(t *testing.T) *namespace.Access {
	t.Helper()
	m := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := m.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background(), slog.New(slog.DiscardHandler)) })
	return m
}

// newSchema returns the schema of the table t with the families f and g.
func newSchema(t testing.TB) *table.Schema {
	t.Helper()
	s, err := table.NewSchema("t", 100).Apply(table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withTable adds a lock service in which there is a table, t.
func (g *guardedServer) withTable(t *testing.T) *table.Schema {
	t.Helper()
	g.z.Meta = openMeta(t)
	s := newSchema(t)
	if err := (&namespace.Catalog{Meta: g.z.Meta}).SaveTable(t.Context(), s, nil, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGuardOfTables: a user calls the methods of a table by the rights on it. A table on which a user has no right is answered word
// for word as one that does not exist, whether the method needs a right or not.
func TestGuardOfTables(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withTable(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin, "ann": 0, "bob": 0, "eve": 0})
	g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: acl.Admin}, acl.Grant{Principal: "bob", Rights: acl.Read})
	answer := func(user, method, table string) *rpc.Error {
		t.Helper()
		g.ran.Store(0)
		err := g.Call(t, userNamed(user), method, tableParams(method, table))
		var e *rpc.Error
		if err != nil && !errors.As(err, &e) || (g.ran.Load() == 1) != (err == nil) {
			t.Fatalf("%s of %s by %s: %v, %d handlers ran", method, table, user, err, g.ran.Load())
		}
		return e
	}
	codeOf := func(user, method string) rpc.Code {
		t.Helper()
		if e := answer(user, method, "t"); e != nil {
			return e.Code
		}
		return 0
	}
	for user, want := range map[string][2]rpc.Code{
		"admin": {}, "ann": {}, "bob": {0, rpc.CodePermissionDenied}, "eve": {api.CodeTableNotFound, api.CodeTableNotFound},
	} {
		if got := [2]rpc.Code{codeOf(user, api.MethodDescribeTable), codeOf(user, api.MethodSetFamily)}; got != want {
			t.Errorf("%s describes the table and sets a family: %v, want %v", user, got, want)
		}
	}
	text := func(e *rpc.Error, name string) string {
		return strings.ReplaceAll(fmt.Sprintf("%d %q %v %v", e.Code, e.Message, e.Retryable, e.Details), name, "T")
	}
	for _, method := range []string{api.MethodDescribeTable, api.MethodSetFamily, api.MethodDropTable} {
		hidden, absent := answer("eve", method, "t"), answer("eve", method, "T")
		if hidden == nil || absent == nil || text(hidden, `\"t\"`) != text(absent, `\"T\"`) {
			t.Errorf("%s of a table that is hidden: %v; of one that does not exist: %v", method, hidden, absent)
		}
		if e := answer("ann", method, "T"); e == nil || e.Code != api.CodeTableNotFound {
			t.Errorf("%s of a table that does not exist: %v", method, e)
		}
	}
}

func tableParams(method, table string) func(*wire.Encoder) {
	if method == api.MethodSetFamily {
		return (&api.SetFamilyRequest{Table: table, Family: familyNamed("h")}).Append
	}
	return (&api.NamesRequest{Names: []string{table}}).Append
}

func familyNamed(name string) table.FamilySpec { return table.FamilySpec{Name: name} }

// TestSchemaForGuard: a schema that cannot be read is no missing table.
func TestSchemaForGuard(t *testing.T) {
	g := newGuardedServer(t)
	g.withTable(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := g.z.SchemaFor(t.Context(), "t"); err != nil || s.Name != "t" {
		t.Errorf("the schema of a table: %v, %v", s, err)
	}
	if _, err := g.z.SchemaFor(t.Context(), "T"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("the schema of a table that does not exist: %v", err)
	}
	if _, err := g.z.SchemaFor(ended, "other"); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a schema that cannot be read: %v, want unavailable", err)
	}
}

// TestTableRightsLost (I12): a change of a table whose caller has lost the right meanwhile is answered as executed.
func TestTableRightsLost(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withTable(t)
	for name, c := range map[string]struct {
		method   string
		left     acl.Rights // on the table
		want     error
		executed bool
	}{
		"a change, right kept":      {api.MethodSetFamily, acl.Admin, nil, false},
		"a change, right lost":      {api.MethodSetFamily, acl.Read, rpc.CodePermissionDenied, true},
		"a change, table hidden":    {api.MethodSetFamily, 0, rpc.CodePermissionDenied, true},
		"a schema, rights changed":  {api.MethodDescribeTable, acl.Admin, rpc.CodeUnavailable, false},
		"a schema, table hidden":    {api.MethodDescribeTable, 0, api.CodeTableNotFound, false},
		"a table dropped, all lost": {api.MethodDropTable, 0, nil, false},
	} {
		g.rights.Set(t, map[string]acl.Rights{"ann": 0})
		g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: acl.Admin})
		g.during = func() {
			if c.left == 0 {
				g.rights.SetTable(t, s.ID)
				return
			}
			g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: c.left})
		}
		err := g.Call(t, userNamed("ann"), c.method, tableParams(c.method, "t"))
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		var denied *api.PermissionError
		if executed := errors.As(api.FromRPC(err), &denied) && denied.Executed; executed != c.executed {
			t.Errorf("%s: executed is %v", name, executed)
		}
	}
}

// TestReauthorize (I12): a change is authorized again by the rights at that moment: by its method's guard, or for methods that check
// rights themselves by the right to administer the table or the cluster.
func TestReauthorize(t *testing.T) {
	g := newGuardedServer(t)
	s := g.withTable(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin, "ann": 0, "bob": acl.Read, "eve": 0})
	g.rights.SetTable(t, s.ID, acl.Grant{Principal: "ann", Rights: acl.Admin}, acl.Grant{Principal: "bob", Rights: acl.Read})
	for _, c := range []struct {
		user, method, name string
		want               error
	}{
		{"admin", api.MethodCreateTable, "new", nil},
		{"ann", api.MethodCreateTable, "new", api.ErrPermission},
		{"gone", api.MethodCreateTable, "new", api.ErrUnauthenticated},
		{"admin", api.MethodSetFamily, "t", nil},
		{"ann", api.MethodSetFamily, "t", nil},
		{"bob", api.MethodSetFamily, "t", api.ErrPermission},
		{"eve", api.MethodSetFamily, "t", api.ErrNoTable},
		{"admin", api.MethodGrant, "", nil},
		{"ann", api.MethodGrant, "", api.ErrPermission},
		{"ann", api.MethodGrant, "t", nil},
		{"bob", api.MethodGrant, "t", api.ErrPermission},
		{"eve", api.MethodGrant, "t", api.ErrNoTable},
		{"admin", api.MethodGrant, metadata.Name, api.ErrSystemTable},
	} {
		err := g.z.Reauthorize(t.Context(), ChangeRequest{Caller: userNamed(c.user), Method: c.method, Name: c.name})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s of %q by %s: %v, want %v", c.method, c.name, c.user, err, c.want)
		}
	}
	if err := g.z.Reauthorize(t.Context(), ChangeRequest{Method: api.MethodCreateTable}); !errors.Is(err, errNoSubject) {
		t.Errorf("a change without a subject: %v", err)
	}
	if err := g.z.Reauthorize(t.Context(), ChangeRequest{Caller: nodeNamed("n2"), Method: api.MethodCreateTable}); err != nil {
		t.Errorf("a change of a node: %v", err)
	}
}

// TestAdministers: nodes administer every table that exists, and an open cluster has no rights to change.
func TestAdministers(t *testing.T) {
	g := newGuardedServer(t)
	g.withTable(t)
	if s, _, err := g.z.Administers(t.Context(), nodeNamed("n2"), "t"); err != nil || s.Name != "t" {
		t.Errorf("a table: %v, %v", s, err)
	}
	if s, _, err := g.z.Administers(t.Context(), nodeNamed("n2"), ""); err != nil || s != nil {
		t.Errorf("the cluster: %v, %v", s, err)
	}
	if _, _, err := g.z.Administers(t.Context(), nodeNamed("n2"), "T"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("a table that does not exist: %v", err)
	}
	if _, _, err := (&Authorizer{Open: true}).Administers(t.Context(), nil, ""); !errors.Is(err, api.ErrOpenCluster) {
		t.Errorf("an open cluster: %v", err)
	}
	if !g.z.AdministersCluster(nodeNamed("n2")) || g.z.AdministersCluster(userNamed("gone")) {
		t.Error("a node administers the cluster, and a user that does not exist does not")
	}
}

// TestNoLeader: without a leader of the lock service a call is rejected at once, whatever its caller waits for.
func TestNoLeader(t *testing.T) {
	g := newGuardedServer(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin})
	g.z.CheckLeader = func() error { return fmt.Errorf("%w: no leader", api.ErrUnavailable) }
	began := time.Now()
	if err := g.call(t, userNamed("admin"), api.MethodStatus); !errors.Is(err, rpc.CodeUnavailable) || time.Since(began) > RightsTimeout/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
