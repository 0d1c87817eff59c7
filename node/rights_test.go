package node_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// secureOne is a cluster of one node with a table t of the family f and ten rows, and a client of its
// administrator.
func secureOne(t testing.TB, f *testCluster) (admin *client.Client, ctx context.Context) {
	t.Helper()
	f.startAll()
	admin, ctx = f.client(0), within(t, 60*time.Second)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := admin.Table("t").Apply(ctx, client.NewRowMutation(fmt.Sprint("r", i)).SetAt("f:q", 1, []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	return admin, ctx
}

// TestScanOfOthers: a scan belongs to its principal, and ends with its rights, whether they are revoked or the token in use is.
func TestScanOfOthers(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	bob := f.dialAs(0, f.user(admin, "bob"))
	token, _, err := admin.Users().AddToken(ctx, "ann", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "bob"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: "read"}); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() (*rpc.Conn, func(*wire.Encoder)) {
		t.Helper()
		ann := f.dialAs(0, nil)
		if e := answerOf(t, ann, "auth", values(token.Reveal())); e != nil {
			t.Fatal(e)
		}
		var r api.ScanResult
		err := ann.Call(ctx, api.MethodScanOpen, (&api.ScanOpenRequest{Table: "t", BatchRows: 2}).Append, func(d *wire.Decoder) error { return r.Decode(d) })
		if err != nil || r.Count != 2 || r.Cursor == 0 {
			t.Fatal(r, err)
		}
		return ann, (&api.ScanNextRequest{Cursor: r.Cursor}).Append
	}
	ann, next := begin()
	if e := answerOf(t, bob, api.MethodScanNext, next); e == nil || e.Code != api.CodeCursorExpired {
		t.Errorf("the scan of another: %v", e)
	}
	_ = answerOf(t, bob, api.MethodScanClose, next)
	if e := answerOf(t, ann, api.MethodScanNext, next); e != nil {
		t.Errorf("the scan goes on: %v", e)
	}
	if err := admin.Grants().Revoke(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if e := answerOf(t, ann, api.MethodScanNext, next); e == nil || e.Code != api.CodeTableNotFound {
		t.Errorf("the scan goes on without the right: %v", e)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	ann, next = begin()
	if err := admin.Users().RevokeToken(ctx, "ann", token.ID().String()); err != nil {
		t.Fatal(err)
	}
	if e := answerOf(t, ann, api.MethodScanNext, next); e == nil || e.Code != rpc.CodeUnauthenticated || e.Details["reason"] != api.IdentityRevoked {
		t.Errorf("the scan goes on with a token that was revoked: %v", e)
	}
}

// TestRevokedWhileAnswerWaits (I12): a large answer that has waited for memory is not given to one whose rights were taken
// meanwhile.
func TestRevokedWhileAnswerWaits(t *testing.T) {
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	ann := f.dialAs(0, f.user(admin, "ann"))
	grant := client.Grant{Principal: "ann", Table: "t", Rights: "read"}
	if err := errors.Join(admin.Grants().Add(ctx, grant), admin.Table("t").Apply(ctx, client.NewRowMutation("large").Set("f:q", make([]byte, 1<<20)))); err != nil {
		t.Fatal(err)
	}
	read := (&api.ReadRequest{Table: "t", Row: []byte("large")}).Append
	if e := answerOf(t, ann, api.MethodRead, read); e != nil {
		t.Fatal(e)
	}
	for {
		err := f.revokeWhileWaiting(ctx, ann, read, func() error { return admin.Grants().Revoke(ctx, grant) })
		if errors.Is(err, api.CodeTableNotFound) {
			break
		}
		if !errors.Is(err, rpc.CodeOverloaded) { // it has waited longer than it may
			t.Fatalf("the answer that had waited: %v, want that there is no such table", err)
		}
		if err := admin.Grants().Add(ctx, grant); err != nil {
			t.Fatal(err)
		}
	}
	if e := answerOf(t, ann, api.MethodRead, read); e == nil || e.Code != api.CodeTableNotFound {
		t.Errorf("the next: %v", e)
	}
}

// revokeWhileWaiting reads, revokes while the answer waits for memory, and returns how the read ended.
func (f *testCluster) revokeWhileWaiting(ctx context.Context, conn *rpc.Conn, read func(*wire.Encoder), revoke func() error) error {
	release := good(f.nodes[0].HoldResults(ctx))
	answer := make(chan error, 1)
	go func() { answer <- conn.Call(ctx, api.MethodRead, read, nil) }()
	eventually(f.t, "the answer waits for memory", func() bool {
		b := make([]byte, 8<<20)
		return bytes.Contains(b[:runtime.Stack(b, true)], []byte("(*Answer).Await(")) || len(answer) > 0
	})
	err := revoke()
	release()
	return errors.Join(err, <-answer)
}

// TestCreatorAdministers: the creator of a table administers it, also without rights on the cluster. The table's grants are dropped with it, and those on a
// family with the family.
func TestCreatorAdministers(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	cred := f.user(admin, "ann")
	ann := f.clientAs(0, client.Config{Credential: cred})
	all := client.Grant{Principal: "ann", Rights: "admin"}
	if err := admin.Grants().Add(ctx, all); err != nil {
		t.Fatal(err)
	}
	s, err := ann.Tables().Create(ctx, "own", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Grants().Revoke(ctx, all); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Tables().Create(ctx, "another", table.FamilySpec{Name: "f"}); !errors.Is(err, client.ErrPermission) {
		t.Errorf("create without the right: %v", err)
	}
	if err := ann.Tables().Drop(ctx, "t"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("drop the table of another: %v", err)
	}
	if err := ann.Table("own").Apply(ctx, client.NewRowMutation("r").Set("f:q", nil)); err != nil {
		t.Error(err)
	}
	f.user(admin, "bob")
	if err := errors.Join(ann.Grants().Add(ctx, client.Grant{Principal: "bob", Table: "own", Family: "g", Rights: "read"}),
		ann.Grants().Add(ctx, client.Grant{Principal: client.Everyone, Table: "own", Rights: "read"})); err != nil {
		t.Error(err)
	}
	if err := ann.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "read"}); !errors.Is(err, client.ErrPermission) {
		t.Errorf("grant on the cluster by the administrator of a table: %v", err)
	}
	if grants, err := ann.Grants().List(ctx, "own", ""); err != nil || len(grants) != 3 || grants[1].Principal != "ann" || grants[1].Rights != "admin" || grants[2].Family != "g" {
		t.Errorf("grants: %+v, %v", grants, err)
	}
	if _, err := ann.Tables().DropFamily(ctx, "own", "g"); err != nil {
		t.Error(err)
	}
	b, err := f.nodes[0].Lock(ctx, acl.TableFile(s.ID))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := acl.DecodePolicy(b); err != nil || len(p.Grants) != 2 {
		t.Errorf("grants after a family was dropped: %+v, %v", p, err)
	}
	if err := ann.Tables().DropNow(ctx, "own"); err != nil {
		t.Error(err)
	}
	if _, err := f.nodes[0].Lock(ctx, acl.TableFile(s.ID)); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("grants of a table that was dropped: %v", err)
	}
	f.stop(0)
	audit := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "audit.log"))))
	tables := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "table-admins.log"))))
	refused := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "refusals.log"))))
	for log, want := range map[*string][]string{
		&audit:   {`"name":"ann","from":"127.0.0.1:`, `"action":"create_table","on":"table own"`},
		&tables:  {`"name":"ann","from":"127.0.0.1:`, `"action":"drop_table","on":"table own","outcome":"done"`, `"action":"drop_family"`, `"on":"read to bob on family g of table own"`},
		&refused: {`"name":"ann"`, `"action":"create_table"`, `"outcome":"refused","code":"permission_denied"`},
	} {
		for _, w := range want {
			if !strings.Contains(*log, w) {
				t.Errorf("the audit log has no %s:\n%s", w, *log)
			}
		}
	}
	if !strings.Contains(audit, `"action":"add_user","on":"user ann","outcome":"done"`) || strings.Contains(audit, "PRIVATE KEY") {
		t.Errorf("users in the audit log:\n%s", audit)
	}
}

// TestGrantsGoWithFamily: the grants on a family that is dropped are gone when another change is made, which may
// grant something on a family of the same table that is new.
func TestGrantsGoWithFamily(t *testing.T) {
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	f.user(admin, "ann")
	for i := range 5 {
		s, err := admin.Tables().SetFamily(ctx, "t", table.FamilySpec{Name: "g"})
		if err := errors.Join(err, admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "g", Rights: "read"})); err != nil {
			t.Fatal(err)
		}
		n := f.nodes[0]
		before := good(n.Lock(ctx, acl.EpochFile))
		release := n.HoldChanges()
		dropped := make(chan error, 1)
		go func() {
			_, err := admin.Tables().DropFamily(ctx, "t", "g")
			dropped <- err
		}()
		if !queued(t, 1, func() bool { return len(dropped) > 0 }) {
			t.Fatal(<-dropped)
		}
		next := make(chan error, 1)
		go func() {
			all, err := n.ChangeAsNode(ctx, func() {
				p, err := acl.DecodePolicy(good(n.Lock(ctx, acl.TableFile(s.ID))))
				if err != nil || len(p.Grants) != 1 { // of the creator of the table
					t.Errorf("try %d: grants when the next change is made: %+v, %v", i, p, err)
				}
				if bytes.Equal(before, good(n.Lock(ctx, acl.EpochFile))) {
					t.Errorf("try %d: no other epoch of rights has begun", i)
				}
			})
			next <- errors.Join(append(all, err)...)
		}()
		queued(t, 2, func() bool { return len(dropped)+len(next) > 0 })
		release()
		if err := errors.Join(<-dropped, <-next); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSecondLife: a user that is added again has neither the rights nor the credentials of the earlier user of that name.
func TestSecondLife(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	old := f.user(admin, "ann")
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Users().Remove(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	fresh := f.user(admin, "ann")
	read := func(c *pki.Credential) error {
		_, err := f.clientAs(0, client.Config{Credential: c}).Table("t").Get(ctx, "r0")
		return err
	}
	var caller *client.IdentityError
	if err := read(old); !errors.As(err, &caller) || caller.Reason != api.IdentityRevoked {
		t.Errorf("the credential of before: %v", err)
	}
	if err := read(fresh); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("the rights of before: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read(fresh)); err != nil {
		t.Error(err)
	}
	if err := admin.Users().Remove(ctx, "admin"); !errors.Is(err, client.ErrLastAdmin) {
		t.Errorf("the last administrator: %v", err)
	}
	if err := admin.Grants().Revoke(ctx, client.Grant{Principal: "admin", Rights: "admin"}); !errors.Is(err, client.ErrLastAdmin) {
		t.Errorf("the last administrator's right: %v", err)
	}
}

// TestAskedBeforeItIsMaster: what is asked for on the node that is about to be the master is made
// once it is, and written down.
func TestAskedBeforeItIsMaster(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	again := f.nodes[0].Abdicate(ctx)
	made := make(chan error, 1)
	go func() {
		_, err := admin.Tables().Create(ctx, "late", table.FamilySpec{Name: "f"})
		made <- err
	}()
	time.Sleep(100 * time.Millisecond) // so that it is asked; it would pass, too, if it were not
	select {
	case err := <-made:
		t.Errorf("answered while nobody was the master: %v", err)
	default:
	}
	again()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if audit := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "audit.log")))); !strings.Contains(audit, `"action":"create_table","on":"table late","outcome":"done"`) {
		t.Errorf("the audit log has nothing of it:\n%s", audit)
	}
	if err := admin.Table("late").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Error(err)
	}
}

// TestLocksOfPrincipals: a principal that may write the cluster has access to the lock service below /locks, with sessions of its own. Nodes other than the
// master's cannot write rights.
func TestLocksOfPrincipals(t *testing.T) {
	t.Parallel()
	f, first, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	open := func(c *pki.Credential) *session.Session {
		t.Helper()
		e := pki.NewEndpoint(c, pki.Options{})
		sc := good(session.NewClient(session.Config{
			Locator: session.Addresses{f.addrs[0]}, Dial: func(ctx context.Context, addr string) (net.Conn, error) { return e.Dial(ctx, "", addr) }, RetryTimeMax: 5 * time.Second,
		}))
		t.Cleanup(func() { sc.Close() })
		return good(sc.Open(ctx, session.Options{Name: "test"}))
	}
	for _, name := range []string{"ann", "bob"} {
		f.user(admin, name)
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
	}
	ann, bob := open(f.user(admin, "ann")), f.dialAs(0, f.user(admin, "bob"))
	if _, err := ann.Set(ctx, "/locks/a", []byte("x"), metaapi.AnyGeneration, metaapi.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	lock, err := ann.Acquire(ctx, "/locks/a", metaapi.Exclusive, session.LockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{acl.ClusterFile, "/tables/t", "/master", "/cluster", "/locksmith", "/locks/../acl/epoch"} {
		if _, err := ann.Get(ctx, path); err == nil {
			t.Errorf("%s was read", path)
		}
		if _, err := ann.Set(ctx, path, nil, metaapi.AnyGeneration, metaapi.SetOptions{}); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	for method, params := range map[string]func(*wire.Encoder){
		metaapi.MethodCloseSession: values(int64(ann.ID())),
		metaapi.MethodRelease:      values(int64(ann.ID()), "/locks/a"),
		metaapi.MethodKeepAlive:    values(int64(ann.ID()), 1, 1),
	} {
		if e := answerOf(t, bob, method, params); e == nil {
			t.Errorf("%s of the session of another was let in", method)
		}
	}
	if !lock.Held() {
		t.Error("the lock is lost")
	}
	node := f.dialAs(0, issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
		return first.Authority.SignNode(r, "n000000000000abcd", nil, time.Now())
	}))
	err = node.Call(ctx, metaapi.MethodSet, values(acl.EpochFile, []byte("x"), nil), nil)
	if !errors.Is(metaapi.FromRPC(err), metaapi.ErrSystemFile) {
		t.Errorf("a node that is not the master writes the epoch: %v", err)
	}
}
