package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// TestLastAdminsCredentials: an administrator without a valid credential does not count, so no order of revocations leaves a cluster without an
// administrator. The owner of the keys on the master's host can create another one.
func TestLastAdminsCredentials(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.client(0), within(t, 60*time.Second)
	last := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, client.ErrLastAdmin) {
			t.Errorf("%s: %v, want that nobody would be left", what, err)
		}
	}
	done := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	root := func(name string) client.Grant { return client.Grant{Principal: name, Rights: "admin"} }
	f.user(admin, "eve")
	done("eve administers", admin.Grants().Add(ctx, root("eve")))
	done("her certificate is revoked", admin.Users().Revoke(ctx, "eve"))
	for what, do := range map[string]func() error{
		"revoke":    func() error { return admin.Users().Revoke(ctx, "admin") },
		"disable":   func() error { return admin.Users().Disable(ctx, "admin") },
		"remove":    func() error { return admin.Users().Remove(ctx, "admin") },
		"the right": func() error { return admin.Grants().Revoke(ctx, root("admin")) },
	} {
		last(what+" of the only one with a credential", do())
	}

	add := func(c *client.Client, name string, ttl time.Duration) token.Token {
		t.Helper()
		tok, _, err := c.Users().AddToken(ctx, name, ttl, "")
		done("a token of "+name, err)
		return tok
	}
	first := add(admin, "eve", 0)
	eve := f.clientAs(0, client.Config{Token: first, RetryTimeMax: -1})
	done("all of admin, as eve has a token", admin.Users().Revoke(ctx, "admin"))
	last("the only token", eve.Users().RevokeToken(ctx, "eve", first.ID().String()))
	second := add(eve, "eve", 0)
	done("one of two tokens", eve.Users().RevokeToken(ctx, "eve", second.ID().String()))
	last("the only token again", eve.Users().RevokeToken(ctx, "eve", first.ID().String()))

	short := add(eve, "bob", time.Second)
	done("bob administers", eve.Grants().Add(ctx, root("bob")))
	if wait := time.Until(short.Ends()); wait > 0 {
		time.Sleep(wait + time.Millisecond)
	}
	last("the only token that has not ended", eve.Users().RevokeToken(ctx, "eve", first.ID().String()))
	done("everybody administers", eve.Grants().Add(ctx, root(client.Everyone)))
	last("the only one of everybody with a credential", eve.Users().Revoke(ctx, "eve"))
	cred := f.user(eve, "carl")
	done("one of everybody", eve.Users().Revoke(ctx, "eve"))
	last("the only certificate", f.clientAs(0, client.Config{Credential: cred, RetryTimeMax: -1}).Users().Disable(ctx, "carl"))

	host := f.clientAs(0, client.Config{Credential: good(pki.ReadCredential(keydir.At(f.cfgs[0].Security).NodeFile()))})
	back := f.clientAs(0, client.Config{Credential: f.user(host, "admin")})
	if _, err := back.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Errorf("by a credential that was made on the master's host: %v", err)
	}
}
