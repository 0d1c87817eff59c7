package certs

import (
	"testing"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// TestRoomIsKeptForNodes: of the connections, and of the memory for requests, of a cluster with certificates a part is for
// nodes, and they alone may take their time.
func TestRoomIsKeptForNodes(t *testing.T) {
	const memory = 80 << 20
	cfg := (&Transport{}).Limit(rpc.ServerConfig{MemoryBytesMax: memory, ConnsMax: 16384})
	if cfg.ReservedConns != nodeConns || cfg.ReservedMemory != memory/nodeMemoryShare {
		t.Errorf("%d connections and %d bytes are kept", cfg.ReservedConns, cfg.ReservedMemory)
	}
	for _, x := range []struct {
		caller any
		node   bool
	}{
		{&authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}}, true},
		{&authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "n1"}}, false},
		{&authz.Subject{Peer: pki.Peer{Kind: pki.Anonymous}}, false},
		{nil, false},
	} {
		if p := (&rpc.Peer{Identity: x.caller}); cfg.Preferred(p) != x.node || cfg.Patient(p) != x.node {
			t.Errorf("%+v is preferred: %v, may take his time: %v", x.caller, cfg.Preferred(p), cfg.Patient(p))
		}
	}
	if cfg := (*Transport)(nil).Limit(rpc.ServerConfig{}); cfg.ReservedConns != 0 || cfg.ReservedMemory != 0 || cfg.Preferred != nil {
		t.Errorf("an open node keeps room: %+v", cfg)
	}
}
