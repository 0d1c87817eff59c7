package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestOneCertificateIsRevoked: when it is answered, no node answers anything by the certificate, also on a connection that was open
// before and for a request that is forwarded to the master's node; another certificate of the user goes on.
func TestOneCertificateIsRevoked(t *testing.T) {
	t.Parallel()
	f, admin, _ := secureThree(t)
	ctx := within(t, 90*time.Second)
	good(admin.Tables().Create(ctx, "web", table.FamilySpec{Name: "f"}))
	lost, kept := f.user(admin, "ann"), f.user(admin, "ann")
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "admin"}); err != nil {
		t.Fatal(err)
	}
	var with, without []*client.Client
	for i := range f.nodes {
		with, without = append(with, f.clientAs(i, client.Config{Credential: lost, RetryTimeMax: -1})), append(without, f.clientAs(i, client.Config{Credential: kept}))
		for _, c := range []*client.Client{with[i], without[i]} {
			if _, err := c.Tables().List(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	serial := lost.Peer().Serial
	if err := with[0].Users().RevokeCertificate(ctx, "ann", serial); err == nil {
		t.Error("a user revokes the certificate by which it asks")
	}
	for _, bad := range []string{"", "XYZ", "ABC"} {
		if err := admin.Users().RevokeCertificate(ctx, "ann", bad); err == nil {
			t.Errorf("serial number %q was taken", bad)
		}
	}
	if err := admin.Users().RevokeCertificate(ctx, "ann", serial); err != nil {
		t.Fatal(err)
	}
	for i := range f.nodes {
		if _, err := with[i].Tables().List(ctx); !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("node %d answers: %v", i, err)
		}
		if err := with[i].Tables().Drop(ctx, "web"); !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("node %d drops a table: %v", i, err)
		}
		if _, err := without[i].Tables().List(ctx); err != nil {
			t.Errorf("node %d and the other certificate: %v", i, err)
		}
	}
	if err := admin.Users().Revoke(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := without[0].Tables().List(ctx); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("after all were revoked: %v", err)
	}
}
