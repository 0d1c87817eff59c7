package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestDisabledUser (I12): a disabled user is rejected on all nodes, with any credential, and has its previous rights when enabled again. whoami returns the
// identity.
func TestDisabledUser(t *testing.T) {
	t.Parallel()
	f, admin, _ := secureThree(t)
	ctx := within(t, 60*time.Second)
	if _, err := admin.Tables().Create(ctx, "u", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Table("u").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	tok, _, err := admin.Users().AddToken(ctx, "eve", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	ways := []client.Config{{Credential: f.user(admin, "eve"), RetryTimeMax: -1}, {Token: tok, RetryTimeMax: -1}}
	grant := client.Grant{Principal: "eve", Table: "u", Family: "f", Rights: "read"}
	if err := admin.Grants().Add(ctx, grant); err != nil {
		t.Fatal(err)
	}
	var eves []*client.Client
	for i := range f.nodes {
		for _, way := range ways {
			eves = append(eves, f.clientAs(i, way))
		}
	}
	each := func(what string, look func(c *client.Client) error) {
		t.Helper()
		for i, c := range eves {
			if err := look(c); err != nil {
				t.Errorf("%s, at node %d by way %d: %v", what, i/2, i%2, err)
			}
		}
	}
	read := func(c *client.Client) error {
		row, err := c.Table("u").Get(ctx, "r")
		if err == nil && len(row.Cells) != 1 {
			err = errors.New("the row is not there")
		}
		return err
	}
	out := func(c *client.Client) error {
		var caller *client.IdentityError
		if err := read(c); !errors.As(err, &caller) || caller.Reason != api.IdentityDisabled {
			return errors.Join(errors.New("want that the user is disabled, got"), err)
		}
		if _, err := c.Whoami(ctx); !errors.As(err, &caller) {
			return errors.Join(errors.New("she is told who she is:"), err)
		}
		return nil
	}
	each("before", read)
	for i, c := range eves {
		me, err := c.Whoami(ctx)
		credentialToken, id := api.ShownCertificate, ways[0].Credential.Peer().Serial
		if i%2 == 1 {
			credentialToken, id = api.ShownToken, tok.ID().String()
		}
		if err != nil || me.Kind != api.KindPrincipal || me.Name != "eve" || me.Cluster != f.nodes[0].ClusterID() || me.Shown != credentialToken || me.ID != id || me.EndsMS == 0 ||
			len(me.Grants) != 1 || me.Grants[0] != grant {
			t.Errorf("who eve is: %+v, %v", me, err)
		}
	}
	if err := admin.Users().Disable(ctx, "eve"); err != nil {
		t.Fatal(err)
	}
	each("disabled", out)
	if _, err := client.Open(ctx, f.nodes[1].RPCAddr(), ways[1]); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a connection of one who is disabled: %v", err)
	}
	users, err := admin.Users().List(ctx)
	if err != nil || len(users) != 2 || !users[1].Disabled || users[1].Name != "eve" {
		t.Errorf("users: %+v, %v", users, err)
	}
	if err := errors.Join(admin.Users().Enable(ctx, "eve"), admin.Users().Enable(ctx, "eve")); err != nil {
		t.Fatal(err)
	}
	each("enabled", read)
	for what, do := range map[string]func() error{
		"disabled": func() error { return admin.Users().Disable(ctx, "admin") },
		"revoked":  func() error { return admin.Users().Revoke(ctx, "admin") },
		"removed":  func() error { return admin.Users().Remove(ctx, "admin") },
	} {
		if err := do(); !errors.Is(err, client.ErrLastAdmin) {
			t.Errorf("the only administrator is %s: %v", what, err)
		}
	}
	// A disabled user does not count, and an enabled one does.
	root := client.Grant{Principal: "eve", Rights: "admin"}
	if err := errors.Join(admin.Grants().Add(ctx, root), admin.Users().Disable(ctx, "eve")); err != nil {
		t.Fatal(err)
	}
	if err := admin.Users().Disable(ctx, "admin"); !errors.Is(err, client.ErrLastAdmin) {
		t.Errorf("the only administrator who is enabled is disabled: %v", err)
	}
	if err := errors.Join(admin.Users().Enable(ctx, "eve"), admin.Users().Disable(ctx, "admin")); err != nil {
		t.Error(err)
	}
	if err := eves[0].Users().Disable(ctx, "eve"); !errors.Is(err, client.ErrLastAdmin) {
		t.Errorf("the last administrator disables herself: %v", err)
	}
}

// TestRequestsOfTheDisabled: large requests of a disabled user are rejected, also on new connections, until it is enabled again.
func TestRequestsOfTheDisabled(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	cred := f.user(admin, "ann")
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "write"}); err != nil {
		t.Fatal(err)
	}
	put := func(conn *rpc.Conn, bytes int) error {
		set := []table.Mutation{table.Set("f", []byte("q"), 1, make([]byte, bytes))}
		return conn.Call(ctx, api.MethodMutate, (&api.MutateRequest{Table: "t", Row: table.RowMutation{Row: []byte("r"), Mutations: set}}).Append, nil)
	}
	old := f.dialAs(0, cred)
	if err := errors.Join(put(old, 1<<20), admin.Users().Disable(ctx, "ann")); err != nil {
		t.Fatal(err)
	}
	if err := put(old, 1000); !errors.Is(err, rpc.CodeUnauthenticated) {
		t.Errorf("a small request: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // since when it was asked last how large her requests may be
	for what, conn := range map[string]*rpc.Conn{"that she has": old, "that is new": f.dialAs(0, cred)} {
		if err := put(conn, 1<<20); !errors.Is(err, rpc.ErrConnLost) && !errors.Is(err, rpc.CodeTooLarge) {
			t.Errorf("a large request on a connection %s: %v", what, err)
		}
	}
	if err := admin.Users().Enable(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := put(f.dialAs(0, cred), 1<<20); err != nil {
		t.Errorf("a large request when she is enabled: %v", err)
	}
	tok, _, err := admin.Users().AddToken(ctx, "ann", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	conn := f.dialAs(0, nil)
	if e := answerOf(t, conn, "auth", values(tok.Reveal())); e != nil {
		t.Fatal(e)
	}
	if err := put(conn, 1<<20); err != nil {
		t.Errorf("a large request right after a token was shown: %v", err)
	}
}

// TestWhoamiOfOpenCluster: on an open cluster clients have no identity, and all rights.
func TestWhoamiOfOpenCluster(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	defer stop(t, n)
	ctx := within(t, 30*time.Second)
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	me, err := c.Whoami(ctx)
	if err != nil || me.Kind != api.KindAnonymous || me.Cluster != n.ClusterID() || len(me.Grants) != 1 || me.Grants[0].Rights != "admin" {
		t.Errorf("who one is: %+v, %v", me, err)
	}
}
