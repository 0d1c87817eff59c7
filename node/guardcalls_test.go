package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/audit"
	"github.com/steledb/stele/security/pki"
)

// rightsInMemory are the files of rights, under a test's control. It implements acl.Files.
type rightsInMemory struct {
	mu    sync.Mutex
	epoch uint64
	down  bool // nothing can be read
	files map[string][]byte
}

func (r *rightsInMemory) Epoch(context.Context) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return 0, errors.New("no leader")
	}
	return r.epoch, nil
}

func (r *rightsInMemory) Holds(epoch uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.down && r.epoch == epoch
}

func (r *rightsInMemory) Get(_ context.Context, path string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files[path], nil
}

// set gives users their rights on the cluster, and takes all others away. Users that are not named do not exist.
func (r *rightsInMemory) set(t *testing.T, users map[string]acl.Rights) {
	t.Helper()
	all, files := &acl.Policy{Table: acl.Cluster}, map[string][]byte{}
	for name, rights := range users {
		files[acl.PrincipalFile(name)] = (&acl.Principal{Name: name, Created: time.Now()}).Encode()
		if rights == 0 {
			continue
		}
		var err error
		if all, err = all.Grant(acl.Grant{Principal: name, Rights: rights}); err != nil {
			t.Fatal(err)
		}
	}
	files[acl.ClusterFile] = all.Encode()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files, r.down = files, false
	r.epoch++
}

func (r *rightsInMemory) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
}

// guardedNode is a node of which only the guards are there.
type guardedNode struct {
	n        *Node
	rights   *rightsInMemory
	subjects chan *authz.Subject // of the next connection
	addr     string
	ran      atomic.Int64 // handlers that ran
	during   func()       // what happens while a handler runs
	Result   error        // of the handler
	dir      string       // of the audit log
	rules    func() bool  // whether users count as administrators of the cluster in the audit log; nil: those that are
}

// serve answers the methods on a port of its own.
func (g *guardedNode) serve(t *testing.T, cfg rpc.ServerConfig, methods map[string]func(*rpc.Call)) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Identify = func(net.Conn) any {
		if caller := <-g.subjects; caller != nil {
			return caller
		}
		return nil
	}
	s, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range methods {
		s.Handle(name, rpc.Spawned, h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = l.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
}

// call makes a call for a subject; nil is a client of an open node.
func (g *guardedNode) call(t *testing.T, caller *authz.Subject, method string, params ...any) error {
	t.Helper()
	g.subjects <- caller
	conn, err := rpc.Dial(t.Context(), g.addr, rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return conn.Call(ctx, method, func(e *wire.Encoder) {
		e.Array(len(params))
		for _, p := range params {
			wiretest.Any(e, p)
		}
	}, nil)
}

// newGuardedNode returns a node with certificates that guards all methods named by guards.
func newGuardedNode(t *testing.T) *guardedNode {
	t.Helper()
	g := &guardedNode{rights: &rightsInMemory{}, subjects: make(chan *authz.Subject, 1), dir: filepath.Join(t.TempDir(), "audit")}
	stage := "a test"
	g.n = &Node{ctx: t.Context(), security: &certs.Transport{}}
	g.n.authz = &authz.Authorizer{Ctx: g.n.ctx, Limits: &g.n.limits, Guards: guards, Meta: &g.n.meta, CheckLeader: g.n.checkLeader, Serving: g.n.checkServing,
		Rights: &authz.Rights{Cache: acl.NewCache(g.rights), CheckLeader: func() error { return nil }}}
	g.n.serving.Store(true)
	g.n.stage.Store(&stage)
	to, err := audit.Open(audit.Config{Dir: g.dir, Node: "n1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.n.authz.Audit = &authz.AuditLog{To: to, Log: slog.New(slog.DiscardHandler), IsAdmin: func(caller *authz.Subject) bool {
		if g.rules != nil {
			return g.rules()
		}
		return g.n.authz.AdministersCluster(caller)
	}}
	t.Cleanup(func() {
		if err := g.n.authz.Audit.Close(); err != nil {
			t.Error(err)
		}
	})
	methods := map[string]func(*rpc.Call){}
	for name := range guards {
		methods[name] = func(c *rpc.Call) {
			g.ran.Add(1)
			if g.during != nil {
				g.during()
			}
			if g.Result != nil {
				c.Fail(g.Result)
				return
			}
			c.Reply(nil)
		}
	}
	g.serve(t, rpc.ServerConfig{Admit: g.n.authz.Admitter}, methods)
	return g
}

func userNamed(name string) *authz.Subject {
	return &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: name}, From: "127.0.0.1:1"}
}

// TestGuardByRights: each guard admits exactly the nodes, users and unauthenticated clients that it names. A rejected call does not reach the
// handler.
func TestGuardByRights(t *testing.T) {
	g := newGuardedNode(t)
	g.rights.set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read, "plain": 0})
	const denied, unknown = rpc.CodePermissionDenied, rpc.CodeUnauthenticated
	methods := []string{api.MethodPing, api.MethodRead, api.MethodListTables, api.MethodDescribeTable, api.MethodStatus, api.MethodCreateTable, api.MethodCompactTable, methodHail}
	for name, c := range map[string]struct {
		caller *authz.Subject
		want   [8]rpc.Code
	}{
		"a node":             {&authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n2"}}, [8]rpc.Code{}},
		"an administrator":   {userNamed("admin"), [8]rpc.Code{7: denied}},
		"a reader":           {userNamed("reader"), [8]rpc.Code{5: denied, denied, denied}},
		"one without rights": {userNamed("plain"), [8]rpc.Code{4: denied, denied, denied, denied}},
		"one that is gone":   {userNamed("gone"), [8]rpc.Code{2: unknown, unknown, unknown, unknown, unknown, denied}},
		"an anonymous one":   {&authz.Subject{}, [8]rpc.Code{1: unknown, unknown, unknown, unknown, unknown, unknown, unknown}},
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
	g := newGuardedNode(t)
	g.rights.set(t, map[string]acl.Rights{"admin": acl.Admin})
	g.n.serving.Store(false)
	for method, want := range map[string]bool{api.MethodStatus: false, api.MethodListTables: false, api.MethodPing: true} {
		if err := g.call(t, userNamed("admin"), method); (err == nil) != want || err != nil && !errors.Is(err, rpc.CodeUnavailable) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := g.call(t, &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n2"}}, methodHail); err != nil {
		t.Errorf("a node: %v", err)
	}
}

// TestGuardOfOpenNode: a node without certificates lets in every call, and one with certificates only those that are for strangers.
func TestGuardOfOpenNode(t *testing.T) {
	open, secure := &authz.Authorizer{Open: true, Guards: guards}, &authz.Authorizer{Guards: guards}
	for method, g := range guards {
		if open.Admitter(method) != nil {
			t.Errorf("an open node guards %s", method)
		}
		if (secure.Admitter(method) == nil) != (g.To == authz.Strangers) {
			t.Errorf("a node with certificates does not guard %s", method)
		}
	}
}

// TestGuardWritesAuditLog: actions of administrators are in the audit log, done or failed, unless the method writes its own record;
// calls that change nothing are not. What is rejected for its rights is among the refusals.
func TestGuardWritesAuditLog(t *testing.T) {
	g := newGuardedNode(t)
	g.rights.set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read})
	admin, reader := userNamed("admin"), userNamed("reader")
	for _, method := range []string{api.MethodListTables, api.MethodStatus, api.MethodDescribeTable, api.MethodRead, api.MethodSetQuota, api.MethodSplitTablet, api.MethodCreateTable} {
		if err := g.call(t, admin, method, metadata.Name); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	g.Result = api.ErrNoTable
	if err := g.call(t, admin, api.MethodRemoveNode, "n9"); err == nil {
		t.Error("a call that fails is answered as one that does not")
	}
	for _, method := range []string{api.MethodCompactTable, api.MethodStatus, methodHail} {
		_ = g.call(t, reader, method, metadata.Name)
	}
	if err := g.n.authz.Audit.Close(); err != nil {
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
	g := newGuardedNode(t)
	g.rules = func() bool { return false }
	g.rights.set(t, map[string]acl.Rights{"admin": acl.Admin, "reader": acl.Read})
	admin, reader := userNamed("admin"), userNamed("reader")
	for range authz.TableActionsBurst - 1 {
		if err := g.n.authz.Audit.Admit(admin); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range authz.TableActionsBurst { // one is left, and one more comes each second
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
	before := map[string]acl.Rights{"ann": acl.Admin, "bob": acl.Read}
	keep := func(t *testing.T, r *rightsInMemory) { r.set(t, before) }
	lose := func(t *testing.T, r *rightsInMemory) { r.set(t, map[string]acl.Rights{"ann": 0, "bob": 0}) }
	gone := func(t *testing.T, r *rightsInMemory) { r.set(t, nil) }
	down := func(_ *testing.T, r *rightsInMemory) { r.stop() }
	for name, c := range map[string]struct {
		user, method string
		change       func(t *testing.T, r *rightsInMemory)
		Result       error // of the handler
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
		g := newGuardedNode(t)
		g.rights.set(t, before)
		g.during, g.Result = func() { c.change(t, g.rights) }, c.Result
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
