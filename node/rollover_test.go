package node_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// TestAuthorityIsReplaced: while nodes serve, also when one is away and comes back in the middle. Credentials of before are good
// until the operator finishes, and of no use afterwards, also on connections that are open.
func TestAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	f, log := tokenTestCluster(t, 3)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' log:\n%s", log.String())
		}
	})
	for i := range f.cfgs {
		f.cfgs[i].RolloverEvery(50 * time.Millisecond)
	}
	f.stop(0)
	f.start(0)
	for i := 1; i < 3; i++ {
		f.give(f.token(client.TokenRequest{}).Text, i)
		f.start(i)
	}
	admin, ctx := f.client(0), within(t, 120*time.Second)
	good(admin.Tables().Create(ctx, "web", table.FamilySpec{Name: "f"}))
	before := good(admin.Authority().Status(ctx))
	if before.Stage != "none" || before.New != "" || len(before.Old) != 64 {
		t.Errorf("before: %+v", before)
	}
	if _, err := admin.Authority().Finish(ctx); !errors.Is(err, client.ErrRollover) {
		t.Errorf("finished before it began: %v", err)
	}
	eventually(t, "all nodes vote", func() bool {
		return !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return !exists(f.authorityFile(i)) })
	})
	away := f.nodes[2].ID()
	f.stop(2)
	begun := good(admin.Authority().Rotate(ctx))
	if begun.Stage != "trust" || begun.Old != before.Old || begun.New == before.Old {
		t.Errorf("begun: %+v", begun)
	}
	eventually(t, "the node that is away is waited for, and no other", func() bool {
		s := good(admin.Authority().Status(ctx))
		t.Logf("%+v away %s", s, away)
		return s.Stage == "trust" && slices.Equal(s.Waiting, []string{away})
	})
	if again := good(admin.Authority().Rotate(ctx)); again.New != begun.New {
		t.Errorf("begun twice: %+v", again)
	}
	if anew := good(admin.Authority().Restart(ctx)); anew.New == begun.New || anew.Stage != "trust" {
		t.Errorf("begun again: %+v", anew)
	}
	if _, err := admin.Authority().Finish(ctx); !errors.Is(err, client.ErrRollover) {
		t.Errorf("finished while a node is away: %v", err)
	}
	f.start(2)
	eventually(t, "users can get new certificates", func() bool { return good(admin.Authority().Status(ctx)).Stage == "sign" })
	if _, err := admin.Authority().Restart(ctx); !errors.Is(err, client.ErrRollover) {
		t.Errorf("begun again after users have new certificates: %v", err)
	}
	next, _, err := admin.Users().Add(ctx, "admin", 0)
	if err != nil || pki.FingerprintOf(next.Signer()).String() != good(admin.Authority().Status(ctx)).New || len(next.Trust().Authorities()) != 2 {
		t.Fatalf("the administrator's next credential: %v, %v", next, err)
	}
	renewed := f.clientAs(1, client.Config{Credential: next})
	for _, c := range []*client.Client{admin, renewed} {
		if _, err := c.Tables().List(ctx); err != nil {
			t.Errorf("while both are good: %v", err)
		}
	}
	if s := good(renewed.Authority().Finish(ctx)); s.Stage == "sign" {
		t.Errorf("finished: %+v", s)
	}
	eventually(t, "the authority is another", func() bool {
		s, err := renewed.Authority().Status(ctx)
		return err == nil && s.Stage == "none" && s.Old == pki.FingerprintOf(next.Signer()).String()
	})
	for i := range f.nodes {
		own := f.credential(i)
		if all := own.Trust().Authorities(); len(all) != 1 || !all[0].Equal(next.Signer()) || !own.Signer().Equal(next.Signer()) {
			t.Errorf("node %d trusts %d authorities", i, len(all))
		}
		if exists(filepath.Join(f.cfgs[i].Security, "ca.next.key")) {
			t.Errorf("node %d has the key of an authority that is to come", i)
		}
		crt := good(pki.ParseTrust(good(os.ReadFile(filepath.Join(f.cfgs[i].Security, "ca.crt")))))
		if len(crt.Authorities()) != 1 || !crt.Authorities()[0].Equal(next.Signer()) {
			t.Errorf("node %d: ca.crt", i)
		}
		if a, err := pki.ReadAuthority(f.authorityFile(i)); err != nil || !a.Certificate().Equal(next.Signer()) {
			t.Errorf("node %d: ca.key: %v", i, err)
		}
		if _, err := f.clientAs(i, client.Config{Credential: next}).Tables().List(ctx); err != nil {
			t.Errorf("node %d and the new credential: %v", i, err)
		}
		// A credential of before, even one that trusts the new authority, is turned away.
		old := good(pki.NewTrust(append([]*x509.Certificate{}, next.Trust().Authorities()...)...))
		if _, err := client.Open(ctx, f.nodes[i].RPCAddr(), client.Config{Credential: good(retrusted(f.as, old)), RetryTimeMax: -1}); err == nil {
			c := f.clientAs(i, client.Config{Credential: good(retrusted(f.as, old)), RetryTimeMax: -1})
			if _, err := c.Tables().List(ctx); err == nil {
				t.Errorf("node %d takes a credential of before", i)
			}
		}
	}
	if _, err := admin.Tables().List(within(t, 2*time.Second)); err == nil {
		t.Error("a connection of before goes on")
	}
	f.as = next
	f.stop(1)
	f.start(1)
	if _, err := f.client(1).Tables().List(ctx); err != nil {
		t.Errorf("a node that starts anew: %v", err)
	}
}

// retrusted is a credential with other authorities.
func retrusted(c *pki.Credential, t *pki.Trust) (*pki.Credential, error) {
	b, err := c.PEM()
	if err != nil {
		return nil, err
	}
	one := good(pki.ParseCredential(b))
	own := one.Trust().PEM()
	return pki.ParseCredential(append(b[:len(b)-len(own)], t.PEM()...))
}
