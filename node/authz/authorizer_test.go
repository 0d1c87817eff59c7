package authz

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// guarded has the guard of each method that the tests call, as the node has them.
var guarded = map[string]Guard{
	api.MethodPing:          {To: Strangers},
	api.MethodRead:          {To: Own},
	api.MethodListTables:    {To: Known},
	api.MethodDescribeTable: {To: OfTable},
	api.MethodStatus:        {To: Right, Right: acl.Monitor},
	api.MethodCreateTable:   {To: Right, Right: acl.Admin, About: Named("table")},
	api.MethodRemoveNode:    {To: Right, Right: acl.Admin, About: Named("node")},
	api.MethodSetQuota:      {To: Right, Right: acl.Admin, SelfAudited: true},
	api.MethodCompactTable:  {To: RightOfTable, Right: acl.Admin},
	api.MethodDropTable:     {To: RightOfTable, Right: acl.Admin},
	api.MethodSetFamily:     {To: RightOfTable, Right: acl.Admin, About: FamilySet},
	api.MethodSplitTablet:   {To: RightOfTable, Right: acl.Admin, SelfAudited: true},
	api.MethodGrant:         {To: Known},
	api.MethodRevoke:        {To: Known},
	api.MethodRevokeUser:    {To: Right, Right: acl.Admin, About: Named("user")},
	api.MethodRemoveUser:    {To: Right, Right: acl.Admin, About: Named("user")},
	api.MethodDisableUser:   {To: Right, Right: acl.Admin, About: Named("user")},
	api.MethodBlobSeal:      {To: Right, Right: acl.Write},
	methodOfNodes:           {},
}

// methodOfNodes is for nodes alone.
const methodOfNodes = "cluster.hail"

// guardedServer serves the guarded methods.
type guardedServer struct {
	*authztest.Server
	z       *Authorizer
	rights  *authztest.Rights
	waiting atomic.Bool  // the node does not serve yet
	ran     atomic.Int64 // handlers that ran
	during  func()       // what happens while a handler runs
	result  error        // of the handler
	dir     string       // of the audit log
	isAdmin func() bool  // whether users count as administrators of the cluster in the audit log; nil: those that are
}

// call makes a call for a subject; nil is a client of an open node.
func (g *guardedServer) call(t *testing.T, caller *Subject, method string, params ...any) error {
	t.Helper()
	if caller == nil {
		return g.Call(t, nil, method, authztest.Values(params...))
	}
	return g.Call(t, caller, method, authztest.Values(params...))
}

// newGuardedServer returns a server of a node with certificates.
func newGuardedServer(t *testing.T) *guardedServer {
	t.Helper()
	g := &guardedServer{rights: &authztest.Rights{}, dir: filepath.Join(t.TempDir(), "audit")}
	led := func() error { return nil }
	limits := table.DefaultLimits()
	g.z = &Authorizer{Ctx: t.Context(), Limits: &limits, Guards: guarded, Meta: &namespace.Access{}, CheckLeader: led, Serving: g.serving,
		Rights: &Rights{Cache: acl.NewCache(g.rights), CheckLeader: led}}
	to, err := audit.Open(audit.Config{Dir: g.dir, Node: "n1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.z.Audit = &AuditLog{To: to, Log: slog.New(slog.DiscardHandler), IsAdmin: func(caller *Subject) bool {
		if g.isAdmin != nil {
			return g.isAdmin()
		}
		return g.z.AdministersCluster(caller)
	}}
	t.Cleanup(func() {
		if err := g.z.Audit.Close(); err != nil {
			t.Error(err)
		}
	})
	methods := map[string]func(*rpc.Call){}
	for name := range guarded {
		methods[name] = g.handle
	}
	g.Server = authztest.Serve(t, rpc.ServerConfig{Admit: g.z.Admitter}, methods)
	return g
}

func (g *guardedServer) serving() error {
	if g.waiting.Load() {
		return &rpc.Error{Code: rpc.CodeUnavailable, Message: "the node does not serve", Retryable: true}
	}
	return nil
}

func (g *guardedServer) handle(c *rpc.Call) {
	g.ran.Add(1)
	if g.during != nil {
		g.during()
	}
	if g.result != nil {
		c.Fail(g.result)
		return
	}
	c.Reply(nil)
}

func userNamed(name string) *Subject {
	return &Subject{Peer: pki.Peer{Kind: pki.Principal, Name: name}, From: "127.0.0.1:1"}
}

func nodeNamed(id string) *Subject {
	return &Subject{Peer: pki.Peer{Kind: pki.Node, Name: id}}
}

// TestGuardByRights: each guard admits exactly the nodes, users and unauthenticated clients that it names. A rejected call does not reach the
// handler.
func TestGuardByRights(t *testing.T) {
	g := newGuardedServer(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read, "plain": 0})
	const denied, unknown = rpc.CodePermissionDenied, rpc.CodeUnauthenticated
	methods := []string{api.MethodPing, api.MethodRead, api.MethodListTables, api.MethodDescribeTable, api.MethodStatus, api.MethodCreateTable, api.MethodCompactTable, methodOfNodes}
	for name, c := range map[string]struct {
		caller *Subject
		want   [8]rpc.Code
	}{
		"a node":             {nodeNamed("n2"), [8]rpc.Code{}},
		"an administrator":   {userNamed("admin"), [8]rpc.Code{7: denied}},
		"a reader":           {userNamed("reader"), [8]rpc.Code{5: denied, denied, denied}},
		"one without rights": {userNamed("plain"), [8]rpc.Code{4: denied, denied, denied, denied}},
		"one that is gone":   {userNamed("gone"), [8]rpc.Code{2: unknown, unknown, unknown, unknown, unknown, denied}},
		"an anonymous one":   {&Subject{}, [8]rpc.Code{1: unknown, unknown, unknown, unknown, unknown, unknown, unknown}},
		"one of no port":     {nil, [8]rpc.Code{1: unknown, unknown, unknown, unknown, unknown, unknown, unknown}},
	} {
		for i, method := range methods {
			g.ran.Store(0)
			err := g.call(t, c.caller, method, metadata.Name)
			var got rpc.Code
			if e := (*rpc.Error)(nil); errors.As(err, &e) {
				got = e.Code
			}
			if got != c.want[i] || (err == nil) != (c.want[i] == 0) || (g.ran.Load() == 1) != (err == nil) {
				t.Errorf("%s by %s: %v, %d handlers ran; want %v", method, name, err, g.ran.Load(), c.want[i])
			}
		}
	}
	for _, method := range []string{api.MethodDescribeTable, api.MethodCompactTable} {
		g.ran.Store(0)
		if err := g.call(t, userNamed("admin"), method, 7); err == nil || g.ran.Load() != 0 {
			t.Errorf("%s of no name: %v, %d handlers ran", method, err, g.ran.Load())
		}
	}
}

// TestGuardBeforeServing: a node that does not serve yet rejects the calls of users that depend on rights.
func TestGuardBeforeServing(t *testing.T) {
	g := newGuardedServer(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin})
	g.waiting.Store(true)
	for method, want := range map[string]bool{api.MethodStatus: false, api.MethodListTables: false, api.MethodPing: true} {
		if err := g.call(t, userNamed("admin"), method); (err == nil) != want || err != nil && !errors.Is(err, rpc.CodeUnavailable) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := g.call(t, nodeNamed("n2"), methodOfNodes); err != nil {
		t.Errorf("a node: %v", err)
	}
}

// TestGuardOfOpenNode: a node without certificates lets in every call, and one with certificates only those that are for strangers.
func TestGuardOfOpenNode(t *testing.T) {
	open, secure := &Authorizer{Open: true, Guards: guarded}, &Authorizer{Guards: guarded}
	for method, g := range guarded {
		if open.Admitter(method) != nil {
			t.Errorf("an open node guards %s", method)
		}
		if (secure.Admitter(method) == nil) != (g.To == Strangers) {
			t.Errorf("a node with certificates does not guard %s", method)
		}
	}
}

// TestGuardWritesAuditLog: actions of administrators are in the audit log, done or failed, unless the method writes its own record;
// calls that change nothing are not. What is rejected for its rights is among the refusals.
func TestGuardWritesAuditLog(t *testing.T) {
	g := newGuardedServer(t)
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read})
	admin, reader := userNamed("admin"), userNamed("reader")
	for _, method := range []string{api.MethodListTables, api.MethodStatus, api.MethodDescribeTable, api.MethodRead, api.MethodSetQuota, api.MethodSplitTablet, api.MethodCreateTable} {
		if err := g.call(t, admin, method, metadata.Name); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	g.result = api.ErrNoTable
	if err := g.call(t, admin, api.MethodRemoveNode, "n9"); err == nil {
		t.Error("a call that fails is answered as one that does not")
	}
	for _, method := range []string{api.MethodCompactTable, api.MethodStatus, methodOfNodes} {
		_ = g.call(t, reader, method, metadata.Name)
	}
	if err := g.z.Audit.Close(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"audit.log":        {`"action":"create_table","on":"table ` + metadata.Name + `","outcome":"done"`, `"action":"remove_node","on":"node n9","outcome":"failed"`},
		"table-admins.log": {},
		"refusals.log":     {`"action":"compact_table"`, `"action":"cluster.hail"`},
	} {
		b, err := os.ReadFile(filepath.Join(g.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(b), w) {
				t.Errorf("%s has no %s", file, w)
			}
		}
		if n := strings.Count(string(b), `"action"`); n != len(want) {
			t.Errorf("%s has %d records, want %d:\n%s", file, n, len(want), b)
		}
	}
}

// TestGuardBoundsTableActions: users that administer tables but not the cluster are limited to the rate that the audit log can take. Calls
// that change nothing do not count, and callers without the right are rejected for that.
func TestGuardBoundsTableActions(t *testing.T) {
	g := newGuardedServer(t)
	g.isAdmin = func() bool { return false }
	g.rights.Set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read})
	admin, reader := userNamed("admin"), userNamed("reader")
	for range tableActionsBurst - 1 {
		if err := g.z.Audit.Admit(admin); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range tableActionsBurst { // one is left, and one more comes each second
		if err = g.call(t, admin, api.MethodSplitTablet, metadata.Name); err != nil {
			break
		}
	}
	if !errors.Is(err, rpc.CodeOverloaded) {
		t.Errorf("after a burst: %v, want overloaded", err)
	}
	for _, method := range []string{api.MethodDescribeTable, api.MethodStatus, api.MethodSetQuota} {
		if err := g.call(t, admin, method, metadata.Name); err != nil {
			t.Errorf("%s after a burst of other calls: %v", method, err)
		}
	}
	for _, method := range []string{api.MethodSplitTablet, api.MethodSetQuota} {
		if err := g.call(t, reader, method, metadata.Name); !errors.Is(err, rpc.CodePermissionDenied) {
			t.Errorf("%s without the right: %v", method, err)
		}
	}
}

// TestGuardAfterRightsChange (I12): an answer that depends on rights is not given to a user that has lost them meanwhile. A change that was
// made is answered as executed.
func TestGuardAfterRightsChange(t *testing.T) {
	before := map[string]acl.Rights{"ann": acl.Admin | acl.Write, "bob": acl.Read}
	keep := func(t *testing.T, r *authztest.Rights) { r.Set(t, before) }
	lose := func(t *testing.T, r *authztest.Rights) { r.Set(t, map[string]acl.Rights{"ann": 0, "bob": 0}) }
	gone := func(t *testing.T, r *authztest.Rights) { r.Set(t, nil) }
	down := func(_ *testing.T, r *authztest.Rights) { r.Stop() }
	for name, c := range map[string]struct {
		user, method string
		change       func(t *testing.T, r *authztest.Rights)
		result       error // of the handler
		want         error
		executed     bool
	}{
		"a status, right kept":          {"bob", api.MethodStatus, keep, nil, nil, false},
		"a status, right lost":          {"bob", api.MethodStatus, lose, nil, rpc.CodePermissionDenied, false},
		"a status, user gone":           {"bob", api.MethodStatus, gone, nil, rpc.CodeUnauthenticated, false},
		"a status, rights unknown":      {"bob", api.MethodStatus, down, nil, rpc.CodeUnavailable, false},
		"a failure, right lost":         {"bob", api.MethodStatus, lose, rpc.CodeTooLarge, rpc.CodeTooLarge, false},
		"a list, rights changed":        {"bob", api.MethodListTables, keep, nil, rpc.CodeUnavailable, false},
		"a list, user gone":             {"bob", api.MethodListTables, gone, nil, rpc.CodeUnauthenticated, false},
		"a failed list, rights changed": {"bob", api.MethodListTables, keep, rpc.CodeTooLarge, rpc.CodeTooLarge, false},
		"a schema, rights changed":      {"bob", api.MethodDescribeTable, keep, nil, rpc.CodeUnavailable, false},
		"a table made, right kept":      {"ann", api.MethodCreateTable, keep, nil, nil, false},
		"a table made, right lost":      {"ann", api.MethodCreateTable, lose, nil, rpc.CodePermissionDenied, true},
		"a table made, user gone":       {"ann", api.MethodCreateTable, gone, nil, rpc.CodePermissionDenied, true},
		"a table made, rights unknown":  {"ann", api.MethodCreateTable, down, nil, api.CodeOutcomeUnknown, false},
		"a blob made, right kept":       {"ann", api.MethodBlobSeal, keep, nil, nil, false},
		"a blob made, right lost":       {"ann", api.MethodBlobSeal, lose, nil, rpc.CodePermissionDenied, true},
		"a blob made, rights unknown":   {"ann", api.MethodBlobSeal, down, nil, api.CodeOutcomeUnknown, false},
		"a table not made, right lost":  {"ann", api.MethodCreateTable, lose, rpc.CodeTooLarge, rpc.CodeTooLarge, false},
		"a compaction, right kept":      {"ann", api.MethodCompactTable, keep, nil, nil, false},
		"a compaction, right lost":      {"ann", api.MethodCompactTable, lose, nil, rpc.CodePermissionDenied, true},
		"a table dropped, right lost":   {"ann", api.MethodDropTable, lose, nil, nil, false},
		"a grant, rights changed":       {"ann", api.MethodGrant, keep, nil, nil, false},
		"an own right revoked":          {"ann", api.MethodRevoke, lose, nil, nil, false},
		"an own user removed":           {"ann", api.MethodRemoveUser, gone, nil, nil, false},
		"an own user disabled":          {"ann", api.MethodDisableUser, lose, nil, nil, false},
		"an own credential revoked":     {"ann", api.MethodRevokeUser, lose, nil, nil, false},
	} {
		g := newGuardedServer(t)
		g.rights.Set(t, before)
		g.during, g.result = func() { c.change(t, g.rights) }, c.result
		err := g.call(t, userNamed(c.user), c.method, metadata.Name)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		var denied *api.PermissionError
		if executed := errors.As(api.FromRPC(err), &denied) && denied.Executed; executed != c.executed {
			t.Errorf("%s: executed is %v", name, executed)
		}
	}
}
