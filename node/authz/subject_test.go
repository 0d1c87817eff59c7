package authz

import (
	"testing"

	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// TestOwnerOf: only requests of nodes, and all requests on an open node, have no owner.
func TestOwnerOf(t *testing.T) {
	for want, identity := range map[string]any{
		"ann":          &Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "ann"}},
		AnonymousOwner: &Subject{Peer: pki.Peer{Kind: pki.Anonymous}},
		"":             &Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}},
	} {
		if got := OwnerOf(&rpc.Peer{Identity: identity}); got != want {
			t.Errorf("%+v: owner %q, want %q", identity, got, want)
		}
	}
	if got := OwnerOf(&rpc.Peer{}); got != "" {
		t.Errorf("on an open node: owner %q", got)
	}
}
