package authztest

import (
	"testing"
	"time"

	"github.com/steledb/stele/security/pki"
)

// NewAuthority returns the authority of a cluster.
func NewAuthority(t testing.TB, cluster string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// NodeCredential returns the credential of a node, signed by a.
func NodeCredential(t testing.TB, a *pki.Authority, id string) *pki.Credential {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.SignNode(request, id, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := pki.NewTrust(a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, trust)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
