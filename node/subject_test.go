package node

import (
	"testing"

	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// TestOwnerOf: only requests of nodes, and all requests on an open node, have no owner.
func TestOwnerOf(t *testing.T) {
	for want, identity := range map[string]any{
		"ann":          &subject{peer: pki.Peer{Kind: pki.Principal, Name: "ann"}},
		anonymousOwner: &subject{peer: pki.Peer{Kind: pki.Anonymous}},
		"":             &subject{peer: pki.Peer{Kind: pki.Node, Name: "n1"}},
	} {
		if got := ownerOf(&rpc.Peer{Identity: identity}); got != want {
			t.Errorf("%+v: owner %q, want %q", identity, got, want)
		}
	}
	if got := ownerOf(&rpc.Peer{}); got != "" {
		t.Errorf("on an open node: owner %q", got)
	}
}
