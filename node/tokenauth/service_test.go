package tokenauth

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stranger is a connection without a credential.
func stranger(host string) *authz.Subject {
	return &authz.Subject{Peer: pki.Peer{Kind: pki.Anonymous, Cluster: changestest.Cluster}, From: host + ":99"}
}

// tokens makes access tokens.
type tokens struct {
	t *testing.T
	n *changestest.Node
}

// add adds a token of a user, whose record change may change, and returns its text.
func (x tokens) add(user string, generation uint64, life time.Duration, change func(*token.AccessRecord)) string {
	x.t.Helper()
	now := time.Now().Add(-time.Hour)
	made := token.New(token.Access, pki.Fingerprint{}, now, life+time.Hour)
	r, err := token.NewAccessRecord(made, now, user, generation, "")
	if err != nil {
		x.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	x.n.Put(authz.TokenPath(made.ID()), r.Encode())
	return made.Reveal()
}

// TestTokens: a connection becomes that of a token's user if the token is valid and the user is known, and stays what it is otherwise.
func TestTokens(t *testing.T) {
	n := changestest.New(t)
	x := tokens{t, n}
	n.Put(acl.PrincipalFile("ann"), (&acl.Principal{Name: "ann", Generation: 3, Created: time.Now()}).Encode())
	n.Put(acl.PrincipalFile("bob"), (&acl.Principal{Name: "bob", Disabled: true, Created: time.Now()}).Encode())
	n.Put(acl.EpochFile, []byte("users"))
	now := time.Now()
	damaged := token.New(token.Access, pki.Fingerprint{}, now, time.Hour)
	n.Put(authz.TokenPath(damaged.ID()), []byte("x"))
	s := New(Config{Authz: n.Authz, Serving: n.Authz.Serving})
	for name, c := range map[string]struct {
		text, reason string
	}{
		"a valid one":                  {x.add("ann", 3, time.Hour, nil), ""},
		"of a later generation":        {x.add("ann", 4, time.Hour, nil), ""},
		"of an earlier generation":     {x.add("ann", 2, time.Hour, nil), api.IdentityRevoked},
		"expired":                      {x.add("ann", 3, -time.Minute, nil), api.IdentityExpired},
		"expired, of another secret":   {x.add("ann", 3, -time.Minute, func(r *token.AccessRecord) { r.Hash[0]++ }), api.IdentityBadToken},
		"of another secret":            {x.add("ann", 3, time.Hour, func(r *token.AccessRecord) { r.Hash[0]++ }), api.IdentityBadToken},
		"of another id":                {x.add("ann", 3, time.Hour, func(r *token.AccessRecord) { r.ID[0]++ }), api.IdentityBadToken},
		"of a disabled user":           {x.add("bob", 0, time.Hour, nil), api.IdentityDisabled},
		"of no user":                   {x.add("eve", 0, time.Hour, nil), api.IdentityUnknown},
		"revoked":                      {token.New(token.Access, pki.Fingerprint{}, now, time.Hour).Reveal(), api.IdentityBadToken},
		"a token to join":              {token.New(token.Join, pki.Fingerprint{}, now, time.Hour).Reveal(), api.IdentityBadToken},
		"no token":                     {"x", api.IdentityBadToken},
		"nothing":                      {"", api.IdentityBadToken},
		"a record that cannot be read": {damaged.Reveal(), "damaged"},
	} {
		caller := stranger("10.0.0." + fmt.Sprint(len(name)))
		err := s.Authenticate(t.Context(), caller, c.text)
		var e *api.IdentityError
		switch {
		case c.reason == "damaged":
			if code := api.ToRPC(reply.ToAPI(err)).Code; code != api.CodeCorrupt {
				t.Errorf("%s: %v, want %s", name, err, api.CodeCorrupt)
			}
		case (err == nil) != (c.reason == "") || err != nil && (!errors.As(err, &e) || e.Reason != c.reason):
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
		if got := caller.Identity(); (got.Kind == pki.Principal) != (c.reason == "") || c.reason == "" && got.Name != "ann" {
			t.Errorf("%s: the connection is of %+v", name, got)
		}
	}
	// A connection keeps its first token.
	caller, first, second := stranger("10.1.0.1"), x.add("ann", 3, time.Hour, nil), x.add("ann", 3, time.Hour, nil)
	for i, c := range []struct {
		text string
		want bool
	}{{first, true}, {first, true}, {second, false}} {
		if err := s.Authenticate(t.Context(), caller, c.text); (err == nil) != c.want || err != nil && !errors.Is(err, api.ErrUnauthenticated) {
			t.Errorf("token %d of one connection: %v", i, err)
		}
	}
	for _, kind := range []pki.Kind{pki.Principal, pki.Node} {
		with := stranger("10.1.0.2")
		with.Peer.Kind, with.Peer.Name = kind, "carl"
		if err := s.Authenticate(t.Context(), with, first); !errors.Is(err, api.ErrUnauthenticated) || with.CredentialToken.Load() != nil {
			t.Errorf("a connection with a certificate: %v", err)
		}
	}
}

// TestMethod: the method is for strangers, waits until the node serves, and accepts anything on an open node.
func TestMethod(t *testing.T) {
	n := changestest.New(t)
	x := tokens{t, n}
	var waits atomic.Bool
	s := New(Config{Authz: n.Authz, Serving: func() error {
		if waits.Load() {
			return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true}
		}
		return nil
	}})
	port := n.Serve(func(r method.Registrar) { s.Register(r) })
	good := x.add("admin", 0, time.Hour, nil)
	ask := func(params func(*wire.Encoder)) error { return port.Call(t, stranger("10.0.0.1"), Method, params) }
	if err := ask(authztest.Values(good)); err != nil {
		t.Errorf("a valid token: %v", err)
	}
	if err := ask(authztest.Values("x")); !errors.Is(err, rpc.CodeUnauthenticated) {
		t.Errorf("an invalid one: %v", err)
	}
	for _, params := range []func(*wire.Encoder){authztest.Values(), authztest.Values(7)} {
		if err := ask(params); !errors.Is(err, rpc.CodeBadRequest) {
			t.Errorf("no token: %v", err)
		}
	}
	waits.Store(true)
	if err := ask(authztest.Values(good)); !errors.Is(err, rpc.CodeUnavailable) {
		t.Errorf("before the node serves: %v", err)
	}
	open := changestest.NewOpen(t)
	port = open.Serve(func(r method.Registrar) { New(Config{Authz: open.Authz, Serving: s.Serving}).Register(r) })
	if err := port.Call(t, nil, Method, authztest.Values("x")); err != nil {
		t.Errorf("an open node: %v", err)
	}
}

// TestLimits (TA1): a host that sends invalid tokens is rejected unread for the rest of the second after limits.RefusalsMax of them. Other
// hosts are not, and neither is one whose tokens could not be verified.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := func() error { return nil }
		s := New(Config{Authz: &authz.Authorizer{Rights: authz.NewRights(&namespace.Access{}, led)}})
		ask := func(host, text string) error { return s.Authenticate(t.Context(), stranger(host), text) }
		unverified := token.New(token.Access, pki.Fingerprint{}, time.Now(), time.Hour).Reveal() // there is no session
		for second := range 2 {
			for i := range limits.RefusalsMax {
				if err := ask("10.0.0.1", "x"); !errors.Is(err, api.ErrUnauthenticated) {
					t.Fatalf("second %d, token %d: %v", second, i, err)
				}
			}
			for _, text := range []string{"x", unverified} {
				if err := ask("10.0.0.1", text); !errors.Is(err, api.ErrOverloaded) {
					t.Errorf("second %d, one more: %v", second, err)
				}
			}
			if err := ask("10.0.0.2", "x"); !errors.Is(err, api.ErrUnauthenticated) {
				t.Errorf("another host: %v", err)
			}
			time.Sleep(time.Second)
		}
		for range 2 * limits.RefusalsMax {
			if err := ask("10.0.0.3", unverified); !errors.Is(err, api.ErrUnavailable) {
				t.Fatalf("a token that cannot be verified: %v", err)
			}
		}
	})
}
