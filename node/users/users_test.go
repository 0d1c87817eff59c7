package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes/changestest"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// master is the service on the master's node, and its port.
type master struct {
	*changestest.Node
	*Service
	port *authztest.Server
	t    *testing.T
	// forget is called for the quota of a removed user.
	forget func(name string) (found bool, err error)
}

func newMaster(t *testing.T) *master {
	t.Helper()
	m := withService(t, changestest.New(t))
	m.port = m.Serve(m.Register)
	return m
}

// withService returns the service of a node, without a port.
func withService(t *testing.T, n *changestest.Node) *master {
	t.Helper()
	m := &master{Node: n, t: t}
	a := authztest.NewAuthority(t, changestest.Cluster)
	transport := certs.New(certs.Config{Log: slog.New(slog.DiscardHandler), Credential: authztest.NodeCredential(t, a, changestest.ID)})
	m.Service = New(Config{
		Log: n.Log, Catalog: n.Catalog, Meta: n.Meta, Authz: n.Authz, Changes: n.Changes,
		ForgetQuota: func(_ context.Context, name string) (bool, error) {
			if m.forget == nil {
				return false, nil
			}
			return m.forget(name)
		},
		Transport: func() *certs.Transport { return transport }, Signer: func(context.Context) (*pki.Authority, error) { return a, nil },
		Cluster: func() string { return changestest.Cluster },
	})
	return m
}

// params is the parameters of a request.
type params interface{ Append(*wire.Encoder) }

// call makes a request as a user or a node.
func (m *master) call(as *authz.Subject, method string, p params) error {
	m.t.Helper()
	return m.port.Call(m.t, as, method, p.Append)
}

// must makes a request as the first administrator, which must succeed.
func (m *master) must(method string, p params) {
	m.t.Helper()
	if err := m.call(changestest.Admin(), method, p); err != nil {
		m.t.Fatalf("%s %+v: %v", method, p, err)
	}
}

// names makes a request of names.
func (m *master) names(as *authz.Subject, method string, names ...any) error {
	m.t.Helper()
	return m.port.Call(m.t, as, method, authztest.Values(names...))
}

// add issues a credential of a user.
func (m *master) add(r *api.AddUserRequest) (*api.AddedUser, error) {
	m.t.Helper()
	made := &api.AddedUser{}
	err := m.port.Ask(m.t, changestest.Admin(), api.MethodAddUser, r.Append, made.Decode)
	return made, err
}

// addToken adds a user, or a token of it, and returns a caller with that token.
func (m *master) addToken(name string) (*authz.Subject, *api.AddedUser) {
	m.t.Helper()
	made, err := m.add(&api.AddUserRequest{Name: name, Comment: "of " + name})
	if err != nil {
		m.t.Fatal(err)
	}
	return m.caller(made.TokenID), made
}

// caller returns a caller with a token.
func (m *master) caller(id string) *authz.Subject {
	m.t.Helper()
	x, err := token.ParseID(id)
	if err != nil {
		m.t.Fatal(err)
	}
	f, err := m.Node.Meta.Get(m.t.Context(), authz.TokenPath(x))
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := token.DecodeAccess(f.Data)
	if err != nil {
		m.t.Fatal(err)
	}
	s := &authz.Subject{Peer: pki.Peer{Kind: pki.Anonymous, Cluster: changestest.Cluster}, From: "127.0.0.1:2"}
	s.CredentialToken.Store(&authz.CredentialToken{Record: r})
	return s
}

// addCertificate issues a certificate of a user and returns a caller with it.
func (m *master) addCertificate(name string, ttl time.Duration) (*authz.Subject, *api.AddedUser) {
	m.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		m.t.Fatal(err)
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		m.t.Fatal(err)
	}
	made, err := m.add(&api.AddUserRequest{Name: name, Request: request, TTL: ttl})
	if err != nil {
		m.t.Fatal(err)
	}
	p := m.record(name)
	return changestest.User(name, p.Generation), made
}

// record returns the record of a user, nil if there is none.
func (m *master) record(name string) *acl.Principal {
	m.t.Helper()
	p, _, err := m.principal(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

func (m *master) epoch() uint64 { return m.Generation(acl.EpochFile) }

// whoami returns an error unless a caller is known.
func (m *master) whoami(as *authz.Subject) (*api.Whoami, error) {
	m.t.Helper()
	me := &api.Whoami{}
	return me, m.port.Ask(m.t, as, api.MethodWhoami, authztest.Values(), me.Decode)
}

func (m *master) addTable(name string, id uint64, families ...string) *table.Schema {
	m.t.Helper()
	s := table.NewSchema(name, id)
	for _, f := range families {
		var err error
		if s, err = s.Apply(table.FamilySpec{Name: f}); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.Node.Catalog.SaveTable(m.t.Context(), s, nil, 0); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// TestCredentials: a new user is made with its first credential, which identifies it. Later ones are of the same user. What a request may
// not have together is rejected before anything is made.
func TestCredentials(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	ann, made := m.addToken("ann")
	if !made.New || made.Token == "" || time.Until(time.UnixMilli(made.EndsMS)) < tokenLife-time.Minute {
		t.Errorf("the first token: %+v", made)
	}
	if x, err := token.Parse(made.Token); err != nil || x.ID().String() != made.TokenID || x.Authority() != m.Transport().Fingerprint() {
		t.Errorf("the token is %+v, %v", x, err)
	}
	cert, made := m.addCertificate("ann", 0)
	if made.New || made.Token != "" || len(made.Authority) == 0 || time.Until(time.UnixMilli(made.EndsMS)) < principalLife-time.Minute {
		t.Errorf("a certificate: %+v", made)
	}
	if p := m.record("ann"); p.Until.UnixMilli() != made.EndsMS || p.Generation == 0 {
		t.Errorf("the record is %+v, the certificate ends at %d", p, made.EndsMS)
	}
	for i, as := range []*authz.Subject{ann, cert} {
		if me, err := m.whoami(as); err != nil || me.Name != "ann" || me.Kind != api.KindPrincipal || me.Shown != []string{api.ShownToken, api.ShownCertificate}[i] {
			t.Errorf("credential %d: %+v, %v", i, me, err)
		}
	}
	forever, err := m.add(&api.AddUserRequest{Name: "ann", NoEnd: true})
	if err != nil || forever.EndsMS != 0 {
		t.Errorf("a token without end: %+v, %v", forever, err)
	}
	for what, r := range map[string]*api.AddUserRequest{
		"no end, and a life": {Name: "bob", NoEnd: true, TTL: time.Hour}, "no end of a certificate": {Name: "bob", NoEnd: true, Request: []byte("x")},
		"a bad request": {Name: "bob", Request: []byte("x")}, "no name": {}, "a bad name": {Name: "a/b"}, "a name for all": {Name: acl.Everyone},
		"a long comment": {Name: "bob", Comment: string(make([]byte, 10_000))},
	} {
		if _, err := m.add(r); !errors.Is(err, rpc.CodeBadRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if m.record("bob") != nil {
		t.Error("a rejected request has made a user")
	}
}

// TestRevocations (I12): after each revocation the credentials concerned are rejected, and no others. Each change starts another epoch of
// rights.
func TestRevocations(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	_, _ = m.addToken("bob")
	for what, c := range map[string]struct {
		revoke func(tokenID string) error
		kept   [3]bool // the first token, the second one, the certificate
	}{
		"one token": {func(id string) error {
			return m.call(changestest.Admin(), api.MethodRevokeUser, &api.RevokeUserRequest{Name: "ann", Token: id})
		}, [3]bool{false, true, true}},
		"one certificate": {func(string) error {
			return m.call(changestest.Admin(), api.MethodRevokeUser, &api.RevokeUserRequest{Name: "ann", Certificate: "5e"})
		}, [3]bool{true, true, false}},
		"all": {func(string) error {
			return m.call(changestest.Admin(), api.MethodRevokeUser, &api.RevokeUserRequest{Name: "ann"})
		}, [3]bool{}},
		"the user":       {func(string) error { return m.names(changestest.Admin(), api.MethodRemoveUser, "ann") }, [3]bool{}},
		"the user's use": {func(string) error { return m.names(changestest.Admin(), api.MethodDisableUser, "ann") }, [3]bool{}},
	} {
		first, made := m.addToken("ann")
		second, _ := m.addToken("ann")
		cert, _ := m.addCertificate("ann", time.Hour)
		cert.Peer.Serial = "5e"
		all := []*authz.Subject{first, second, cert}
		for i, as := range all {
			if _, err := m.whoami(as); err != nil {
				t.Fatalf("%s: credential %d before: %v", what, i, err)
			}
		}
		before := m.epoch()
		if err := c.revoke(made.TokenID); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if m.epoch() == before {
			t.Errorf("%s: no other epoch", what)
		}
		for i, as := range all {
			if _, err := m.whoami(as); (err == nil) != c.kept[i] || err != nil && !errors.Is(err, rpc.CodeUnauthenticated) {
				t.Errorf("%s: credential %d: %v, is kept: %v", what, i, err, c.kept[i])
			}
		}
		if what == "the user's use" {
			if err := m.names(changestest.Admin(), api.MethodEnableUser, "ann"); err != nil {
				t.Error(err)
			}
			for i, as := range all {
				if _, err := m.whoami(as); err != nil {
					t.Errorf("enabled again: credential %d: %v", i, err)
				}
			}
		}
		if m.record("ann") != nil { // the next one is a new user
			if err := m.names(changestest.Admin(), api.MethodRemoveUser, "ann"); err != nil {
				t.Error(err)
			}
		}
	}
	for what, r := range map[string]*api.RevokeUserRequest{
		"an unknown user": {Name: "eve"}, "an unknown token": {Name: "bob", Token: "0011223344556677"}, "a bad serial": {Name: "bob", Certificate: "XX"},
		"both": {Name: "bob", Certificate: "5e", Token: "0011223344556677"},
	} {
		if err := m.call(changestest.Admin(), api.MethodRevokeUser, r); err == nil {
			t.Errorf("%s was revoked", what)
		}
	}
	own := changestest.Admin()
	own.Peer.Serial = "77"
	if err := m.call(own, api.MethodRevokeUser, &api.RevokeUserRequest{Name: own.Peer.Name, Certificate: "77"}); !errors.Is(err, rpc.CodeBadRequest) {
		t.Errorf("the certificate that revokes itself: %v", err)
	}
}

// TestSecondLife: a user that is removed and added again has none of the rights, tokens and certificates that it had.
func TestSecondLife(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	s := m.addTable("t", 100, "f")
	old, _ := m.addToken("ann")
	cert, _ := m.addCertificate("ann", time.Hour)
	m.must(api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: "read", Table: "t"})
	m.must(api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: "monitor"})
	var forgotten []string
	m.forget = func(name string) (bool, error) { forgotten = append(forgotten, name); return true, nil }
	if err := m.names(changestest.Admin(), api.MethodRemoveUser, "ann"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(forgotten, []string{"ann"}) {
		t.Errorf("quotas forgotten: %q", forgotten)
	}
	for _, id := range []uint64{acl.Cluster, s.ID} {
		if p, _, err := m.policies.get(t.Context(), id); err != nil || p.Rights("ann") != 0 {
			t.Errorf("rights on %d after the removal: %v, %v", id, p.Rights("ann"), err)
		}
	}
	m.forget = nil
	if err := m.names(changestest.Admin(), api.MethodRemoveUser, "ann"); !errors.Is(err, api.CodeUserNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	fresh, made := m.addToken("ann")
	if me, err := m.whoami(fresh); err != nil || !made.New || len(me.Grants) != 0 {
		t.Errorf("the new user: %+v, %v", me, err)
	}
	for i, as := range []*authz.Subject{old, cert} {
		if _, err := m.whoami(as); !errors.Is(err, rpc.CodeUnauthenticated) {
			t.Errorf("credential %d of the earlier user: %v", i, err)
		}
	}
}

// TestInterruptedRemoval: what an interrupted removal has left is removed by the next one, and does not pass to a new user of the name.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	for _, again := range []string{api.MethodRemoveUser, api.MethodAddUser} {
		m := newMaster(t)
		m.addTable("t", 100, "f")
		_, _ = m.addToken("ann")
		m.must(api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: "read", Table: "t"})
		before := m.epoch()
		m.forget = func(string) (bool, error) { return false, api.ErrDiskFull }
		if err := m.names(changestest.Admin(), api.MethodRemoveUser, "ann"); !errors.Is(err, api.CodeOutcomeUnknown) {
			t.Errorf("an interrupted removal: %v", err)
		}
		if m.epoch() == before || m.record("ann") != nil {
			t.Error("the part that was made is not in force")
		}
		m.forget = nil
		if again == api.MethodRemoveUser {
			if err := m.names(changestest.Admin(), again, "ann"); err != nil {
				t.Errorf("the second removal: %v", err)
			}
		} else if fresh, made := m.addToken("ann"); !made.New {
			t.Errorf("not a new user: %+v", made)
		} else if me, err := m.whoami(fresh); err != nil || len(me.Grants) != 0 {
			t.Errorf("the new user: %+v, %v", me, err)
		}
		if p, _, err := m.policies.get(t.Context(), 100); err != nil || len(p.Grants) != 0 {
			t.Errorf("%s: grants are left: %+v, %v", again, p, err)
		}
	}
}

// TestFailedChanges: a change that has written nothing fails with its own error. One that may have written something fails with an unknown
// outcome, as does one after which the epoch could not be written.
func TestFailedChanges(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	ctx, admin := t.Context(), authz.ChangeRequest{Caller: changestest.Admin(), Method: api.MethodAddUser}
	write := func(ctx context.Context) error {
		_, err := m.Changes.SetAsMaster(ctx, "/acl/x", []byte("x"), metaapi.AnyGeneration)
		return err
	}
	before := m.epoch()
	if err := m.changeRights(ctx, admin, func(context.Context) error { return api.ErrNoUser }); !errors.Is(err, api.ErrNoUser) || m.epoch() == before {
		t.Errorf("nothing was written: %v", err)
	}
	if err := m.changeRights(ctx, admin, func(ctx context.Context) error { return errors.Join(write(ctx), api.ErrNoUser) }); !errors.Is(err, api.ErrOutcomeUnknown) {
		t.Errorf("part was written: %v", err)
	}
	lost := func(ctx context.Context) error { m.EndMastership(); return write(ctx) }
	if err := m.changeRights(ctx, admin, func(ctx context.Context) error { return errors.Join(write(ctx), lost(ctx)) }); !errors.Is(err, api.ErrOutcomeUnknown) {
		t.Errorf("the mastership is lost after a part: %v", err)
	}
	m = newMaster(t)
	err := m.changeRights(ctx, admin, func(context.Context) error { return m.Node.Meta.Delete(ctx, acl.EpochFile, metaapi.AnyGeneration) })
	if !errors.Is(err, api.ErrOutcomeUnknown) || m.epoch() != 0 {
		t.Errorf("the epoch cannot be written: %v; its file has generation %d", err, m.epoch())
	}
}

// TestLastAdmin: no change leaves the cluster without an administrator that can authenticate.
func TestLastAdmin(t *testing.T) {
	t.Parallel()
	const first = "admin"
	admin := changestest.Admin()
	losses := map[string]func(m *master) error{
		"removed":  func(m *master) error { return m.names(admin, api.MethodRemoveUser, first) },
		"disabled": func(m *master) error { return m.names(admin, api.MethodDisableUser, first) },
		"all credentials revoked": func(m *master) error {
			return m.call(admin, api.MethodRevokeUser, &api.RevokeUserRequest{Name: first})
		},
		"right revoked": func(m *master) error {
			return m.call(admin, api.MethodRevoke, &api.GrantRequest{Principal: first, Rights: "admin"})
		},
	}
	another := func(m *master, rights string) {
		_, _ = m.addToken("ann")
		m.must(api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: rights})
	}
	m := newMaster(t)
	m.addTable("t", 100, "f")
	empty := m.snapshot()
	for name, c := range map[string]struct {
		others func(m *master)
		left   bool
	}{
		"no other":                   {func(*master) {}, false},
		"one of lesser rights":       {func(m *master) { another(m, "monitor,write") }, false},
		"one of a table":             {func(m *master) { m.grantTable("ann", "t") }, false},
		"another with a token":       {func(m *master) { another(m, "admin") }, true},
		"another with a certificate": {func(m *master) { another(m, "admin"); m.withoutTokens("ann"); m.addCertificate("ann", time.Hour) }, true},
		"another without credential": {func(m *master) { another(m, "admin"); m.withoutTokens("ann") }, false},
		"a disabled one": {func(m *master) {
			another(m, "admin")
			if err := m.names(admin, api.MethodDisableUser, "ann"); err != nil {
				t.Error(err)
			}
		}, false},
		"a disabled one with a certificate": {func(m *master) {
			another(m, "admin")
			m.addCertificate("ann", time.Hour)
			if err := m.names(admin, api.MethodDisableUser, "ann"); err != nil {
				t.Error(err)
			}
		}, false},
		"one whose credentials are revoked": {func(m *master) {
			another(m, "admin")
			m.addCertificate("ann", time.Hour)
			m.must(api.MethodRevokeUser, &api.RevokeUserRequest{Name: "ann"})
		}, false},
		"one whose token is of an earlier generation": {func(m *master) {
			another(m, "admin")
			m.withoutTokens("ann")
			m.putToken("ann", m.record("ann").Generation-1, time.Hour)
		}, false},
		"one whose token has expired": {func(m *master) {
			another(m, "admin")
			m.withoutTokens("ann")
			m.putToken("ann", m.record("ann").Generation, -time.Hour)
		}, false},
		"everyone": {func(m *master) {
			_, _ = m.addToken("ann")
			m.must(api.MethodGrant, &api.GrantRequest{Principal: acl.Everyone, Rights: "admin"})
		}, true},
	} {
		c.others(m)
		restore := m.snapshot()
		for loss, lose := range losses {
			err := lose(m)
			if c.left && err != nil || !c.left && !errors.Is(err, api.CodeLastAdmin) {
				t.Errorf("%s, with %s: %v", loss, name, err)
			}
			if _, err := m.whoami(admin); !c.left && err != nil {
				t.Errorf("%s, with %s: the administrator is gone: %v", loss, name, err)
			}
			if err == nil {
				restore()
			}
		}
		empty()
	}
}

// snapshot returns the function that restores the users, tokens and grants on the cluster of now.
func (m *master) snapshot() (restore func()) {
	m.t.Helper()
	read := func() map[string][]byte {
		m.t.Helper()
		files := map[string][]byte{acl.ClusterFile: nil}
		for _, dir := range []string{principalsDir, authz.TokensDir} {
			names, err := m.Node.Catalog.List(m.t.Context(), dir)
			if err != nil {
				m.t.Fatal(err)
			}
			for _, name := range names {
				files[dir+"/"+name] = nil
			}
		}
		for path := range files {
			f, err := m.Node.Meta.Get(m.t.Context(), path)
			if err != nil {
				m.t.Fatal(err)
			}
			files[path] = f.Data
		}
		return files
	}
	old := read()
	return func() {
		m.t.Helper()
		for path := range read() {
			if old[path] == nil {
				if err := m.Node.Meta.Delete(m.t.Context(), path, metaapi.AnyGeneration); err != nil {
					m.t.Fatal(err)
				}
			}
		}
		for path, data := range old {
			m.Put(path, data)
		}
		m.Put(acl.EpochFile, []byte("restored")) // last: caches are invalid from here on
	}
}

func (m *master) grantTable(user, name string) {
	m.t.Helper()
	_, _ = m.addToken(user)
	m.must(api.MethodGrant, &api.GrantRequest{Principal: user, Rights: "admin", Table: name})
}

// withoutTokens removes the records of a user's tokens.
func (m *master) withoutTokens(name string) {
	m.t.Helper()
	all, err := m.tokens.list(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range all[name] {
		if err := m.Node.Meta.Delete(m.t.Context(), authz.TokenPath(r.ID), metaapi.AnyGeneration); err != nil {
			m.t.Fatal(err)
		}
	}
}

// putToken writes the record of a token that ends after that time, or has ended.
func (m *master) putToken(name string, generation uint64, left time.Duration) *token.AccessRecord {
	m.t.Helper()
	now := time.Now().Add(-30 * 24 * time.Hour)
	x := token.New(token.Access, pki.Fingerprint{}, now, 30*24*time.Hour+left)
	r, err := token.NewAccessRecord(x, now, name, generation, "")
	if err != nil {
		m.t.Fatal(err)
	}
	m.Put(authz.TokenPath(r.ID), r.Encode())
	return r
}

// TestLastToken: the last token of the only administrator is not revoked unless it has a certificate.
func TestLastToken(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	admin := changestest.Admin()
	m.Put(acl.PrincipalFile("admin"), (&acl.Principal{Name: "admin", Created: time.Now()}).Encode()) // no certificate is known
	first, second := m.putToken("admin", 0, time.Hour), m.putToken("admin", 0, time.Hour)
	revoke := func(r *token.AccessRecord) error {
		return m.call(admin, api.MethodRevokeUser, &api.RevokeUserRequest{Name: "admin", Token: r.ID.String()})
	}
	if err := revoke(first); err != nil {
		t.Errorf("one of two: %v", err)
	}
	if err := revoke(second); !errors.Is(err, api.CodeLastAdmin) {
		t.Errorf("the last one: %v", err)
	}
	m.addCertificate("admin", time.Hour)
	if err := revoke(second); err != nil {
		t.Errorf("the last token of a user with a certificate: %v", err)
	}
}

// TestTokensOfUser: a user has at most userTokensMax tokens that are valid or have ended recently. Those that ended long ago are removed, at
// most tokensForgotten at a time. An unreadable record hinders none of that, but
// the removal of all that an earlier user has had.
func TestTokensOfUser(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	ann, _ := m.addToken("ann")
	generation := m.record("ann").Generation
	var all sync.WaitGroup
	fill := func(n int, user string, left time.Duration) {
		for range n {
			all.Go(func() { m.putToken(user, generation, left) })
		}
	}
	fill(tokensForgotten+7, "bob", -tokenKept-time.Hour)
	fill(userTokensMax-2, "ann", -time.Hour) // recently: kept
	all.Wait()
	if _, err := m.add(&api.AddUserRequest{Name: "carl"}); err != nil {
		t.Errorf("another user: %v", err)
	}
	if left, err := m.tokens.list(t.Context(), "bob"); err != nil || len(left["bob"]) != 7 {
		t.Errorf("%d of bob are left, %v", len(left["bob"]), err)
	}
	m.Put(authz.TokensDir+"/bad", []byte("x"))
	m.addToken("ann") // the last one
	if _, err := m.add(&api.AddUserRequest{Name: "ann"}); !errors.Is(err, api.CodeLimitExceeded) {
		t.Errorf("one more: %v", err)
	}
	left, err := m.tokens.list(t.Context(), "")
	if err != nil || len(left["ann"]) != userTokensMax || len(left["bob"]) != 0 {
		t.Errorf("%d of ann and %d of bob are left, %v", len(left["ann"]), len(left["bob"]), err)
	}
	if _, err := m.whoami(ann); err != nil {
		t.Errorf("an earlier token: %v", err)
	}
	if err := m.names(changestest.Admin(), api.MethodRemoveUser, "carl"); !errors.Is(err, api.CodeOutcomeUnknown) || m.record("carl") != nil {
		t.Errorf("a user is removed, whose tokens cannot all be read: %v", err)
	}
	if _, err := m.add(&api.AddUserRequest{Name: "carl"}); err == nil {
		t.Error("a user is made, although a record may be the token of an earlier one")
	}
}

// TestListUsers: users are listed in order with their tokens.
func TestListUsers(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	_, made := m.addToken("bob")
	_, _ = m.addToken("ann")
	var all api.Users
	if err := m.port.Ask(t, changestest.Admin(), api.MethodListUsers, authztest.Values(), all.Decode); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range all.Users {
		line := u.Name
		for _, x := range u.Tokens {
			line += fmt.Sprintf(" %q", x.Comment)
		}
		got = append(got, line)
	}
	if want := []string{"admin", `ann "of ann"`, `bob "of bob"`}; !slices.Equal(got, want) {
		t.Errorf("users: %q, want %q", got, want)
	}
	if bob := all.Users[2]; bob.Tokens[0].ID != made.TokenID || bob.Tokens[0].EndsMS != made.EndsMS || bob.Generation == 0 || bob.Disabled {
		t.Errorf("bob: %+v", bob)
	}
	for _, method := range []string{api.MethodListUsers, api.MethodRemoveUser, api.MethodDisableUser} {
		names := []any{"bob"}
		if method == api.MethodListUsers {
			names = nil
		}
		if err := m.names(changestest.User("ann", m.record("ann").Generation), method, names...); !errors.Is(err, rpc.CodePermissionDenied) {
			t.Errorf("%s by a user: %v", method, err)
		}
	}
	if err := m.names(changestest.Admin(), api.MethodDisableUser, "eve"); !errors.Is(err, api.CodeUserNotFound) {
		t.Errorf("an unknown user is disabled: %v", err)
	}
}

// TestOpenCluster: an open cluster has no users, and any client of it has all rights.
func TestOpenCluster(t *testing.T) {
	t.Parallel()
	m := withService(t, changestest.NewOpen(t))
	m.port = m.Serve(m.Register)
	ask := func(method string, p func(*wire.Encoder)) error { return m.port.Call(t, nil, method, p) }
	for method, p := range map[string]func(*wire.Encoder){
		api.MethodAddUser: (&api.AddUserRequest{Name: "ann"}).Append, api.MethodRevokeUser: (&api.RevokeUserRequest{Name: "ann"}).Append,
		api.MethodListUsers: authztest.Values(), api.MethodRemoveUser: authztest.Values("ann"), api.MethodDisableUser: authztest.Values("ann"),
		api.MethodGrant: (&api.GrantRequest{Principal: "ann", Rights: "read"}).Append, api.MethodListGrants: (&api.ListGrantsRequest{}).Append,
	} {
		if err := ask(method, p); !errors.Is(err, api.CodeOpenCluster) {
			t.Errorf("%s: %v", method, err)
		}
	}
	me := &api.Whoami{}
	err := m.port.Ask(t, nil, api.MethodWhoami, authztest.Values(), me.Decode)
	if err != nil || me.Kind != api.KindAnonymous || len(me.Grants) != 1 || me.Grants[0].Rights != "admin" {
		t.Errorf("an open cluster: %+v, %v", me, err)
	}
	m.ForgetGrants(t.Context(), 100)
	m.PruneGrants(t.Context(), table.NewSchema("t", 100))
}
