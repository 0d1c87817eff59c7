package node_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
	"golang.org/x/sync/errgroup"
)

const tokensDir = "/acl/tokens/"

// putTokens writes the records of tokens that were made and end then.
func (f *testCluster) putTokens(n int, of string, made time.Time, life time.Duration) {
	f.t.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	for range n {
		g.Go(func() error {
			t := token.New(token.Access, pki.FingerprintOf(f.as.Trust().Authorities()[0]), made, life)
			rec, err := token.NewAccessRecord(t, made, of, 0, "")
			if err != nil {
				return err
			}
			return f.nodes[0].PutFile(f.t.Context(), tokensDir+rec.ID.String(), rec.Encode())
		})
	}
	if err := g.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

// TestTokensOfUser: a user has so many access tokens and no more; those that ended long ago do not count, and go, whosever they
// are, while those that ended lately are listed.
func TestTokensOfUser(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.client(0), within(t, 90*time.Second)
	count := func() string {
		all := map[string]int{}
		for _, u := range good(admin.Users().List(ctx)) {
			all[u.Name] = len(u.Tokens)
		}
		return fmt.Sprint(all)
	}
	for _, name := range []string{"ann", "bob"} {
		if _, _, err := admin.Users().AddToken(ctx, name, 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	f.putTokens(998, "ann", time.Now(), 0)
	f.putTokens(3, "ann", time.Now().Add(-9*day), day)
	f.putTokens(3, "bob", time.Now().Add(-9*day), day)
	f.putTokens(3, "bob", time.Now().Add(-9*day), 8*day)
	if got, want := count(), "map[admin:0 ann:1002 bob:7]"; got != want {
		t.Fatalf("tokens: %s, want %s", got, want)
	}
	if _, _, err := admin.Users().AddToken(ctx, "ann", 0, ""); err != nil {
		t.Errorf("the thousandth token: %v", err)
	}
	if got, want := count(), "map[admin:0 ann:1000 bob:4]"; got != want {
		t.Errorf("tokens once another was made: %s, want %s", got, want)
	}
	var limit *table.LimitError
	if _, _, err := admin.Users().AddToken(ctx, "ann", 0, ""); !errors.As(err, &limit) || limit.Limit != 1000 || limit.Got != 1001 {
		t.Errorf("one token more: %v", err)
	}
	if _, _, err := admin.Users().Add(ctx, "ann", 0); err != nil {
		t.Errorf("a certificate: %v", err)
	}
	if _, _, err := admin.Users().AddToken(ctx, "bob", 0, ""); err != nil {
		t.Errorf("a token of another: %v", err)
	}
}

// TestUnreadableTokens: unreadable records do not keep other credentials from being revoked. If tokens cannot be listed, they are void, but it is unknown
// whether their records are gone.
func TestUnreadableTokens(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx, n := f.client(0), within(t, 60*time.Second), f.nodes[0]
	_, _, err := admin.Users().AddToken(ctx, "ann", 0, "") // a user is not new while its former credentials cannot be read
	if err := errors.Join(err, n.PutFile(ctx, tokensDir+"0102030405060708", []byte("\x93\x02\x03\x04"))); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what, path string
		revoke     func() error
		want       error
	}{
		{"a record", "", func() error { return admin.Users().Revoke(ctx, "ann") }, nil},
		{"the list", tokensDir + "folder/x", func() error { return admin.Users().Revoke(ctx, "ann") }, client.ErrAmbiguous},
	} {
		tok, _, err := admin.Users().AddToken(ctx, "ann", 0, "")
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		ann := f.clientAs(0, client.Config{Token: tok, RetryTimeMax: -1})
		if _, err := ann.Whoami(ctx); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if step.path != "" {
			if err := n.PutFile(ctx, step.path, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := step.revoke(); !errors.Is(err, step.want) {
			t.Errorf("%s cannot be read: revoke: %v, want %v", step.what, err, step.want)
		}
		var caller *client.IdentityError
		if _, err := ann.Whoami(ctx); !errors.As(err, &caller) || caller.Reason != api.IdentityRevoked {
			t.Errorf("%s cannot be read: who shows a token that was revoked: %v", step.what, err)
		}
	}
}
