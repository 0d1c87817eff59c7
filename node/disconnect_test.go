package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// TestConnectionsOfTheRevoked: connections with a revoked, disabled or removed credential are closed soon, including new ones, after answers have returned the
// reason. Other connections stay.
func TestConnectionsOfTheRevoked(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.client(0), within(t, 90*time.Second)
	conns := map[string]*rpc.Conn{}
	for _, name := range []string{"ann", "bob", "carl", "eve"} {
		conns[name] = f.dialAs(0, f.user(admin, name))
	}
	tokens := map[string]string{}
	for _, name := range []string{"a token of bob", "another token of eve", "a token of eve"} {
		user := name[len(name)-3:]
		tok, _, err := admin.Users().AddToken(ctx, user, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		conns[name], tokens[name] = f.dialAs(0, nil), tok.ID().String()
		if e := answerOf(t, conns[name], "auth", values(tok.Reveal())); e != nil {
			t.Fatal(e)
		}
	}
	ping := func(conn *rpc.Conn) *rpc.Error { return answerOf(t, conn, api.MethodWhoami, values()) }
	for name, conn := range conns {
		if e := ping(conn); e != nil {
			t.Fatalf("%s: %v", name, e)
		}
	}
	again := f.user(admin, "ann")
	err := errors.Join(admin.Users().Revoke(ctx, "ann"), admin.Users().Disable(ctx, "bob"), admin.Users().Remove(ctx, "carl"),
		admin.Users().RevokeToken(ctx, "eve", tokens["a token of eve"]), admin.Grants().Add(ctx, client.Grant{Principal: "eve", Rights: "read"}))
	if err != nil {
		t.Fatal(err)
	}
	gone := []string{"ann", "bob", "carl", "a token of bob", "a token of eve"}
	for _, name := range gone {
		if e := ping(conns[name]); e == nil || e.Code != rpc.CodeUnauthenticated {
			t.Errorf("%s is told: %v", name, e)
		}
	}
	conns["ann again"] = f.dialAs(0, again)
	if e := ping(conns["ann again"]); e == nil || e.Code != rpc.CodeUnauthenticated {
		t.Errorf("ann is told: %v", e)
	}
	for _, name := range append(gone, "ann again") {
		select {
		case <-conns[name].Done():
		case <-ctx.Done():
			t.Fatalf("%s: the connection goes on", name)
		}
	}
	for _, name := range []string{"eve", "another token of eve"} {
		if e := ping(conns[name]); e != nil {
			t.Errorf("%s: %v", name, e)
		}
	}
}
